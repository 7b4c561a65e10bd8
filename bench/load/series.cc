#include "bench/load/series.h"

#include <algorithm>

#include "bench/load/worker.h"

namespace verbena::bench {

SeriesSampler::SeriesSampler(const std::vector<std::unique_ptr<Worker>>& workers,
                             int64_t begin_nanos)
    : workers_(workers), begin_nanos_(begin_nanos), last_nanos_(begin_nanos) {}

void SeriesSampler::Take(int64_t now_nanos) {
  if (now_nanos <= last_nanos_ || rows_.size() >= kMostRows) return;
  SeriesRow row;
  row.end = static_cast<double>(now_nanos - begin_nanos_) * 1e-9;
  row.seconds = static_cast<double>(now_nanos - last_nanos_) * 1e-9;
  last_nanos_ = now_nanos;
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    Histogram all;
    uint64_t errors = 0;
    for (const auto& worker : workers_) {
      const Histogram& one = worker->latency(kind);
      if (one.count() > 0) all.Merge(one);
      errors += worker->errors(kind);
    }
    Before& before = before_[i];
    if (all.count() == 0 && errors == 0) continue;
    Histogram recent = all;
    recent.Subtract(before.latency);
    SeriesCell& cell = row.kinds[i];
    cell.count = recent.count();
    cell.errors = errors - std::min(errors, before.errors);
    if (cell.count > 0) {
      cell.mean = recent.mean();
      cell.p50 = recent.Percentile(50);
      cell.p99 = recent.Percentile(99);
      cell.p999 = recent.Percentile(99.9);
      cell.max = recent.Percentile(100);
    }
    before.latency = all;
    before.errors = errors;
  }
  rows_.push_back(row);
}

}  // namespace verbena::bench
