// Lost connections: making another, and going on with what was in flight.
//
// A connection is lost (Lose) when a completion or the connection manager says so, or when an
// operation is late: then its queue pair is moved to ERR, since an adapter may still write to the
// operation's memory. Once the queues are destroyed nothing does any more, and what was in flight
// is ready to begin again (PrepareAgain):
//   GETs             from their beginning, when there is a connection again
//   requests         stay in the request queue and are sent again, in their order and under their
//                    sequence numbers; the server, which has kept the answers of the session's
//                    changes, makes each once
//   pins, reports    are dropped: the server lets go of the ones with the connection, and nobody
//                    waits for the others
// If the server does not know the session any more (it has restarted, or the client was away for
// too long), nobody can say what became of changes that were sent and not answered: they fail, with
// an outcome that is unknown. Those that were never sent, and reads, go on.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/causes.h"
#include "client/src/connection_impl.h"
#include "common/base/clock.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena {

using client::OperationPool;
using client::TakeStage;

bool Connection::Impl::IsGetting(const Operation& op) {
  return op.kind == OperationKind::kGet || op.kind == OperationKind::kGetInto ||
         op.kind == OperationKind::kScanGet ||
         (op.kind == OperationKind::kTake && op.take_stage == TakeStage::kGetting);
}

bool Connection::Impl::IsChange(const Operation& op) {
  switch (op.kind) {
    case OperationKind::kPut:
    case OperationKind::kDelete:
    case OperationKind::kAdd:
    case OperationKind::kAppend:
    case OperationKind::kExpire:
      return true;
    case OperationKind::kTake:
      return op.take_stage != TakeStage::kGetting;
    default:
      return false;
  }
}

absl::Status Connection::Impl::WithOutcome(const Operation& op, const absl::Status& status) {
  return op.sent && IsChange(op) ? client::WithOutcomeUnknown(status) : status;
}

void Connection::Impl::Lose(absl::Status why) {
  if (!up_) return;
  up_ = false;
  prepared_ = false;
  // A verb that fails on a broken connection may do so with any errno; none of them is about what
  // the caller has asked for.
  const bool kept =
      !verbs::ErrnoOf(why).has_value() &&
      (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) || absl::IsCancelled(why) ||
       absl::IsInternal(why) || absl::IsFailedPrecondition(why));
  loss_ = kept ? client::ForUsers(std::move(why)) : absl::UnavailableError(why.message());
  attempt_failure_ = absl::OkStatus();
  // A defect would only be met again.
  const bool final = absl::IsInternal(loss_) || absl::IsFailedPrecondition(loss_);
  if (!options_.reconnect || final) {
    dead_ = loss_;
  }
  endpoint_->Break();
}

void Connection::Impl::Fail(absl::Status why) {
  if (!dead_.ok()) return;
  Lose(why);
  dead_ = client::ForUsers(std::move(why));
}

void Connection::Impl::Recover() {
  if (forked_) return;
  if (dead_.ok()) {
    if (!prepared_) PrepareAgain();
    if (std::exchange(late_, false)) FailLate();
  }
  // A callback may have closed the connection.
  if (dead_.ok()) TryAgain();
  if (!dead_.ok()) Bury();
}

// Which operations wait for a request's answer.
void Connection::Impl::MarkAsked() {
  pool_.ForEach([](Operation& op) { op.asked = op.sent = false; });
  requests_.ForEach([this](uint32_t slot, bool sent) {
    if (slot == release_slot()) return;
    pool_.At(slot).asked = true;
    pool_.At(slot).sent = sent;
  });
}

// Whatever waits to be READ. Values that wait for a buffer to be put from stay.
void Connection::Impl::DropQueuedReads() {
  starts_.Clear();
  reads_.Clear();
  space_waiters_.RemoveIf([](const Operation* op) { return op->kind != OperationKind::kPut; });
  pool_.ForEach([](Operation& op) { op.read_queued = false; });
}

void Connection::Impl::PrepareAgain() {
  prepared_ = true;
  StopWatching();
  endpoint_->ReleaseQueues();
  requests_.Unsend();
  ForgetServersSide();
  MarkAsked();
  DropQueuedReads();
  reads_in_flight_ = 0;
  pool_.ForEach([this](Operation& op) {
    if (IsGetting(op) && op.space != nullptr) DropSpace(op);
  });
  large_buffers_.Unregister();
  registrations_->Unregister();
  endpoint_->ReleaseDevice();
  if (stats().gets + stats_.changes != finished_before_) back_off_.Reset();
  next_attempt_ = MonotonicNanos() + back_off_.Next();
}

