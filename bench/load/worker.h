// One client thread of a run: a closed loop over its connections.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/measure/histogram.h"
#include "bench/measure/ticks.h"
#include "bench/systems/backend.h"
#include "bench/workload/workload.h"

namespace verbena::bench {

// What all workers of a run share with the thread that started them.
struct RunControl {
  std::atomic<bool> stop{false};       // submit nothing more
  std::atomic<bool> measuring{false};  // the warm-up is over
  std::atomic<uint32_t> running{0};    // workers that have not ended
};

// The share of one worker.
struct WorkerPlan {
  uint32_t index = 0;
  uint64_t first_record = 0;  // load: the records to insert, in order
  uint64_t operations = 0;    // load: how many records; run: how many operations, 0 for no limit
};

class Worker {
 public:
  // `config`, `backends` and `control` are borrowed and must outlive the worker.
  Worker(const Config& config, const WorkerPlan& plan, std::vector<Backend*> backends,
         RunControl* control);
  ~Worker();

  // The whole run; in a thread of its own.
  void Run();

  // What has been measured so far, by any thread: a snapshot that may be off by operations that
  // are just finishing.
  const Histogram& latency(OpKind kind) const { return tallies_[Index(kind)].latency; }
  uint64_t errors(OpKind kind) const {
    return tallies_[Index(kind)].errors.load(std::memory_order_relaxed);
  }

  // After Run has returned.
  void AddTo(RunResult& result) const;
  int64_t begin_nanos() const { return begin_nanos_; }
  int64_t end_nanos() const { return end_nanos_; }

 private:
  class Lane;
  struct Tally {
    Histogram latency;
    std::atomic<uint64_t> errors{0};
  };

  bool NextOperation(Operation* operation);
  void BeginMeasuring();
  void RecordSuccess(OpKind kind, int64_t started, int64_t ended);
  void RecordFailure(OpKind kind, int64_t started, const absl::Status& status);
  void Verify(std::string_view key, std::string_view value);
  void VerifyScan(std::span<const ScannedRecord> records, uint32_t most);
  void RecordLoss(const absl::Status& status);
  BackendCounters CountersNow() const;

  const Config& config_;
  const WorkerPlan plan_;
  RunControl* const control_;
  const TickClock clock_;
  const KeyNames names_;
  const std::string_view prefix_;  // of all keys: scans leave others out
  OperationSource source_;
  std::vector<std::unique_ptr<Lane>> lanes_;

  bool measuring_ = false;
  int64_t begin_ticks_ = 0;  // operations that started earlier are not counted
  int64_t begin_nanos_ = 0;
  int64_t end_nanos_ = 0;
  uint64_t issued_ = 0;  // operations of the plan
  uint64_t stamp_;       // of the next value written
  std::array<Tally, kOpKinds> tallies_;
  VerifyResult verify_;
  uint64_t scanned_ = 0;  // records, by scans
  BackendCounters counters_at_begin_;
  std::string first_error_;
  std::string lost_;
};

}  // namespace verbena::bench
