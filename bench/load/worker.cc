#include "bench/load/worker.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/load/lane.h"
#include "bench/workload/random.h"
#include "common/base/clock.h"

namespace verbena::bench {
namespace {

// How often a worker with several connections finds none of them ready before it waits for one.
constexpr int kIdleRounds = 1000;
// After `stop`, answers that are still missing are given up after this long. The clients' own
// timeouts are shorter.
constexpr int64_t kDrainNanos = 20'000'000'000;

}  // namespace

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
      scheduled_(control->trace != nullptr ? control->trace->speed() > 0 : config.load.rate > 0),
      // Distinct for all writes of a run; which phase wrote a value does not matter.
      stamp_(Mix64(config.seed) ^ (uint64_t{plan.index} << 44)) {
  if (control->trace != nullptr) {
    trace_.emplace(control->trace);
  } else if (config.load.rate > 0) {
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
  if (trace_.has_value()) {
    RunTrace();
  } else if (open_.has_value()) {
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
    turn_ = turn_ + 1 < lanes_.size() ? turn_ + 1 : 0;
    if (lanes_[turn_]->has_room()) return lanes_[turn_].get();
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
  int64_t gap = kWaitSlice / std::chrono::nanoseconds(1);
  if (more) {
    const int64_t due_ticks = open_->begin_ticks + clock_.TicksOf(open_->schedule.due());
    gap = std::min(gap, static_cast<int64_t>(clock_.Nanos(clock_.Now(), due_ticks)));
  }
  PassGap(gap, active);
}

// `gap`: nanoseconds until something is to be submitted.
void Worker::PassGap(int64_t gap, bool active) {
  constexpr int64_t kSleepMargin = 2'000'000;
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
  if (trace_.has_value()) {
    trace_->outcome = {};
    trace_->due = 0;
    trace_->late_most = 0;
  }
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
  if (scheduled_) tally.response.Record(clock_.Nanos(times.due, ended));
}

// It counts as its own kind, too, and as an operation only once: in the kind that it is a part of.
// Not so in a trace, which has reads of its own, of which the hit rate is made.
void Worker::RecordPart(OpKind kind, const Times& whole, const Times& part, int64_t ended,
                        const absl::Status& status) {
  if (whole.due < begin_ticks_ || trace_.has_value()) return;
  parts_.store(parts_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (status.ok()) {
    RecordSuccess(kind, part, ended);
  } else {
    RecordFailure(kind, part, status);
    part_errors_.store(part_errors() + 1, std::memory_order_relaxed);
  }
}

void Worker::MakeValue(std::string_view key, uint64_t size, uint32_t field, std::string_view old,
                       std::vector<char>* value) {
  if (field == Operation::kAllFields) {
    values_.Fill(key, stamp_++, size, value);
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
  if (trace_.has_value()) {
    TraceOutcome outcome = trace_->outcome;
    outcome.reads = tallies_[Index(OpKind::kRead)].latency.count();
    result.trace->outcome.Add(outcome);
    if (scheduled_) {
      OpenLoopResult& open = *result.open_loop;
      open.due += trace_->due;
      open.late_most = std::max(open.late_most, static_cast<double>(trace_->late_most) * 1e-9);
    }
  }
  result.parts += parts();
  result.part_errors += part_errors();
  result.counters += CountersNow() - counters_at_begin_;
  if (result.first_error.empty()) result.first_error = first_error_;
  if (result.lost.empty()) result.lost = lost_;
}

}  // namespace verbena::bench
