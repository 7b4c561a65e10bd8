#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace verbena::bench {

Spread SpreadOf(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double median = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  return {median, samples.front(), samples.back()};
}

uint32_t PercentileOf(std::span<uint32_t> samples, double percent) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(samples.size()) * (1 - 1e-12));
  const auto index =
      static_cast<size_t>(std::clamp(rank - 1, 0.0, static_cast<double>(samples.size() - 1)));
  const auto at = samples.begin() + static_cast<ptrdiff_t>(index);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

}  // namespace verbena::bench
