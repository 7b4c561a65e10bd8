// The part of a worker that replays a trace.
#include <algorithm>

#include "bench/load/lane.h"
#include "bench/load/worker.h"
#include "common/base/clock.h"

namespace verbena::bench {

void Worker::RunTrace() {
  if (control_->measuring.load(std::memory_order_relaxed)) {
    BeginMeasuring();
    // Without a warm-up all requests count, those too that were due before this thread had a turn.
    begin_ticks_ = 0;
  }
  for (auto& lane : lanes_) lane->StartIdle();
  int64_t drain_until = 0;
  for (;;) {
    SubmitRequests();
    bool active = false;
    for (auto& lane : lanes_) {
      lane->Progress(std::chrono::nanoseconds(0));
      active |= lane->active();
    }
    if (trace_->over && !active) break;
    if (control_->stop.load(std::memory_order_relaxed)) GiveUpLate(&drain_until);
    if (!active && !trace_->over && trace_->requests.empty()) {
      trace_->reader->Await(kWaitSlice);
    } else {
      PassGap(GapToRequest(), active);
    }
  }
}

// Submits what is due of the trace, as far as it is there and slots are free.
void Worker::SubmitRequests() {
  Replay& trace = *trace_;
  if (!measuring_ && control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  while (!trace.over) {
    if (control_->stop.load(std::memory_order_relaxed)) return EndOfTrace(/*stopped=*/true);
    if (trace.requests.empty()) {
      const TraceReader::Taken taken = trace.reader->Take(&trace.requests);
      if (taken == TraceReader::Taken::kNothingYet) return;
      if (taken == TraceReader::Taken::kOver) return EndOfTrace(/*stopped=*/false);
    }
    const int64_t now = clock_.Now();
    const int64_t due = scheduled_ ? DueTicks() : 0;
    if (due > now) return;
    Lane* const lane = LaneWithRoom();
    if (lane == nullptr) return;
    if (scheduled_ && due >= begin_ticks_) {
      ++trace.due;
      trace.last_due_ticks = due;
      trace.late_most = std::max(trace.late_most, static_cast<int64_t>(clock_.Nanos(due, now)));
    }
    lane->SubmitRequest(&trace.requests.front(), due);
    trace.requests.Pop();
  }
}

// When the next request, which is there, is due.
int64_t Worker::DueTicks() {
  return trace_->requests.begin_ticks() + clock_.TicksOf(trace_->requests.front().due_nanos);
}

// Nanoseconds until a request may be submitted, if no operation ends before.
int64_t Worker::GapToRequest() {
  constexpr int64_t kSlice = kWaitSlice / std::chrono::nanoseconds(1);
  if (trace_->over) return kSlice;
  if (trace_->requests.empty()) return 0;
  const auto gap =
      scheduled_ ? static_cast<int64_t>(clock_.Nanos(clock_.Now(), DueTicks())) : int64_t{0};
  if (gap > 0) return std::min(gap, kSlice);
  const bool room =
      std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->has_room(); });
  return room ? 0 : kSlice;
}

// `stopped`: before it was over. What was due by then and was not submitted is missed.
void Worker::EndOfTrace(bool stopped) {
  trace_->over = true;
  const int64_t now = clock_.Now();
  int64_t end = stopped ? now : trace_->last_due_ticks;
  if (stopped && !trace_->requests.empty()) end = std::min(end, DueTicks());
  trace_->reader->GiveBack(trace_->requests);
  schedule_end_nanos_ = MonotonicNanos() - static_cast<int64_t>(clock_.Nanos(end, now));
}

// Whether a request of a trace has found what makes it end here, without a failure.
bool Worker::CameToNothing(OpKind kind, const Times& times, const absl::Status& status) {
  if (!trace_.has_value() || !(absl::IsNotFound(status) || absl::IsAlreadyExists(status))) {
    return false;
  }
  if (times.due < begin_ticks_) return true;
  TraceOutcome& outcome = trace_->outcome;
  switch (kind) {
    case OpKind::kRead:
      ++outcome.misses;
      break;
    case OpKind::kUpdate:
    case OpKind::kInsert:
      ++outcome.not_stored;
      break;
    default:
      ++outcome.not_found;
  }
  return true;
}

}  // namespace verbena::bench
