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

// The smallest sample that at least `percent` % of them do not exceed; reorders them. 0 for none.
uint32_t PercentileOf(std::span<uint32_t> samples, double percent);

}  // namespace verbena::bench
