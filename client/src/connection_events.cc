// A connection within an event loop of the caller's: one descriptor, and what has to be done before
// the loop waits on it.
#include <utility>

#include "client/src/connection_impl.h"
#include "common/base/clock.h"

namespace verbena {
namespace {

// Rounds of polling after which the loop gets its turn, although there is more to be done.
constexpr int kMostRounds = 16;

}  // namespace

// It must not happen that something has come and the descriptor does not say so. Completions: the
// queue is armed and then polled once more; if that finds something, all over again. Operations
// that a callback has submitted leave with the next poll, so the last poll has run no callback.
// News of the connection manager and wake-ups are watched as long as they are there. Deadlines: the
// timer is set when all operations have been seen.
int Connection::Impl::PollAndArm() {
  if (in_callback_ || forked_) return 0;
  const uint64_t before = callbacks_;
  const client::Waiter::Ready ready = waiter_->Check();
  if (ready.completions) endpoint_->TakeCompletionEvent();
  if (ready.events) last_events_ = 0;
  last_scan_ = 0;
  Maintain(MonotonicNanos());
  bool armed = false;
  bool quiet = false;
  for (int round = 0; round < kMostRounds && !quiet && dead_.ok(); ++round) {
    const uint64_t callbacks = callbacks_;
    const bool was_up = up_;
    const bool busy = PollOnce() != 0 || callbacks_ != callbacks || up_ != was_up;
    if (busy) {
      armed = false;
    } else if (!std::exchange(armed, true)) {
      if (!up_) continue;
      if (absl::Status status = endpoint_->Arm(); !status.ok()) Lose(std::move(status));
    } else {
      quiet = true;
    }
  }
  last_scan_ = 0;
  Maintain(MonotonicNanos());
  if (!dead_.ok()) {
    PollOnce();
  } else if (quiet && (up_ || prepared_)) {
    waiter_->WakeAt(NextTime());
  } else {
    waiter_->Wake();
  }
  return static_cast<int>(callbacks_ - before);
}

}  // namespace verbena
