#include "bench/load/worker.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/workload/random.h"
#include "common/base/clock.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

// How long a worker sleeps at most before it looks at RunControl again.
constexpr std::chrono::milliseconds kWaitSlice{50};
// How often a worker with several connections finds none of them ready before it waits for one.
constexpr int kIdleRounds = 1000;
// After `stop`, answers that are still missing are given up after this long. The clients' own
// timeouts are shorter.
constexpr int64_t kDrainNanos = 20'000'000'000;
// How exactly the pause before an insert is tried again is kept, where there is nothing else to do.
constexpr std::chrono::milliseconds kRetrySlice{1};

}  // namespace

// A connection and the operations in flight on it.
class Worker::Lane final : public CompletionSink {
 public:
  Lane(Worker* worker, Backend* backend, uint32_t depth)
      : worker_(worker), backend_(backend), slots_(depth) {
    backend_->set_sink(this);
    keys_.resize(worker->names_.max_size() * depth);
  }

  // Operations that were given up may still finish when the connection is closed.
  ~Lane() override { backend_->set_sink(nullptr); }

  // Closed loop: fills every slot.
  void Start() {
    for (uint32_t i = 0; i < slots_.size(); ++i) SubmitNext(i, 0);
  }
  // Open loop: every slot waits for what is due.
  void StartIdle() {
    for (uint32_t i = static_cast<uint32_t>(slots_.size()); i-- > 0;) free_.push_back(i);
  }
  bool has_room() const { return !free_.empty() && backend_->status().ok(); }
  // Submits the operation that was due then; only with has_room().
  void SubmitDue(int64_t due) {
    const uint32_t index = free_.back();
    free_.pop_back();
    if (!SubmitNext(index, due)) free_.push_back(index);
  }
  bool active() const { return in_flight_ > 0; }
  BackendCounters counters() const { return backend_->counters(); }

  // `timeout` 0 polls.
  int Progress(std::chrono::nanoseconds timeout) {
    if (waiting_ > 0) TryAgain();
    const int finished = timeout.count() == 0 ? backend_->Poll() : backend_->Wait(timeout);
    if (!backend_->status().ok()) GiveUp(backend_->status());
    return finished;
  }

  // Counts everything in flight as failed.
  void GiveUp(const absl::Status& status) {
    for (Slot& slot : slots_) {
      if (slot.busy) worker_->RecordFailure(slot.kind, slot.times, status);
      slot.busy = false;
      slot.try_again_at = 0;
    }
    in_flight_ = waiting_ = 0;
    worker_->RecordLoss(status);
  }

