// Medians of rounds. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace verbena::bench {

// A figure that was measured several times.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};

// All 0 for no samples.
Spread SpreadOf(std::vector<double> samples);

// The median of samples of a coarse clock, which many samples share: taken within the step that the
// middle one falls into, as if its samples were spread evenly between the steps' borders (halfway
// to the next smaller and the next larger sample). With a fine clock it is the middle sample.
// Reorders them. 0 for none.
double GroupedMedian(std::span<uint32_t> samples);

}  // namespace verbena::bench
