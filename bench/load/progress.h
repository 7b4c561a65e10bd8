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
  const Config& config_;
  const std::vector<std::unique_ptr<Worker>>& workers_;
  const int64_t begin_nanos_;
  int64_t last_nanos_;
  int64_t measured_nanos_ = 0;  // when measuring was seen first
  Histogram last_;
  uint64_t last_parts_ = 0;
};

// The parts of that line: rate and percentiles,
std::string RateText(double rate, const Histogram& recent);
// and how long it will take: "8 s left, until 14:03:22", or nothing if that cannot be told.
// `measured`: seconds since measuring began (negative: as many are left of the warm-up); `done`
// operations of config.operations or of the load; the rate in operations a second.
std::string TimeLeft(const Config& config, double measured, uint64_t done, double rate);

// "87", "12.3 k", "4.56 M".
std::string FormatRate(double per_second);

}  // namespace verbena::bench
