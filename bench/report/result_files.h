// The files that a load or run writes, and what it prints.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/report/html_report.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

// Whether all of them could be written, found out before there is anything to write.
// InvalidArgument names the flag and the reason.
absl::Status CheckResultFiles(const Config& config);

// Writes --json, --csv, --hgrm and --report; goes on where one cannot be written, tells it on
// standard error, and returns kExitOutput then if `exit_status` was kExitOk.
int WriteResultFiles(const Config& config, const RunResult& result, const nlohmann::json& json,
                     const std::function<Report()>& report, int exit_status);

// What --format wants on standard output.
std::string FormattedResult(const Config& config, const RunResult& result,
                            const std::function<std::string()>& table, const nlohmann::json& json);

}  // namespace verbena::bench
