// Acceptor: clients that come and go.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/verbs/accept.h"
#include "server/net/acceptor.h"

namespace verbena::net {
namespace {

// Answers to changes fit: a response of one or two results. (siw gives 80 bytes at most.)
constexpr uint32_t kInlineWanted = 80;

}  // namespace

void Acceptor::OnConnectRequest(verbs::CmEvent event) {
  const std::span<const uint8_t> data = event.private_data();
  const std::vector<uint8_t> copy(data.begin(), data.end());
  const rdma_conn_param offered = event.param();
  verbs::CmId id = event.TakeRequest();
  event.Ack();
  const absl::StatusOr<wire::ConnectData> hello = wire::DecodeConnect(copy);
  if (!hello.ok()) {
    Reject(id, wire::RejectReason::kMalformed,
           absl::StrCat("not a Verbena client: ", hello.status().message()));
    return;
  }
  if (hello->protocol != wire::kProtocolVersion) {
    Reject(id, wire::RejectReason::kOtherProtocol,
           absl::StrCat("the server speaks protocol version ", wire::kProtocolVersion,
                        ", the client version ", hello->protocol));
    return;
  }
  if (draining_) {
    Reject(id, wire::RejectReason::kDraining, "the server is stopping");
    return;
  }
  if (hello->tenant != wire::TenantId("default")) {
    Reject(id, wire::RejectReason::kUnknownTenant,
           "the server has no such tenant (only 'default')");
    return;
  }
  Admit(std::move(id), *hello, offered);
}

QueueSet* Acceptor::ChooseQueues(Adapter& adapter) {
  QueueSet* best = nullptr;
  for (const Worker* worker : workers_) {
    QueueSet& queues = adapter.queues(worker->index());
    if (queues.connections >= adapter.plan().connections_per_worker) continue;
    if (best == nullptr || queues.connections < best->connections) best = &queues;
  }
  return best;
}

void Acceptor::Admit(verbs::CmId id, const wire::ConnectData& hello,
                     const rdma_conn_param& offered) {
  Adapter* adapter = FindAdapter(id);
  if (adapter == nullptr) {
    // The connection manager's library opens a device anew when it has lost sight of it while
    // others came or went. What is registered belongs to the old opening.
    absl::StatusOr<Adapter*> made = AdapterFor(id);
    if (!made.ok()) {
      Reject(id, wire::RejectReason::kResources, std::string(made.status().message()));
      return;
    }
    adapter = *made;
    LogWarn("device ", adapter->name(), " has been opened anew by the connection manager");
  }
  if (!admission_->TryEnter()) {
    RefuseFull(id, hello,
               absl::StrCat("the server has all of its ", admission_->limit(),
                            " connections (--max_connections)"));
    return;
  }
  QueueSet* const queues = ChooseQueues(*adapter);
  if (queues == nullptr) {
    admission_->Leave();
    RefuseFull(id, hello,
               absl::StrCat("all workers have the ", adapter->plan().connections_per_worker,
                            " connections that their queues allow (--srq_depth, --workers)"));
    return;
  }
  rdma_cm_id* const raw = id.get();
  absl::StatusOr<std::unique_ptr<Connection>> made =
      MakeConnection(std::move(id), *adapter, *queues, hello);
  if (!made.ok()) {
    admission_->Leave();
    if (log_.Allow()) {
      LogError("cannot make a connection: ", made.status().message());
    }
    return;
  }
  Connection* const connection = made->get();
  raw->context = connection;
  connections_.emplace(connection, *std::move(made));
  ++queues->connections;
  adapter->counters().connections.Add();

  verbs::ConnectOptions wanted = connect_;
  wanted.initiator_depth = kReadsInFlight;
  wanted.responder_resources = 0xff;
  connection->parameters =
      verbs::LimitToRequest(verbs::LimitToDevice(wanted, adapter->attributes()), offered);
  connection->reads_allowed = connection->parameters.initiator_depth;
  connection->read_window = ReadWindow(connect_.ack_timeout);
  connection->worker->Post({WorkerMail::Kind::kAdopt, connection});
}

// The worker is ready for its first message, so it may come.
void Acceptor::Accept(Connection& connection) {
  // The connection manager would let answers wait for 2 s before it repeats a lost one.
  if (const absl::Status status =
          verbs::ApplyBeforeConnect(connection.cm_id, connection.parameters);
      !status.ok()) {
    LogDebug("connection ", connection.id, ": ", status.message());
  }
  wire::AcceptData answer;
  answer.layout = slice_.layout_version;
  const auto data = wire::Encode(answer);
  // A second wall: the connection manager gives queue pairs rights to write, which nobody needs
  // here. (The first wall is that nothing is registered for it.)
  const absl::Status accepted = verbs::Accept(connection.cm_id, connection.qp,
                                              connection.parameters, IBV_ACCESS_REMOTE_READ, data);
  if (!accepted.ok()) {
    if (log_.Allow()) {
      LogWarn("connection ", connection.id, " from ", connection.peer, ": ", accepted.message());
    }
    connection.accepted = true;
    Reject(connection.cm_id, wire::RejectReason::kResources, std::string(accepted.message()));
    connection.worker->Post({WorkerMail::Kind::kPeerLeft, &connection});
    return;
  }
  connection.accepted = true;
  connection.ready = true;
  counters_.accepted.Add();
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug("connection ", connection.id, " from ", connection.peer, ", worker ",
             connection.queues->worker, ", ",
             verbs::DescribeConnection(connection.cm_id, connection.qp));
  }
}