  void OnRead(uint32_t index, const absl::Status& status, std::string_view value) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    if (slot.kind != OpKind::kRead) return OnFirstRead(index, now, status, value);
    if (status.ok()) {
      worker_->RecordSuccess(slot.kind, slot.times, now);
      if (backend_->keeps_values()) worker_->Verify(KeyIn(index), value);
    } else {
      worker_->RecordFailure(slot.kind, slot.times, status);
    }
    Finish(index);
  }

  void OnWrite(uint32_t index, const absl::Status& status) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    if (!status.ok() && WaitToTryAgain(index)) return;
    if (slot.kind == OpKind::kReadModifyWrite) {
      worker_->RecordPart(OpKind::kUpdate, slot.times, slot.part, now, status);
    }
    if (status.ok()) {
      worker_->RecordSuccess(slot.kind, slot.times, now);
    } else {
      worker_->RecordFailure(slot.kind, slot.times, status);
    }
    Finish(index);
  }

  // Nobody deletes: the record that a scan starts at is there, and the scan's first.
  void OnScan(uint32_t index, const absl::Status& status,
              std::span<const ScannedRecord> records) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    const std::string_view start(KeyOf(index), slot.key_size);
    if (!status.ok()) {
      worker_->RecordFailure(slot.kind, slot.times, status);
    } else if (records.empty() || records.front().key != start) {
      worker_->RecordFailure(
          slot.kind, slot.times,
          absl::NotFoundError(absl::StrCat("a scan did not find ", ToAbsl(start))));
    } else {
      worker_->RecordSuccess(slot.kind, slot.times, now);
      worker_->VerifyScan(records, slot.scan_length);
    }
    Finish(index);
  }

 private:
  struct Slot {
    Times times;
    OpKind kind = OpKind::kRead;
    bool busy = false;
    size_t key_size = 0;
    uint64_t record = 0;
    uint32_t scan_length = 0;  // most records that a scan may find
    uint32_t field = 0;        // the one to write anew, or Operation::kAllFields
    Times part;                // of the write that follows a read
    uint32_t attempts = 0;     // of an insert of the load
    int64_t try_again_at = 0;  // monotonic nanoseconds; 0: it is under way
    std::vector<char> value;   // made when first needed
  };

  char* KeyOf(uint32_t index) { return keys_.data() + index * worker_->names_.max_size(); }

  std::string_view KeyIn(uint32_t index) { return {KeyOf(index), slots_[index].key_size}; }

  void Finish(uint32_t index) {
    Slot& slot = slots_[index];
    slot.busy = false;
    --in_flight_;
    EndInsert(slot);
    if (worker_->open_.has_value()) {
      free_.push_back(index);
    } else {
      SubmitNext(index, 0);
    }
  }

  void EndInsert(const Slot& slot) {
    if (slot.kind == OpKind::kInsert && worker_->config_.command != Command::kLoad) {
      worker_->control_->inserts.Acknowledge(slot.record);
    }
  }

  // The first half of a read-modify-write, and of an update that leaves other fields what they are.
  void OnFirstRead(uint32_t index, int64_t now, const absl::Status& status,
                   std::string_view value) {
    Slot& slot = slots_[index];
    if (slot.kind == OpKind::kReadModifyWrite) {
      worker_->RecordPart(OpKind::kRead, slot.times, slot.times, now, status);
    }
    absl::Status result = status;
    if (status.ok()) {
      if (backend_->keeps_values()) worker_->Verify(KeyIn(index), value);
      worker_->MakeValue(KeyIn(index), slot.field, value, &slot.value);
      slot.part.due = slot.part.started = worker_->clock_.Now();
      result = SubmitValue(index);
      if (result.ok()) return;
    }
    worker_->RecordFailure(slot.kind, slot.times, result);
    Finish(index);
  }

  absl::Status SubmitValue(uint32_t index) {
    const std::vector<char>& value = slots_[index].value;
    return backend_->SubmitWrite(index, KeyIn(index), {value.data(), value.size()});
  }

  // Whether an insert of the load that has failed is to be tried again, after a pause.
  bool WaitToTryAgain(uint32_t index) {
    Slot& slot = slots_[index];
    const Config& config = worker_->config_;
    if (config.command != Command::kLoad || slot.attempts >= config.insert_retries) return false;
    ++slot.attempts;
    ++waiting_;
    slot.try_again_at = MonotonicNanos() + worker_->RetryPause();
    return true;
  }

  // Inserts whose pause is over. A lane with nothing else to do sleeps for a moment.
  void TryAgain() {
    if (waiting_ == in_flight_) std::this_thread::sleep_for(kRetrySlice);
    const bool stopped = worker_->control_->stop.load(std::memory_order_relaxed);
    const int64_t now = MonotonicNanos();
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.busy || slot.try_again_at == 0 || (slot.try_again_at > now && !stopped)) continue;
      slot.try_again_at = 0;
      --waiting_;
      absl::Status status = stopped ? absl::CancelledError("the load was stopped") : SubmitValue(i);
      if (status.ok()) continue;
      worker_->RecordFailure(slot.kind, slot.times, status);
      Finish(i);
    }
  }

  // Submits what the operation begins with; where that is a write, makes its value first.
  absl::Status SubmitFirst(uint32_t index, int64_t due) {
    Slot& slot = slots_[index];
    const std::string_view key = KeyIn(index);
    const bool one_field = slot.field != Operation::kAllFields;
    const bool writes =
        slot.kind == OpKind::kInsert || (slot.kind == OpKind::kUpdate && !one_field);
    if (writes) worker_->MakeValue(key, Operation::kAllFields, {}, &slot.value);
    slot.times.started = worker_->clock_.Now();
    slot.times.due = due == 0 ? slot.times.started : due;
    if (writes) return SubmitValue(index);
    switch (slot.kind) {
      case OpKind::kScan:
        return backend_->SubmitScan(index, key, worker_->prefix_, slot.scan_length);
      case OpKind::kDelete:
        return backend_->SubmitDelete(index, key);
      default:
        return backend_->SubmitRead(index, key);
    }
  }

  // The next operation of the worker, if there is one; `due` 0: when it is submitted. Returns
  // whether one is in flight in this slot then. In a closed loop what cannot be submitted is
  // followed by the next.
  bool SubmitNext(uint32_t index, int64_t due) {
    Slot& slot = slots_[index];
    Operation operation;
    while (backend_->status().ok() && worker_->NextOperation(due, &operation)) {
      char* const key_bytes = KeyOf(index);
      slot.key_size =
          worker_->names_.Write(operation.record, {key_bytes, worker_->names_.max_size()});
      slot.kind = operation.kind;
      slot.record = operation.record;
      slot.scan_length = operation.length;
      slot.field = operation.field;
      slot.attempts = 0;
      const absl::Status status = SubmitFirst(index, due);
      if (status.ok()) {
        slot.busy = true;
        ++in_flight_;
        return true;
      }
      worker_->RecordFailure(slot.kind, slot.times, status);
      EndInsert(slot);
      if (due != 0) break;
    }
    if (!backend_->status().ok()) worker_->RecordLoss(backend_->status());
    return false;
  }

  Worker* const worker_;
  Backend* const backend_;
  std::vector<Slot> slots_;
  std::vector<char> keys_;
  std::vector<uint32_t> free_;  // open loop: slots that nothing is in flight in
  uint32_t in_flight_ = 0;
  uint32_t waiting_ = 0;  // of these, how many are inserts that wait to be tried again
};

