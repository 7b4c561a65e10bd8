// A comparison as JSON: {"systems":[{"name":...,"throughput_ops_s":...,"ops":{...},"server":{...},
// "client":{...},...},...],"ratios":{...},...}.
#pragma once

#include "bench/compare/comparison.h"
#include "bench/config.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

nlohmann::json CompareJson(const Config& config, const ComparisonResult& result);

// Processor time and switches of a process, for each of `operations`.
nlohmann::json UsageJson(const ProcessUsage& usage, uint64_t operations);

}  // namespace verbena::bench
