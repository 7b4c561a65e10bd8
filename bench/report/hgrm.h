// HdrHistogram's percentile distribution as text, which its plotters read.
#pragma once

#include <string>

#include "bench/measure/histogram.h"

namespace verbena::bench {

// Values in microseconds; five steps in each halving of the distance to 100 %, as HdrHistogram's
// outputPercentileDistribution does by default.
std::string HgrmText(const Histogram& histogram);

}  // namespace verbena::bench
