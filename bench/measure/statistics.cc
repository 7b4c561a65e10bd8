#include "bench/measure/statistics.h"

#include <algorithm>

namespace verbena::bench {

Spread SpreadOf(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double median = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  return {median, samples.front(), samples.back()};
}

double GroupedMedian(std::span<uint32_t> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const uint32_t middle = samples[(samples.size() - 1) / 2];
  const auto [first, last] = std::equal_range(samples.begin(), samples.end(), middle);
  const double below = first == samples.begin() ? middle : *(first - 1);
  const double above = last == samples.end() ? middle : *last;
  const double from = (below + middle) / 2;
  const double to = (middle + above) / 2;
  const double half = static_cast<double>(samples.size()) / 2;
  const auto before = static_cast<double>(first - samples.begin());
  const auto equal = static_cast<double>(last - first);
  return from + (to - from) * (half - before) / equal;
}

}  // namespace verbena::bench