// What the server keeps for a connection, and what nobody waits for.
void Connection::Impl::ForgetServersSide() {
  requests_.Remove(release_slot());
  releases_.clear();
  release_sent_ = false;
  release_due_ = false;
  pool_.ForEach([](Operation& op) { op.pin = 0; });
  if (Operation* const report = pool_.extra(); report != nullptr) {
    requests_.Remove(report->slot);
    FinishWithError(*report, loss_);
  }
  // While it connects, a connection that is lost is the end of it.
  pool_.ForEach([this](Operation& op) {
    if (op.kind == OperationKind::kRawRead) FinishWithError(op, loss_);
  });
}

void Connection::Impl::TryAgain() {
  const int64_t now = MonotonicNanos();
  if (!reconnector_.running()) {
    if (now < next_attempt_) return;
    const absl::Status started =
        reconnector_.Start(now + std::chrono::nanoseconds(options_.connect_timeout).count());
    if (!started.ok()) OnAttemptFailed(started);
    return;
  }
  std::optional<absl::StatusOr<client::Connected>> outcome = reconnector_.Take();
  if (!outcome.has_value()) return;
  if (outcome->ok()) {
    Resume(**std::move(outcome));
  } else {
    OnAttemptFailed(outcome->status());
  }
}

void Connection::Impl::OnAttemptFailed(const absl::Status& status) {
  attempt_failure_ = client::ForUsers(status);
  next_attempt_ = MonotonicNanos() + back_off_.Next();
  if (!client::IsFinal(status)) return;
  dead_ = attempt_failure_;
}

void Connection::Impl::Resume(client::Connected connected) {
  const client::Greeting& greeting = connected.greeting;
  // What waits was made for messages of the size before.
  if (greeting.max_message < requests_.max_message()) {
    OnAttemptFailed(client::Final(absl::FailedPreconditionError(absl::StrCat(
        "the server at ", endpoint_->server(), " takes messages of ", greeting.max_message,
        " bytes now, and took ", requests_.max_message(), " before: connect anew"))));
    return;
  }
  absl::Status ready = connected.endpoint->WatchedBy(*waiter_);
  if (ready.ok()) ready = large_buffers_.Register(*connected.endpoint);
  if (ready.ok()) ready = registrations_->Register(*connected.endpoint);
  if (!ready.ok()) {
    StopWatching();
    large_buffers_.Unregister();
    registrations_->Unregister();
    OnAttemptFailed(ready);
    return;
  }
  MarkAsked();
  std::vector<verbs::SlotRef> unknown;
  absl::Status why;
  // The session under which they were sent. It is not enough that the server knew one: a hello
  // whose welcome was lost, or that came to nothing above, may have made it anew.
  const bool resumed =
      greeting.welcome.incarnation == incarnation_ && greeting.shape.epoch == context_->shape.epoch;
  if (!resumed) {
    why = absl::UnavailableError(
        greeting.shape.epoch != context_->shape.epoch
            ? absl::StrCat("the server at ", endpoint_->server(), " has restarted (epoch ",
                           absl::Hex(greeting.shape.epoch, absl::kZeroPad16), " after ",
                           absl::Hex(context_->shape.epoch, absl::kZeroPad16),
                           ") before it answered")
            : absl::StrCat("the server at ", endpoint_->server(),
                           " does not know this client any more: it was away for longer than the "
                           "server's --session_linger, or others came instead"));
    GiveUpUnknownChanges(&unknown);
  }
  std::vector<verbs::SlotRef> unusable;
  TakeOutUnusable(&unusable);
  requests_.MoveTo(*connected.endpoint,
                   [this](uint32_t slot) { return ReferenceTo(pool_.At(slot)); });
  endpoint_ = std::move(connected.endpoint);
  TakeGreeting(greeting);
  up_ = true;
  last_events_ = 0;
  finished_before_ = stats().gets + stats_.changes;
  ++stats_.reconnects;
  RestartGets();
  space_freed_ = true;
  // Last, since callbacks run here, and may submit more.
  for (const verbs::SlotRef& ref : unknown) {
    Operation* const op = pool_.Find(ref);
    if (op != nullptr) FinishWithError(*op, client::WithOutcomeUnknown(why));
  }
  for (const verbs::SlotRef& ref : unusable) {
    Operation* const op = pool_.Find(ref);
    if (op != nullptr) FinishWithError(*op, WithOutcome(*op, MemoryUsable(*op)));
  }
}

