// Messages, waiting, deadlines, and the end of a connection.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/causes.h"
#include "client/src/connection_impl.h"
#include "client/src/ticks.h"
#include "common/base/clock.h"
#include "common/layout/region_header.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena {
namespace {

using client::RequestKind;
using client::WrId;

// How often the connection manager is asked whether the server is gone (a system call).
constexpr int64_t kEventInterval = 10'000'000;
// Polls in vain between two looks at the clock while a call waits.
constexpr uint32_t kPollsPerLook = 32;
// How long something is in flight before the server is looked for, and again.
constexpr int64_t kQuietTime = 1'000'000'000;

// A request that is flushed is only a consequence, and this one is the first that has failed. So
// the connection has ended; the connection manager may know how.
absl::Status WhyFlushed(client::Endpoint& endpoint) {
  absl::Status why = endpoint.CheckEvents();
  if (!why.ok()) return why;
  return absl::UnavailableError(
      absl::StrCat("the connection to the server at ", endpoint.server(),
                   " has ended: see whether the server runs, and what its log says"));
}

}  // namespace

Connection::Impl::~Impl() {
  Close();
  Bury();
}

// In a callback the verbs objects but the queue pair stay until the call that runs it ends, since
// that one still uses them; the operations end now, with their callbacks.
void Connection::Impl::Close() {
  if (forked_) return;
  const bool nested = in_callback_;
  if (!nested && dead_.ok()) ReportLastTouches();
  if (dead_.ok()) cancelled_ = true;
  Fail(absl::CancelledError("the connection was closed"));
  reconnector_.Cancel();
  FailOperations();
  dead_ = absl::FailedPreconditionError("the connection was closed");
  in_callback_ = nested;
  if (!nested) Bury();
}

void Connection::Impl::FlushRequests() {
  if (!up_) return;  // a callback has closed the connection
  absl::Status status = requests_.Flush();
  if (!status.ok()) Lose(std::move(status));
}

// Anything but a READ that has succeeded.
void Connection::Impl::OnOtherCompletion(const ibv_wc& wc) {
  const WrId id(wc.wr_id);
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    if (up_) Lose(WhyFlushed(*endpoint_));
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) {
    Lose(verbs::WcError(wc,
                        absl::StrCat(id.kind == RequestKind::kRead || id.kind == RequestKind::kLook
                                         ? "a READ of the region of"
                                         : "a request to",
                                     " the server at ", endpoint_->server())));
    return;
  }
  if (id.kind == RequestKind::kLook) OnLooked();
  if (id.kind == RequestKind::kRead) {
    Lose(absl::InternalError("a READ has completed that nobody waits for"));
  }
  if (id.kind == RequestKind::kSend) endpoint_->Retire(Endpoint::SendNumber(id));
  if (id.kind == RequestKind::kReceive && id.ref.slot < endpoint_->receives()) {
    OnReceive(id.ref.slot, wc.byte_len);
  }
}

void Connection::Impl::OnReceive(uint32_t buffer, uint32_t length) {
  absl::Status status =
      length > Endpoint::kMessageBytes
          ? absl::InternalError("a message is longer than its buffer")
          : requests_.OnMessage(endpoint_->received(buffer, length),
                                [this](uint32_t slot, const wire::Result& result) {
                                  // A callback may have closed the connection.
                                  if (!dead_.ok()) return;
                                  if (slot == release_slot()) {
                                    OnReleased();
                                  } else {
                                    OnResult(pool_.At(slot), result);
                                  }
                                });
  if (!status.ok()) {
    Lose(absl::InternalError(
        absl::StrCat("the server's message makes no sense: ", status.message())));
    return;
  }
  if (!up_) return;  // a callback has closed the connection
  const int error = endpoint_->PostReceive(buffer);
  if (error != 0) Lose(verbs::ErrnoStatus(error, "ibv_post_recv", {}));
}

int Connection::Impl::Wait(std::chrono::nanoseconds timeout) {
  // In the child of a fork what is in flight is the parent's, and never ends.
  if (in_callback_ || forked_) return 0;
  const uint64_t before = callbacks_;
  const int64_t deadline = DeadlineAfter(timeout.count());
  Spin spin;
  while (pool_.used() != 0 && Turn(spin, deadline) && callbacks_ == before) {
  }
  return static_cast<int>(callbacks_ - before);
}

void Connection::Impl::Drain() {
  if (in_callback_ || forked_) return;
  Spin spin;
  while (pool_.used() != 0 && !forked_) Turn(spin, INT64_MAX);
}

bool Connection::Impl::Turn(Spin& spin, int64_t deadline) {
  const uint64_t callbacks = callbacks_;
  const uint32_t used = pool_.used();
  // What the caller waits for may end without a completion: its time is over, or no answer to it
  // can come any more. Then there may be nothing left to be woken by.
  if (PollOnce() != 0 || !dead_.ok() || callbacks_ != callbacks || pool_.used() != used) {
    spin = {};
    return true;
  }
  const int64_t poll_ns = std::chrono::nanoseconds(options_.poll_time).count();
  if (++spin.empty_polls % kPollsPerLook != 0 && poll_ns > 0) return true;
  const int64_t now = MonotonicNanos();
  if (now >= deadline) return false;
  if (spin.sleep_at == 0) spin.sleep_at = now + poll_ns;
  if (now >= spin.sleep_at) {
    SleepUntil(deadline);
    spin = {};
  }
  return true;
}

// Arm, poll once more, sleep: a completion between the last poll and the arming is not missed.
void Connection::Impl::SleepUntil(int64_t deadline) {
  if (!up_) {
    SleepWithout(deadline);
    return;
  }
  absl::Status status = endpoint_->Arm();
  if (!status.ok()) {
    Lose(std::move(status));
    return;
  }
  if (PollOnce() != 0 || !up_) return;
  last_scan_ = 0;
  Maintain(MonotonicNanos());
  if (!up_) return;
  if (endpoint_->Sleep(*waiter_, std::min(deadline, NextTime()))) last_events_ = 0;
  last_scan_ = 0;
  Maintain(MonotonicNanos());
}

