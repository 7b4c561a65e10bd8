#include "bench/load/series.h"

#include <algorithm>
#include <utility>

#include "bench/load/worker.h"

namespace verbena::bench {
namespace {

SeriesCell CellOf(const SeriesPart::Kind& kind) {
  SeriesCell cell;
  cell.count = kind.latency.count();
  cell.errors = kind.errors;
  if (cell.count > 0) {
    cell.mean = kind.latency.mean();
    cell.p50 = kind.latency.Percentile(50);
    cell.p99 = kind.latency.Percentile(99);
    cell.p999 = kind.latency.Percentile(99.9);
    cell.max = kind.latency.Percentile(100);
  }
  return cell;
}

}  // namespace

SeriesRow SeriesPart::Row() const {
  SeriesRow row;
  row.end = end;
  row.seconds = seconds;
  row.operations = operations;
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (kinds[i] != nullptr) row.kinds[i] = CellOf(*kinds[i]);
  }
  return row;
}

Histogram SeriesPart::Latency() const {
  Histogram all;
  for (const auto& kind : kinds) {
    if (kind != nullptr) all.Merge(kind->latency);
  }
  return all;
}

void SeriesPart::Add(const SeriesPart& other) {
  end = std::max(end, other.end);
  seconds = std::max(seconds, other.seconds);
  operations += other.operations;
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (other.kinds[i] == nullptr) continue;
    if (kinds[i] == nullptr) kinds[i] = std::make_unique<Kind>();
    kinds[i]->errors += other.kinds[i]->errors;
    kinds[i]->latency.Merge(other.kinds[i]->latency);
  }
}

SeriesSampler::SeriesSampler(const std::vector<std::unique_ptr<Worker>>& workers,
                             int64_t begin_nanos, const OnPart& on_part)
    : workers_(workers), begin_nanos_(begin_nanos), on_part_(on_part), last_nanos_(begin_nanos) {}

void SeriesSampler::Take(int64_t now_nanos) {
  if (now_nanos <= last_nanos_ || rows_.size() >= kMostRows) return;
  SeriesPart part;
  part.end = static_cast<double>(now_nanos - begin_nanos_) * 1e-9;
  part.seconds = static_cast<double>(now_nanos - last_nanos_) * 1e-9;
  last_nanos_ = now_nanos;
  uint64_t operations = 0;
  uint64_t parts = 0;
  for (const auto& worker : workers_) parts += worker->good_parts();
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
    operations += all.count();
    if (all.count() == 0 && errors == 0) continue;
    auto& recent = part.kinds[i] = std::make_unique<SeriesPart::Kind>();
    recent->latency = all;
    recent->latency.Subtract(before.latency);
    recent->errors = errors - std::min(errors, before.errors);
    before.latency = all;
    before.errors = errors;
  }
  // (What is just ending may be counted as a part and not yet in its kind.)
  operations -= std::min(operations, parts);
  part.operations = operations - std::min(operations, operations_before_);
  operations_before_ = std::max(operations, operations_before_);
  rows_.push_back(part.Row());
  if (on_part_) on_part_(std::move(part));
}

bool SeriesMerger::Add(size_t process, const SeriesPart& part) {
  if (given_[process] == SIZE_MAX) return false;
  const size_t number = given_[process];
  if (number >= rows_.size() + kMostAhead || number >= SeriesSampler::kMostRows) return false;
  ++given_[process];
  const size_t at = number - rows_.size();
  while (waiting_.size() <= at) waiting_.push_back(std::make_unique<SeriesPart>());
  waiting_[at]->Add(part);
  Settle();
  return true;
}

void SeriesMerger::End(size_t process) {
  given_[process] = SIZE_MAX;
  Settle();
}

// Who has given fewer parts than there are settled rows does not exist: a row is settled only when
// all have given theirs or have ended.
void SeriesMerger::Settle() {
  const size_t least = *std::min_element(given_.begin(), given_.end());
  size_t settled = 0;
  while (settled < waiting_.size() && rows_.size() < least) {
    last_ = std::move(waiting_[settled++]);
    rows_.push_back(last_->Row());
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(settled));
}

std::vector<SeriesRow> SeriesMerger::TakeRows() {
  for (size_t i = 0; i < given_.size(); ++i) End(i);
  return std::move(rows_);
}

}  // namespace verbena::bench