// Takes changes that were sent out of the request queue.
void Connection::Impl::GiveUpUnknownChanges(std::vector<verbs::SlotRef>* unknown) {
  pool_.ForEach([&](Operation& op) {
    if (!op.asked || !op.sent || !IsChange(op)) return;
    requests_.Remove(op.slot);
    unknown->push_back(OperationPool::RefOf(op));
  });
}

// GETs that do not wait for the server's answer, from the beginning: nothing that was read counts.
void Connection::Impl::RestartGets() {
  DropQueuedReads();
  // Those first: a lookup may end at once, and its callback submit another one, which begins by
  // itself.
  std::vector<verbs::SlotRef> again;
  pool_.ForEach([&again](Operation& op) {
    if (IsGetting(op) && !op.asked) again.push_back(OperationPool::RefOf(op));
  });
  for (const verbs::SlotRef& ref : again) {
    Operation* const op = pool_.Find(ref);
    if (op == nullptr) continue;  // a callback has closed the connection
    if (op->kind == OperationKind::kGetInto) {
      StartGetInto(*op);
    } else {
      StartTakenGet(*op);
    }
  }
}

// Operations whose deadline has passed. What is left of them is taken out of every queue first.
void Connection::Impl::FailLate() {
  MarkAsked();
  std::vector<verbs::SlotRef> late;
  pool_.ForEach([&](Operation& op) {
    if (!op.late) return;
    if (op.asked) requests_.Remove(op.slot);
    if (op.sync != nullptr && op.sync->group != nullptr) op.sync->group->late = true;
    late.push_back(OperationPool::RefOf(op));
  });
  const auto is_late = [](const Operation* op) { return op->late; };
  starts_.RemoveIf(is_late);
  reads_.RemoveIf(is_late);
  space_waiters_.RemoveIf(is_late);
  for (const verbs::SlotRef& ref : late) {
    Operation* const op = pool_.Find(ref);
    if (op != nullptr) FinishWithError(*op, WithOutcome(*op, LateStatus(*op)));
  }
}

absl::Status Connection::Impl::LateStatus(const Operation& op) const {
  std::string text = absl::StrCat("no answer from the server at ", endpoint_->server(), " within ",
                                  InMillis(TimeFor(op)), " ms: ");
  if (absl::IsDeadlineExceeded(loss_)) {
    text += client::kWhyLate;
  } else {
    absl::StrAppend(&text, "the connection was lost (", loss_.message(), ")");
  }
  if (!attempt_failure_.ok()) {
    absl::StrAppend(&text, ", and another connection could not be made (",
                    attempt_failure_.message(), ")");
  }
  return absl::DeadlineExceededError(text);
}

// Until there is news of the next connection, or it is time for something.
void Connection::Impl::SleepWithout(int64_t deadline) {
  last_scan_ = 0;
  Maintain(MonotonicNanos());
  const uint64_t callbacks = callbacks_;
  const uint32_t used = pool_.used();
  Recover();
  // What the caller waits for may have ended here.
  if (up_ || !dead_.ok() || callbacks_ != callbacks || pool_.used() != used) return;
  waiter_->Wait(std::min(deadline, NextTime()));
  last_scan_ = 0;
  Maintain(MonotonicNanos());
}

// Without a connection the next attempt has its time, if somebody waits for it.
int64_t Connection::Impl::NextTime() {
  const int64_t deadline = EarliestDeadline();
  if (up_ && pool_.used() != 0) return std::min(deadline, next_server_look_);
  const bool attempt = !up_ && dead_.ok() && pool_.used() != 0 && !reconnector_.running();
  return attempt ? std::min(deadline, next_attempt_) : deadline;
}

void Connection::Impl::StopWatching() {
  using Source = client::Waiter::Source;
  for (const Source source : {Source::kCompletions, Source::kEvents}) {
    waiter_->Watch(source, -1).IgnoreError();  // taking one out does not fail
  }
}

// Everything here belongs to the parent, which goes on with it. Only what says so is touched.
void Connection::Impl::OnForkInChild() {
  forked_ = true;
  up_ = false;
  dead_ = client::ForkedError("connection", dialling_.api->fabric());
  registrations_->Abandon();
  large_buffers_.Abandon();
  reconnector_.Abandon();
#ifndef NDEBUG
  // The call of a thread that is not here never ends.
  if (user_ != pthread_self()) {
    user_ = 0;
    calls_ = 0;
  }
#endif
}

}  // namespace verbena
