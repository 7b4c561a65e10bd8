// Results as JSON. The members that docs name stay; others may be added.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "bench/baseline/baseline.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/report/config_json.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

// "throughput_ops_s" and "ops" of a result.
nlohmann::json ThroughputJson(const RunResult& result);
// Mean, min, max and percentiles, in us.
nlohmann::json LatencyJson(const Histogram& latency);
// "client" and "server": what verbs each operation has cost.
nlohmann::json VerbsJson(const RunResult& result);
// All that RunJson has of a result itself, without where and how it was measured.
nlohmann::json ResultJson(const RunResult& result);
// All of a load or run. `baseline` may be null.
nlohmann::json RunJson(const Config& config, const RunContext& context, const RunResult& result,
                       const BaselineResult* baseline);
// The machine, the programs and the fabric. `versions`: of other programs, by their names.
nlohmann::json EnvironmentJson(const std::string& fabric, const std::string& device,
                               const std::map<std::string, std::string>& versions);
nlohmann::json EnvironmentJson(const RunContext& context);

// As it stands in files: with line breaks, and in UTF-8 whatever bytes of a peer its texts quote.
std::string JsonText(const nlohmann::json& json);
// Writes as WriteWholeFile does, with its errors.
absl::Status WriteJson(const std::string& path, const nlohmann::json& json);

}  // namespace verbena::bench
