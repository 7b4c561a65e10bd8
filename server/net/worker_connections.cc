// Worker: a connection from its adoption to its end.
#include <algorithm>
#include <string>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "server/net/worker.h"

namespace verbena::net {
namespace {

// How long to wait for the flushed requests of a QP in ERR, and for the news that it takes no more
// shared receives: some drivers never complete the former, some never tell the latter.
constexpr int64_t kFlushLimit = 200'000'000;

}  // namespace

// Keeps a receive for everything that clients may send.
void Worker::PostWhatIsGranted(Connection& connection) {
  QueueSet& queues = *connection.queues;
  queues.receives->SetGranted(*connection.receives, queues.receives->srq() != nullptr
                                                        ? queues.adopted + queues.credits.lent()
                                                        : connection.credits.grant());
}

void Worker::Adopt(Connection* connection) {
  QueueSet& queues = *connection->queues;
  const std::optional<verbs::SlotRef> slot = connections_.Acquire();
  counters_.connections.Add();
  counters_.connections_opened.Add();
  connection->receives = queues.receives->Attach(&connection->own_receives, connection->raw_qp);
  if (!slot.has_value()) {  // the acceptor keeps to the same limit
    LogError("worker ", options_.index, ": no slot for connection ", connection->id);
    connection->slot = {UINT32_MAX, 0};
    ++queues.adopted;
    Close(*connection, CloseReason::kTransportError, "no slot");
    return;
  }
  connection->slot = *slot;
  *connections_.Find(*slot) = connection;
  queues.by_qp[connection->qp_number] = connection;
  if (!connection->send_queue->adopted) {
    connection->send_queue->adopted = true;
    queues.polled.push_back(connection->send_queue);
  }
  connection->heard = connection->probed = connection->progressed = tick_;
  ++queues.adopted;
  PostWhatIsGranted(*connection);
  FlushAll();
  if (connection->state != ConnectionState::kOpen) return;  // no receives could be posted
  connection->acceptor->Post({AcceptorMail::Kind::kAdopted, connection});
  if (draining_) TryFinish(*connection);
}

// The worker posts nothing more and holds no receive buffers for it. Response buffers and the
// memory that READs write to stay taken until the QP is destroyed.
void Worker::Close(Connection& connection, CloseReason reason, std::string_view detail) {
  if (connection.state != ConnectionState::kOpen) return;
  connection.state = ConnectionState::kClosing;
  connection.reason = reason;
  connection.detail = std::string(detail);
  counters_.closed[static_cast<size_t>(reason)].Add();
  if (reason == CloseReason::kPeerLeft || reason == CloseReason::kDeviceRemoved ||
      reason == CloseReason::kStopping || reason == CloseReason::kSuperseded) {
    LogDebug("connection ", connection.id, " from ", connection.peer, ": ", ToAbsl(detail));
  } else if (log_.Allow()) {
    LogWarn("connection ", connection.id, " from ", connection.peer,
            " is closed: ", ToAbsl(detail));
  }
  ReceiveQueue& receives = *connection.queues->receives;
  receives.Detach(*connection.receives);
  if (connection.request.active) {
    receives.Return(connection.request.arrived.receive);
    connection.request.active = false;
    if (connection.request.buffer != kNoBuffer) {
      connection.queues->responses.Release(connection.request.buffer);
      connection.request.buffer = kNoBuffer;
    }
  }
  while (connection.has_waiting()) {
    receives.Return(connection.waiting[connection.waiting_head++].receive);
  }
  connection.starved = false;
  std::erase(starved_, &connection);
  std::erase(piece_turns_, &connection);
  DropPins(connection);
  if (connection.transfer.waits_for_piece) connection.queues->staging.StopWaiting(connection);
  connection.acceptor->Post({AcceptorMail::Kind::kDisconnect, &connection});
}

// The queue pair is in ERR, and Close has dropped what had arrived: nothing of this connection is
// done any more, so the session may go to the client's next one.
void Worker::Flushed(Connection& connection) {
  sessions_.Leave(connection);
  connection.state = ConnectionState::kFlushing;
  connection.flush_deadline = MonotonicNanos() + kFlushLimit;
  flushing_.push_back(&connection);
}

// Whether a QP in ERR may still complete a shared receive that it had begun to fill. An adapter may
// write that completion after the QP has changed its state, and what is not polled before the QP is
// destroyed is lost, together with the buffer that it names; so adapters tell when it was the last
// one. Where the queues go as well, nothing is to be saved.
bool Worker::AwaitsLastReceive(const Connection& connection) {
  const QueueSet& queues = *connection.queues;
  return queues.receives->srq() != nullptr && connection.ready && !connection.last_receive &&
         queues.last_receive != LastReceive::kNever &&
         connection.reason != CloseReason::kDeviceRemoved &&
         connection.reason != CloseReason::kStopping;
}

void Worker::CheckFlushing() {
  int64_t now = 0;
  for (size_t i = 0; i < flushing_.size();) {
    Connection& connection = *flushing_[i];
    const bool receiving = AwaitsLastReceive(connection);
    // Nothing tells whether an unsignalled request has left or is yet to be flushed.
    if (receiving || connection.ledger.signalled() > 0) {
      if (now == 0) now = MonotonicNanos();
      if (now < connection.flush_deadline) {
        ++i;
        continue;
      }
      LastReceive& told = connection.queues->last_receive;
      if (receiving && told == LastReceive::kUnknown) told = LastReceive::kNever;
    }
    flushing_[i] = flushing_.back();
    flushing_.pop_back();
    Release(connection);
  }
}

void Worker::Release(Connection& connection) {
  QueueSet& queues = *connection.queues;
  // A QP in ERR consumes no more receives; what it has consumed is in the CQ (AwaitsLastReceive),
  // and must be taken from there first, since destroying the QP may remove it.
  while (PollReceives(queues)) {
  }
  queues.by_qp.erase(connection.qp_number);
  queues.last = nullptr;
  connection.state = ConnectionState::kReleased;
  FlushAll();
  connection.acceptor->Post({AcceptorMail::Kind::kDestroy, &connection});
}

// Nothing of the device refers to the connection any more.
void Worker::Forget(std::unique_ptr<Connection> connection) {
  sends_due_ -= connection->ledger.signalled();
  connection->ledger.RetireAll([&](uint32_t buffer) { ReleaseBuffer(*connection, buffer); });
  connection->credits.Close(connection->queues->credits);
  --connection->queues->adopted;
  connection->queues->receives->Reclaim(*connection->receives);
  PostWhatIsGranted(*connection);
  connection->transfer.pending.reset();
  ReleaseStaged(*connection);
  connections_.Release(connection->slot);
  counters_.connections.Subtract();
}

void Worker::DrainAll() {
  connections_.ForEach([this](verbs::SlotRef, Connection* connection) { TryFinish(*connection); });
}

// While draining: closes a connection whose requests are all answered and whose answers have left.
void Worker::TryFinish(Connection& connection) {
  if (connection.state != ConnectionState::kOpen || connection.request.active ||
      connection.has_waiting()) {
    return;
  }
  if (connection.ledger.outstanding() > 0) {
    // Unsignalled answers may or may not have left; a signalled message behind them tells.
    const bool can_ask = connection.greeted && connection.spare_receives > 0;
    if (connection.ledger.signalled() == 0 && can_ask) SendUnasked(connection, /*signal=*/true);
    if (connection.ledger.signalled() > 0) return;
  }
  Close(connection, CloseReason::kStopping, "the server stops");
}

}  // namespace verbena::net
