// The line that shows how a run is going.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/config.h"
#include "bench/load/worker.h"
#include "bench/measure/histogram.h"

namespace verbena::bench {

// "12 s  412.3 k ops/s  p50 20.1 us  p99 41.2 us  p99.9 80.0 us  8 s left, until 14:03:22". Rate
// and percentiles are of the time since the last line; those that failed are not among them, and
// where there are any a number follows: "  7 errors", since the start or the end of the warm-up.
// Not thread-safe.
class ProgressLine {
 public:
  ProgressLine(const Config& config, const std::vector<std::unique_ptr<Worker>>& workers);

  // The text for now.
  std::string Next(int64_t now_nanos, bool measuring);

 private:
  std::string Remaining(int64_t now_nanos, uint64_t done, double rate) const;

  const Config& config_;
  const std::vector<std::unique_ptr<Worker>>& workers_;
  const int64_t begin_nanos_;
  int64_t last_nanos_;
  int64_t measured_nanos_ = 0;  // when measuring was seen first
  Histogram last_;
};

// "87", "12.3 k", "4.56 M".
std::string FormatRate(double per_second);

}  // namespace verbena::bench
