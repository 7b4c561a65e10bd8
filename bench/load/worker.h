// One client thread of a run: a closed or an open loop over its connections.
//
// A trace is replayed like either: its requests are due when its timestamps say, or as soon as a
// slot is free.
//
// Closed: every slot of every connection is always in use, an answer makes room for the next
// operation. Open: operations are due at times of a schedule that does not ask how the store is
// doing; one that is due is submitted as soon as a slot is free, and until then it waits. Its
// response time is counted from when it was due, its service time from when it was submitted.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/load/schedule.h"
#include "bench/load/trace_reader.h"
#include "bench/measure/histogram.h"
#include "bench/measure/ticks.h"
#include "bench/systems/backend.h"
#include "bench/workload/workload.h"

namespace verbena::bench {

// What all workers of a run share with the thread that started them.
struct RunControl {
  explicit RunControl(const Config& config)
      : inserts(config.records, {.index = config.process, .step = config.processes}) {}

  std::atomic<bool> stop{false};       // submit nothing more
  std::atomic<bool> measuring{false};  // the warm-up is over
  std::atomic<uint32_t> running{0};    // workers that have not ended
  InsertSequence inserts;              // run: what is inserted, and what of it is there
  TraceReader* trace = nullptr;        // run: its requests instead of the workload's operations
};

// The share of one worker.
struct WorkerPlan {
  uint32_t index = 0;         // of all workers of the run, those of other processes included
  uint32_t workers = 1;       // how many these are
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
  // are just finishing. Response times in an open loop, else service times.
  const Histogram& latency(OpKind kind) const {
    return scheduled_ ? tallies_[Index(kind)].response : tallies_[Index(kind)].latency;
  }
  uint64_t errors(OpKind kind) const {
    return tallies_[Index(kind)].errors.load(std::memory_order_relaxed);
  }

  // Operations that have ended, well or not.
  uint64_t ended() const;
  // Reads and updates that were parts of read-modify-writes: they count in `latency` and `errors`
  // of their kinds, but are no operations of their own.
  uint64_t parts() const { return parts_.load(std::memory_order_relaxed); }
  uint64_t part_errors() const { return part_errors_.load(std::memory_order_relaxed); }
  uint64_t good_parts() const {
    const uint64_t failed = part_errors();
    const uint64_t all = parts();
    return all - (all < failed ? all : failed);
  }

  // After Run has returned.
  void AddTo(RunResult& result) const;
  int64_t begin_nanos() const { return begin_nanos_; }
  int64_t end_nanos() const { return end_nanos_; }
  // Where there is a schedule: the end of the time that it had, as far as it was followed.
  int64_t schedule_end_nanos() const { return schedule_end_nanos_; }

 private:
  class Lane;  // see lane.h
  // How long a worker sleeps at most before it looks at RunControl again.
  static constexpr std::chrono::milliseconds kWaitSlice{50};

  struct Tally {
    Histogram latency;   // service times
    Histogram response;  // open loop only
    Histogram failed;    // of what failed, from its submission
    StatusCounts statuses{};
    std::atomic<uint64_t> errors{0};
  };
  // Times of an operation, in ticks. In a closed loop it is due when it is submitted.
  struct Times {
    int64_t due = 0;
    int64_t started = 0;
  };
  struct OpenLoop {
    OpenLoop(const Schedule& made, uint64_t operations)
        : schedule(made), backlog(made, operations) {}
    Schedule schedule;
    Backlog backlog;
    int64_t begin_ticks = 0;  // time 0 of the schedule; 0 until it has begun
    uint64_t submitted = 0;
    bool ended = false;  // nothing more will be submitted
  };
  // Of a trace; what is about one is in worker_trace.cc.
  struct Replay {
    explicit Replay(TraceReader* from) : reader(from) {}
    TraceReader* const reader;
    TraceBatch requests;  // that are this worker's next
    bool over = false;    // nothing more will be submitted
    TraceOutcome outcome;
    // Of what was due while it was measured:
    uint64_t due = 0;
    int64_t late_most = 0;  // ns from when a request was due to its submission
    int64_t last_due_ticks = 0;
  };

  void RunClosed();
  void RunOpen();
  void RunTrace();
  void SubmitRequests();
  int64_t DueTicks();
  int64_t GapToRequest();
  void EndOfTrace(bool stopped);
  bool CameToNothing(OpKind kind, const Times& times, const absl::Status& status);
  bool SubmitDue();
  bool AllIssued() const;
  Lane* LaneWithRoom();
  void EndOfSchedule(int64_t nanos);
  void PassTime(bool more, bool active);
  void PassGap(int64_t gap, bool active);
  void GiveUpLate(int64_t* drain_until);
  bool NextOperation(int64_t due, Operation* operation);
  void BeginMeasuring();
  void RecordSuccess(OpKind kind, const Times& times, int64_t ended);
  void RecordFailure(OpKind kind, const Times& times, const absl::Status& status);
  void RecordPart(OpKind kind, const Times& whole, const Times& part, int64_t ended,
                  const absl::Status& status);
  // `size`: of the value, where that is not RecordValues::kBySizes and `field` is kAllFields.
  void MakeValue(std::string_view key, uint64_t size, uint32_t field, std::string_view old,
                 std::vector<char>* value);
  int64_t RetryPause();  // nanoseconds
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
  const RecordValues values_;
  OperationSource source_;
  Random retry_random_;
  std::optional<Replay> trace_;  // a run by a trace
  const bool scheduled_;         // operations are due at times of their own
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t turn_ = 0;  // the lane that the last one due went to

  bool measuring_ = false;
  int64_t begin_ticks_ = 0;  // operations that were due earlier are not counted
  int64_t begin_nanos_ = 0;
  int64_t end_nanos_ = 0;
  int64_t schedule_end_nanos_ = 0;
  std::optional<OpenLoop> open_;
  uint64_t issued_ = 0;  // operations of the plan
  uint64_t stamp_;       // of the next value written
  std::array<Tally, kOpKinds> tallies_;
  VerifyResult verify_;
  uint64_t scanned_ = 0;  // records, by scans
  std::atomic<uint64_t> parts_{0};
  std::atomic<uint64_t> part_errors_{0};
  BackendCounters counters_at_begin_;
  std::string first_error_;
  std::string lost_;
};

}  // namespace verbena::bench
