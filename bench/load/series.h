// What happened in each second of a run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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
};

struct SeriesRow {
  double end = 0;      // seconds since measuring began
  double seconds = 0;  // how long the interval was
  // That did not fail; parts of read-modify-writes, which count in their own kinds, are none.
  uint64_t operations = 0;
  std::array<SeriesCell, kOpKinds> kinds{};

  double throughput() const {  // operations a second
    return seconds <= 0 ? 0 : static_cast<double>(operations) / seconds;
  }
};

// The same with its histograms, as it can be put together with that of another process.
struct SeriesPart {
  struct Kind {
    uint64_t errors = 0;
    Histogram latency;
  };
  double end = 0;
  double seconds = 0;
  uint64_t operations = 0;
  std::array<std::unique_ptr<Kind>, kOpKinds> kinds;  // null where nothing ended

  SeriesRow Row() const;
  // The latencies of all kinds.
  Histogram Latency() const;
  // Adds what another process has done in its interval of the same number; the interval is then the
  // longer one.
  void Add(const SeriesPart& other);
};

// Takes the rows while the workers run. One thread.
class SeriesSampler {
 public:
  using OnPart = std::function<void(SeriesPart)>;

  // `workers` and `on_part` are borrowed; the latter, unless empty, is given every part.
  // `begin_nanos`: when measuring began.
  SeriesSampler(const std::vector<std::unique_ptr<Worker>>& workers, int64_t begin_nanos,
                const OnPart& on_part);

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
  const OnPart& on_part_;
  int64_t last_nanos_;
  std::array<Before, kOpKinds> before_;
  uint64_t operations_before_ = 0;
  std::vector<SeriesRow> rows_;
};

// Puts the parts of several processes together as they come: a row is settled when all who still
// work have given theirs, so that only few histograms are kept. Not thread-safe.
class SeriesMerger {
 public:
  explicit SeriesMerger(size_t processes) : given_(processes, 0) {}

  // The next part of process number `process`. False, and nothing is added: it is further ahead of
  // another one than can be kept.
  bool Add(size_t process, const SeriesPart& part);
  // No more comes from that one.
  void End(size_t process);

  // The last row that was settled, with its histograms; null before the first.
  const SeriesPart* last() const { return last_.get(); }
  // All rows; those that are not settled, as far as they go.
  std::vector<SeriesRow> TakeRows();

  // How many rows one process may be ahead of another: agents that are silent for 30 s are lost.
  static constexpr size_t kMostAhead = 120;

 private:
  void Settle();

  std::vector<size_t> given_;  // parts of each process; SIZE_MAX: it has ended
  std::vector<SeriesRow> rows_;
  std::vector<std::unique_ptr<SeriesPart>> waiting_;  // the rows behind rows_
  std::unique_ptr<SeriesPart> last_;
};

}  // namespace verbena::bench
