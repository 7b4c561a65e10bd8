// What happened in each second of a run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/measure/histogram.h"
#include "bench/workload/workload.h"

namespace verbena::bench {

class Worker;

// Operations of one kind that ended in an interval. Times in ns: response times in an open loop,
// else service times.
struct SeriesCell {
  uint64_t count = 0;  // that did not fail
  uint64_t errors = 0;
  double mean = 0;
  uint64_t p50 = 0;
  uint64_t p99 = 0;
  uint64_t p999 = 0;
  uint64_t max = 0;  // rounded up by less than 0.1 %
  // Whether p50, p99 and p999 are known: those of several processes together are not.
  bool percentiles = true;
};

struct SeriesRow {
  double end = 0;      // seconds since measuring began
  double seconds = 0;  // how long the interval was
  std::array<SeriesCell, kOpKinds> kinds{};
};

// Takes the rows while the workers run. One thread.
class SeriesSampler {
 public:
  // `workers` are borrowed. `begin_nanos`: when measuring began.
  SeriesSampler(const std::vector<std::unique_ptr<Worker>>& workers, int64_t begin_nanos);

  // A row for the time since the last one, if anything has passed. There are at most kMostRows;
  // later ones are left out.
  void Take(int64_t now_nanos);
  std::vector<SeriesRow> rows() { return std::move(rows_); }

  static constexpr size_t kMostRows = 100'000;

 private:
  struct Before {
    Histogram latency;
    uint64_t errors = 0;
  };

  const std::vector<std::unique_ptr<Worker>>& workers_;
  const int64_t begin_nanos_;
  int64_t last_nanos_;
  std::array<Before, kOpKinds> before_;
  std::vector<SeriesRow> rows_;
};

}  // namespace verbena::bench
