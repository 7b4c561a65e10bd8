// Results as text for people.
#pragma once

#include <string>

#include "bench/baseline/baseline.h"
#include "bench/config.h"
#include "bench/load/result.h"

namespace verbena::bench {

// Several lines. `baseline` may be null.
std::string RunTable(const Config& config, const RunContext& context, const RunResult& result,
                     const BaselineResult* baseline);

// The part of it that tells the baseline.
std::string BaselineLines(const BaselineResult& baseline);

// "12.3 us", "1.20 ms", "3.4 s", "120 ns".
std::string FormatNanos(double nanos);

// Parts of it: what was run where; and how it ended (errors, lost servers and agents, a schedule
// that was not kept), empty if there is nothing to say.
std::string Heading(const Config& config, const RunContext& context);
std::string EndLines(const Config& config, const RunResult& result);

}  // namespace verbena::bench
