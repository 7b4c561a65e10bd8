#include "bench/report/hgrm.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace verbena::bench {
namespace {

constexpr double kStepsPerHalving = 5;
constexpr double kMicro = 1e3;  // ns

// The percentile behind `percent`: steps get smaller as the distance to 100 % halves.
double NextLevel(double percent) {
  const double halvings = std::floor(std::log2(100 / (100 - percent)));
  return percent + 100 / (kStepsPerHalving * std::exp2(halvings + 1));
}

}  // namespace

std::string HgrmText(const Histogram& histogram) {
  const auto cells = histogram.Cells();
  uint64_t total = 0;
  for (const auto& [index, count] : cells) total += count;
  const double mean = histogram.mean();
  double squares = 0;
  std::string text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n";
  double level = 0;
  uint64_t seen = 0;
  for (const auto& [index, count] : cells) {
    const uint64_t value = index + 1 == Histogram::kCells
                               ? histogram.max()
                               : std::min(histogram_internal::LastValueOf(index), histogram.max());
    const double off = static_cast<double>(value) - mean;
    squares += off * off * static_cast<double>(count);
    seen += count;
    const double micros = static_cast<double>(value) / kMicro;
    const double reached = 100 * static_cast<double>(seen) / static_cast<double>(total);
    for (; seen < total && reached >= level; level = NextLevel(level)) {
      absl::StrAppendFormat(&text, "%12.3f %2.12f %10d %14.2f\n", micros, level / 100, seen,
                            1 / (1 - level / 100));
    }
    if (seen == total) absl::StrAppendFormat(&text, "%12.3f %2.12f %10d\n", micros, 1.0, seen);
  }
  const double deviation = total == 0 ? 0 : std::sqrt(squares / static_cast<double>(total));
  absl::StrAppendFormat(&text, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", mean / kMicro,
                        deviation / kMicro);
  absl::StrAppendFormat(&text, "#[Max     = %12.3f, Total count    = %12d]\n",
                        static_cast<double>(histogram.max()) / kMicro, total);
  absl::StrAppendFormat(
      &text, "#[Buckets = %12d, SubBuckets     = %12d]\n",
      (Histogram::kCells + histogram_internal::kSteps - 1) / histogram_internal::kSteps,
      2 * histogram_internal::kSteps);
  return text;
}

}  // namespace verbena::bench
