// Results in YCSB's own text form: lines of "[METRIC], Measurement, value".
#pragma once

#include <string>

#include "bench/config.h"
#include "bench/load/result.h"

namespace verbena::bench {

// Latencies in microseconds. In an open loop a second block of each kind, "[Intended-READ]", has
// the response times; "[READ-FAILED]" has the service times of what failed.
std::string YcsbText(const Config& config, const RunResult& result);

// "50th", "99th", "51st"; "99.9" has no ending. As YCSB writes percentiles.
std::string YcsbOrdinal(double percent);

}  // namespace verbena::bench
