// Results as JSON. The members that docs name stay; others may be added.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bench/baseline/baseline.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

// "throughput_ops_s" and "ops" of a result.
nlohmann::json ThroughputJson(const RunResult& result);
// Mean, min, max and percentiles, in us.
nlohmann::json LatencyJson(const Histogram& latency);
// All that RunJson has of a result itself, without where and how it was measured.
nlohmann::json ResultJson(const RunResult& result);
// All of a load or run. `baseline` may be null.
nlohmann::json RunJson(const Config& config, const RunContext& context, const RunResult& result,
                       const BaselineResult* baseline);
// What was asked for, and the machine.
nlohmann::json ConfigJson(const Config& config);
nlohmann::json EnvironmentJson();

// Writes as WriteWholeFile does, with its errors.
absl::Status WriteJson(const std::string& path, const nlohmann::json& json);

}  // namespace verbena::bench