// On an error the id has been rejected and nothing is left.
absl::StatusOr<std::unique_ptr<Connection>> Acceptor::MakeConnection(
    verbs::CmId id, Adapter& adapter, QueueSet& queues, const wire::ConnectData& hello) {
  const QueuePlan& plan = adapter.plan();
  absl::StatusOr<SendQueue*> send_queue = adapter.ReserveSendQueue(queues);
  if (!send_queue.ok()) {
    Reject(id, wire::RejectReason::kResources, std::string(send_queue.status().message()));
    return send_queue.status();
  }
  verbs::QueuePairOptions wanted = {.send_cq = (*send_queue)->queue.cq.get(),
                                    .recv_cq = queues.receive_cq.cq.get(),
                                    .srq = queues.receives->srq(),
                                    .max_send_wr = plan.send_depth,
                                    .max_recv_wr = plan.receive_depth,
                                    .max_inline_data = kInlineWanted};
  absl::StatusOr<verbs::QueuePair> qp = verbs::QueuePair::CreateOn(id, adapter.pd(), wanted);
  if (!qp.ok()) {
    // Some devices take less inline data than asked for as an error.
    wanted.max_inline_data = 0;
    qp = verbs::QueuePair::CreateOn(id, adapter.pd(), wanted);
  }
  if (!qp.ok()) {
    --(*send_queue)->connections;
    Reject(id, wire::RejectReason::kResources, std::string(qp.status().message()));
    return qp.status();
  }
  auto connection = std::make_unique<Connection>(plan.send_depth);
  connection->id = next_id_++;
  connection->peer = id.peer_address().ToString();
  connection->session_id = hello.session;
  connection->queues = &queues;
  connection->send_queue = *send_queue;
  connection->worker = workers_[static_cast<size_t>(queues.worker)];
  connection->acceptor = &mailbox_;
  connection->max_inline = qp->cap().max_inline_data;
  connection->raw_qp = qp->get();
  connection->qp_number = qp->number();
  connection->credits = ConnectionCredits(plan.window);
  connection->cm_id = std::move(id);
  connection->qp = *std::move(qp);
  return connection;
}

// A client that comes back for its session has given up the connection that it had, which may be
// one of those that fill the server: then there is room for it when it tries again. But not at
// once: attempts beside each other fill it as well, and the one that has been greeted is in use.
void Acceptor::RefuseFull(verbs::CmId& id, const wire::ConnectData& hello,
                          const std::string& text) {
  Reject(id, wire::RejectReason::kConnectionLimit, text);
  sessions_->Supersede(hello.session);
}

void Acceptor::Reject(verbs::CmId& id, wire::RejectReason reason, const std::string& text) {
  counters_.rejected[std::min(static_cast<size_t>(reason), kRejectReasons - 1)].Add();
  if (log_.Allow()) LogInfo("refused ", id.peer_address().ToString(), ": ", text);
  wire::RejectData data;
  data.layout = slice_.layout_version;
  data.reason = reason;
  data.text = text;
  if (const absl::Status status = id.Reject(wire::Encode(data)); !status.ok()) {
    LogDebug(status.message());
  }
}

void Acceptor::Disconnect(Connection& connection) {
  if (!connection.disconnecting) {
    connection.disconnecting = true;
    if (!connection.accepted && connection.reason != CloseReason::kPeerLeft) {
      Reject(connection.cm_id,
             connection.reason == CloseReason::kStopping ? wire::RejectReason::kDraining
                                                         : wire::RejectReason::kResources,
             connection.detail);
    }
    // Only the disconnect flushes the queues on some drivers, only the QP's state on others.
    if (const absl::Status status = connection.cm_id.Disconnect(); !status.ok()) {
      LogDebug("connection ", connection.id, ": ", status.message());
    }
    if (const absl::Status status = connection.qp.ToError(); !status.ok()) {
      LogDebug("connection ", connection.id, ": ", status.message());
    }
  }
  connection.worker->Post({WorkerMail::Kind::kErrored, &connection});
}

void Acceptor::Destroy(Connection* connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  connection->qp = verbs::QueuePair();
  // An id that cannot be destroyed may still have events.
  connection->cm_id.get()->context = nullptr;
  connection->cm_id = verbs::CmId();
  --connection->send_queue->connections;
  --connection->queues->connections;
  Adapter& adapter = *connection->queues->adapter;
  adapter.counters().connections.Subtract();
  Worker* const worker = connection->worker;
  // The worker deletes it.
  [[maybe_unused]] Connection* const released = found->second.release();
  connections_.erase(found);
  worker->Post({WorkerMail::Kind::kGone, connection});
  admission_->Leave();
  ContinueRemoval(adapter);
}

}  // namespace verbena::net