void Connection::Impl::Maintain(int64_t now) {
  last_look_ = client::CheapTicks();
  if (!dead_.ok()) return;
  if (up_ && now - last_events_ >= kEventInterval) {
    last_events_ = now;
    absl::Status status = endpoint_->CheckEvents();
    if (!status.ok()) Lose(std::move(status));
  }
  if (now - last_scan_ >= scan_interval_ns_) {
    last_scan_ = now;
    if (pool_.used() != 0) ScanDeadlines(now);
  }
}

// Reports of reads have no deadline: they are hints, and READs go on without their answers.
void Connection::Impl::ScanDeadlines(int64_t now) {
  bool late = false;
  int64_t allowed = 0;
  int64_t oldest = INT64_MAX;
  int64_t shortest = timeout_ns_;
  pool_.ForEach([&](Operation& op) {
    if (op.kind == client::OperationKind::kTouch) return;
    if (op.first_seen == 0) op.first_seen = now;
    shortest = std::min(shortest, TimeFor(op));
    oldest = std::min(oldest, op.first_seen);
    op.late = now - op.first_seen >= TimeFor(op);
    if (op.late) allowed = TimeFor(op);
    late = late || op.late;
  });
  // One short time-out makes scans frequent only as long as it lasts.
  scan_interval_ns_ = ScanIntervalFor(shortest);
  if (up_ && oldest != INT64_MAX) {
    next_server_look_ = std::max(oldest, last_server_look_) + kQuietTime;
    if (now >= next_server_look_) LookForServer(now);
  }
  // Answers may lie in the completion queue while this process did not run (SIGSTOP, a paused
  // virtual machine): they are taken before a second look decides.
  if (!late || !std::exchange(late_before_, late)) {
    late_before_ = late;
    return;
  }
  // An adapter may still write to the memory of one that is late, so the connection ends with it.
  Lose(absl::DeadlineExceededError(absl::StrCat("no answer from the server at ",
                                                endpoint_->server(), " within ", InMillis(allowed),
                                                " ms: ", client::kWhyLate)));
  late_ = true;
}

// Whether the server is still there. One that was killed may say nothing (its host sends one
// message, which can be lost), and whoever waits for an answer has nothing under way that could
// fail: so its epoch is READ, which costs it no CPU, and fails if nobody acknowledges it. READs
// that are in flight already do the same. A frozen server passes; deadlines are for that.
void Connection::Impl::LookForServer(int64_t now) {
  last_server_look_ = now;
  next_server_look_ = now + kQuietTime;
  if (reads_in_flight_ != 0) return;
  // No operation READs into the sink of the place for releases.
  ibv_sge sge{.addr = verbs::AddressOf(endpoint_->sink(release_slot())->block.data()),
              .length = sizeof(uint64_t),
              .lkey = lkey_};
  ibv_send_wr request =
      verbs::MakeRead(WrId(RequestKind::kLook, {}).bits(), &sge,
                      region_address_ + offsetof(layout::RegionHeader, epoch), region_rkey());
  ++reads_in_flight_;
  ++stats_.reads;
  ++stats_.doorbells;
  stats_.bytes_read += sge.length;
  ibv_send_wr* bad = nullptr;
  const int error = verbs::PostSend(endpoint_->qp(), &request, &bad);
  if (error != 0) Lose(verbs::ErrnoStatus(error, "ibv_post_send", "a READ of the server's epoch"));
}

void Connection::Impl::OnLooked() {
  assert(reads_in_flight_ > 0);
  --reads_in_flight_;
  uint64_t epoch;
  std::memcpy(&epoch, endpoint_->sink(release_slot())->block.data(), sizeof(epoch));
  if (epoch == context_->shape.epoch) return;
  Lose(absl::UnavailableError(
      absl::StrCat("the server at ", endpoint_->server(), " has restarted: it has another epoch")));
}

int64_t Connection::Impl::EarliestDeadline() {
  int64_t earliest = INT64_MAX;
  pool_.ForEach([&](Operation& op) {
    if (op.first_seen != 0) earliest = std::min(earliest, op.first_seen + TimeFor(op));
  });
  return earliest;
}

void Connection::Impl::Bury() {
  if (forked_) return;  // a callback has forked
  reconnector_.Cancel();
  if (pool_.used() != 0) FailOperations();
  StopWatching();
  // Nothing is used any more. A device cannot be removed as long as somebody holds objects of it.
  endpoint_->ReleaseQueues();
  large_buffers_.Clear();
  registrations_->Unregister();
  endpoint_->ReleaseDevice();
}

absl::Status Connection::Impl::StatusFor(const Operation& op) const {
  if (cancelled_) return absl::CancelledError("the connection was closed");
  if (op.late || !absl::IsDeadlineExceeded(dead_)) return dead_;
  return absl::UnavailableError(
      absl::StrCat("the connection ended with another operation's failure: ", dead_.message()));
}

// Callbacks may give back memory that READs land in, or that the server READs from: so the queue
// pair goes first. The completion queue stays, since a poll of it may be under way.
void Connection::Impl::FailOperations() {
  endpoint_->ReleaseQueuePair();
  starts_.Clear();
  reads_.Clear();
  space_waiters_.Clear();
  reads_in_flight_ = 0;
  MarkAsked();
  pool_.ForEach([this](Operation& op) {
    if (!forked_) FinishWithError(op, WithOutcome(op, StatusFor(op)));
  });
}

}  // namespace verbena