Worker::Worker(const Config& config, const WorkerPlan& plan, std::vector<Backend*> backends,
               RunControl* control)
    : config_(config),
      plan_(plan),
      control_(control),
      names_(config.key_names()),
      prefix_(names_.prefix()),
      values_(config.record_values()),
      source_(config.workload, config.distribution, config.record_range(),
              Mix64(config.seed) + plan.index, &control->inserts),
      retry_random_(Mix64(config.seed) + plan.index),
      // Distinct for all writes of a run; which phase wrote a value does not matter.
      stamp_(Mix64(config.seed) ^ (uint64_t{plan.index} << 44)) {
  if (config.load.rate > 0) {
    open_.emplace(Schedule(config.load.arrival, config.load.rate / plan.workers,
                           Mix64(Mix64(config.seed) + plan.index), plan.index, plan.workers),
                  plan.operations);
  }
  for (Backend* backend : backends) {
    lanes_.push_back(std::make_unique<Lane>(this, backend, config.lane_depth()));
  }
}

Worker::~Worker() = default;

void Worker::Run() {
  if (config_.load.rate > 0) {
    RunOpen();
  } else {
    RunClosed();
  }
  // One that had no turn between the end of the warm-up and the end has measured nothing.
  if (!measuring_ && control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  end_nanos_ = MonotonicNanos();
  control_->running.fetch_sub(1, std::memory_order_release);
}

void Worker::RunClosed() {
  for (auto& lane : lanes_) lane->Start();
  int idle_rounds = 0;
  size_t turn = 0;
  int64_t drain_until = 0;
  for (;;) {
    bool active = false;
    int finished = 0;
    for (auto& lane : lanes_) {
      if (!lane->active()) continue;
      active = true;
      finished += lane->Progress(lanes_.size() == 1 ? kWaitSlice : std::chrono::nanoseconds(0));
    }
    if (!active) break;
    if (finished > 0) {
      idle_rounds = 0;
    } else if (control_->stop.load(std::memory_order_relaxed)) {
      GiveUpLate(&drain_until);
    } else if (lanes_.size() > 1 && ++idle_rounds > kIdleRounds) {
      turn = (turn + 1) % lanes_.size();
      if (lanes_[turn]->active()) lanes_[turn]->Progress(std::chrono::microseconds(200));
    }
  }
}

// What is in flight after the end has kDrainNanos to come.
void Worker::GiveUpLate(int64_t* drain_until) {
  const int64_t now = MonotonicNanos();
  if (*drain_until == 0) *drain_until = now + kDrainNanos;
  if (now <= *drain_until) return;
  for (auto& lane : lanes_) lane->GiveUp(absl::DeadlineExceededError("no answer"));
}

void Worker::RunOpen() {
  // Without a warm-up the schedule and the measuring begin at the same tick: what is due first is
  // counted.
  if (control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  open_->begin_ticks = measuring_ ? begin_ticks_ : clock_.Now();
  if (measuring_) open_->backlog.Restart(-1, 0);
  for (auto& lane : lanes_) lane->StartIdle();
  int64_t drain_until = 0;
  for (;;) {
    const bool more = SubmitDue();
    bool active = false;
    for (auto& lane : lanes_) {
      // Idle ones too: a connection does what it has to do between operations when it is polled.
      lane->Progress(std::chrono::nanoseconds(0));
      active |= lane->active();
    }
    if (!more && !active) break;
    if (!more) GiveUpLate(&drain_until);
    PassTime(more, active);
  }
}

// Submits what is due, as far as slots are free. False: nothing more will be.
bool Worker::SubmitDue() {
  OpenLoop& open = *open_;
  if (open.ended) return false;
  const int64_t now = clock_.Now();
  const auto since_begin = static_cast<int64_t>(clock_.Nanos(open.begin_ticks, now));
  if (control_->stop.load(std::memory_order_relaxed)) {
    EndOfSchedule(since_begin);
    return false;
  }
  if (!measuring_ && control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  while (open.schedule.due() <= since_begin) {
    Lane* const lane = LaneWithRoom();
    if (lane == nullptr) break;
    const int64_t due = open.schedule.due();
    ++open.submitted;
    open.schedule.Advance();
    lane->SubmitDue(open.begin_ticks + clock_.TicksOf(due));
    if (AllIssued()) {
      EndOfSchedule(due);
      return false;
    }
  }
  open.backlog.Look(since_begin, open.submitted);
  return true;
}

Worker::Lane* Worker::LaneWithRoom() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    open_->turn = open_->turn + 1 < lanes_.size() ? open_->turn + 1 : 0;
    if (lanes_[open_->turn]->has_room()) return lanes_[open_->turn].get();
  }
  return nullptr;
}

// `nanos`: the time of the schedule up to which it was followed.
void Worker::EndOfSchedule(int64_t nanos) {
  OpenLoop& open = *open_;
  open.ended = true;
  // What was due up to the end and is not in flight stays undone. (Where the number of operations
  // has made the end there is nothing such.)
  open.backlog.Look(nanos, open.submitted);
  schedule_end_nanos_ =
      MonotonicNanos() -
      static_cast<int64_t>(clock_.Nanos(open.begin_ticks + clock_.TicksOf(nanos), clock_.Now()));
}

// Until something may have happened. A sleep may end late by a millisecond, which would be counted
// as the store's: where polling is allowed, the last two are polled through.
void Worker::PassTime(bool more, bool active) {
  constexpr int64_t kSleepMargin = 2'000'000;
  int64_t gap = kWaitSlice / std::chrono::nanoseconds(1);
  if (more) {
    const int64_t due_ticks = open_->begin_ticks + clock_.TicksOf(open_->schedule.due());
    gap = std::min(gap, static_cast<int64_t>(clock_.Nanos(clock_.Now(), due_ticks)));
  }
  const int64_t sleep = config_.poll.count() == 0 ? gap : gap - kSleepMargin;
  if (active && sleep > 0 && lanes_.size() == 1) {
    lanes_[0]->Progress(std::chrono::nanoseconds(sleep));
  } else if (active && config_.poll.count() == 0) {
    // Due or not, the answers of one connection are waited for; the others have their turn soon.
    for (auto& lane : lanes_) {
      if (lane->active()) return void(lane->Progress(std::chrono::microseconds(200)));
    }
  } else if (!active && sleep > 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(sleep));
  }
}

