// A ratio that is judged: what client_ratios.sh and fabric_baseline.sh print. Not thread-safe.
#pragma once

#include "bench/measure/statistics.h"

namespace verbena::bench {

enum class Bound { kNone, kAtMost, kAtLeast };

// Prints a line with the ratio's median, its least and its most, and, if there is a bound, the
// limit and whether the median keeps it. Returns whether it does (true where there is no bound).
bool PrintRatio(const char* what, const Spread& spread, Bound bound, double limit);

}  // namespace verbena::bench