bool Worker::AllIssued() const {
  return measuring_ && plan_.operations != 0 && issued_ == plan_.operations;
}

// `due` 0: now. What was due in the warm-up is no operation of the run.
bool Worker::NextOperation(int64_t due, Operation* operation) {
  if (control_->stop.load(std::memory_order_relaxed)) return false;
  if (!measuring_ && control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  if (measuring_ && plan_.operations != 0 && (due == 0 || due >= begin_ticks_)) {
    if (AllIssued()) return false;
    ++issued_;
  }
  if (config_.command == Command::kLoad) {
    *operation = {OpKind::kInsert, plan_.first_record + issued_ - 1};
  } else {
    *operation = source_.Next();
  }
  return true;
}

void Worker::BeginMeasuring() {
  measuring_ = true;
  for (Tally& tally : tallies_) {
    tally.latency.Reset();
    tally.response.Reset();
    tally.failed.Reset();
    tally.statuses = {};
    tally.errors.store(0, std::memory_order_relaxed);
  }
  parts_.store(0, std::memory_order_relaxed);
  part_errors_.store(0, std::memory_order_relaxed);
  verify_ = {};
  scanned_ = 0;
  counters_at_begin_ = CountersNow();
  begin_nanos_ = MonotonicNanos();
  begin_ticks_ = clock_.Now();
  if (open_.has_value() && open_->begin_ticks != 0) {
    open_->backlog.Restart(static_cast<int64_t>(clock_.Nanos(open_->begin_ticks, begin_ticks_)),
                           open_->submitted);
  }
}

void Worker::RecordSuccess(OpKind kind, const Times& times, int64_t ended) {
  if (times.due < begin_ticks_) return;
  Tally& tally = tallies_[Index(kind)];
  tally.latency.Record(clock_.Nanos(times.started, ended));
  if (open_.has_value()) tally.response.Record(clock_.Nanos(times.due, ended));
}

// It counts as its own kind, too, and as an operation only once: in the kind that it is a part of.
void Worker::RecordPart(OpKind kind, const Times& whole, const Times& part, int64_t ended,
                        const absl::Status& status) {
  if (whole.due < begin_ticks_) return;
  parts_.store(parts_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (status.ok()) {
    RecordSuccess(kind, part, ended);
  } else {
    RecordFailure(kind, part, status);
    part_errors_.store(part_errors() + 1, std::memory_order_relaxed);
  }
}

void Worker::MakeValue(std::string_view key, uint32_t field, std::string_view old,
                       std::vector<char>* value) {
  if (field == Operation::kAllFields) {
    values_.Fill(key, stamp_++, RecordValues::kBySizes, value);
  } else {
    values_.Replace(key, stamp_++, field, old, value);
  }
}

// YCSB's: the interval, shorter or longer by up to a fifth.
int64_t Worker::RetryPause() {
  const auto interval = static_cast<double>(config_.insert_retry_interval.count());
  return static_cast<int64_t>(interval * (0.8 + 0.4 * retry_random_.NextDouble()));
}

void Worker::Verify(std::string_view key, std::string_view value) {
  ++verify_.checked;
  if (!values_.Verify(key, value)) ++verify_.wrong;
}

// A record out of its place is as wrong as one with another's value; so are more than were wanted.
void Worker::VerifyScan(std::span<const ScannedRecord> records, uint32_t most) {
  scanned_ += records.size();
  if (records.size() > most) ++verify_.wrong;
  std::string_view before;
  for (const ScannedRecord& record : records) {
    Verify(record.key, record.value);
    if (record.key <= before) ++verify_.wrong;
    before = record.key;
  }
}

void Worker::RecordFailure(OpKind kind, const Times& times, const absl::Status& status) {
  if (first_error_.empty()) first_error_ = status.ToString();
  if (times.due < begin_ticks_) return;
  Tally& tally = tallies_[Index(kind)];
  tally.failed.Record(clock_.Nanos(times.started, clock_.Now()));
  ++tally.statuses[StatusIndex(status.code())];
  tally.errors.store(tally.errors.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void Worker::RecordLoss(const absl::Status& status) {
  if (lost_.empty()) lost_ = status.ToString();
  control_->stop.store(true, std::memory_order_relaxed);
}

uint64_t Worker::ended() const {
  uint64_t sum = 0;
  for (const Tally& tally : tallies_) {
    sum += tally.latency.count() + tally.errors.load(std::memory_order_relaxed);
  }
  return sum - parts();
}

BackendCounters Worker::CountersNow() const {
  BackendCounters sum;
  for (const auto& lane : lanes_) sum += lane->counters();
  return sum;
}

void Worker::AddTo(RunResult& result) const {
  for (size_t i = 0; i < kOpKinds; ++i) {
    OpResult& op = result.ops[i];
    op.latency.Merge(tallies_[i].latency);
    op.response.Merge(tallies_[i].response);
    op.failed.Merge(tallies_[i].failed);
    for (size_t code = 0; code < op.statuses.size(); ++code) {
      op.statuses[code] += tallies_[i].statuses[code];
    }
    const uint64_t errors = tallies_[i].errors.load(std::memory_order_relaxed);
    op.errors += errors;
    op.count += tallies_[i].latency.count() + errors;
  }
  result.verify.checked += verify_.checked;
  result.verify.wrong += verify_.wrong;
  result.scanned += scanned_;
  if (open_.has_value()) {
    result.open_loop->due += open_->backlog.due();
    result.open_loop->backlog_most += open_->backlog.most();
    result.open_loop->backlog_end += open_->backlog.last();
  }
  result.parts += parts();
  result.part_errors += part_errors();
  result.counters += CountersNow() - counters_at_begin_;
  if (result.first_error.empty()) result.first_error = first_error_;
  if (result.lost.empty()) result.lost = lost_;
}

}  // namespace verbena::bench
