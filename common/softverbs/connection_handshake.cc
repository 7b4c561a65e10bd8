// The handshake of ConnectionManager: connect, accept, reject, disconnect, and the peer's messages.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/softverbs/connection_manager.h"
#include "common/softverbs/port.h"

namespace verbena::softverbs {
namespace {

// How long a request may wait for room in the listener's queue, and between tries.
constexpr int64_t kConnectNanos = 5'000'000'000;
constexpr int64_t kConnectRetryNanos = 5'000'000;
// How long a socket may say nothing after it has connected.
constexpr int64_t kRequestLimitNanos = 5'000'000'000;
// How long a request may stay unanswered.
constexpr int64_t kReplyNanos = 30'000'000'000;

using State = CmId::State;

uint8_t Depth(uint8_t wanted) {
  return std::min<uint8_t>(wanted, kMaxRdAtomic);  // 0xff: as many as the device can
}

void CopyPrivateData(const rdma_conn_param* param, CmBody* body) {
  if (param == nullptr || param->private_data == nullptr) return;
  std::memcpy(body->data.data(), param->private_data, param->private_data_len);
  body->data_length = param->private_data_len;
}

// What librdmacm takes for a missing parameter block.
rdma_conn_param OrDefault(const rdma_conn_param* param) {
  if (param != nullptr) return *param;
  rdma_conn_param all{};
  all.responder_resources = RDMA_MAX_RESP_RES;
  all.initiator_depth = RDMA_MAX_INIT_DEPTH;
  all.retry_count = 7;
  all.rnr_retry_count = 7;
  return all;
}

bool CanConnect(QueuePair* qp) { return qp != nullptr && qp->current_state() == IBV_QPS_INIT; }

}  // namespace

void ConnectionManager::FillQp(CmMessage* message, QueuePair* qp, int segment_fd) {
  Device& device = Device::Existing();
  CmBody& body = message->body;
  body.process = device.id();
  body.qp_num = qp->qp_num;
  body.pd = qp->pd_id();
  body.recv_cq = qp->rcq()->number();
  body.recv_slot = qp->recv_slot();
  body.send_cq = qp->scq()->number();
  body.send_slot = qp->send_slot();
  body.has_srq = qp->srq != nullptr ? 1 : 0;
  message->AddFd(device.notify_fd());
  message->AddFd(device.regions().table_fd());
  message->AddFd(device.kick_fd());
  if (segment_fd >= 0) message->AddFd(segment_fd);
  if (CompletionChannel* channel = qp->rcq()->comp_channel(); channel != nullptr) {
    body.recv_channel = channel->id();
    message->AddFd(channel->ShareFd());
  }
  if (CompletionChannel* channel = qp->scq()->comp_channel(); channel != nullptr) {
    body.send_channel = channel->id();
    message->AddFd(channel->ShareFd());
  }
}

void ConnectionManager::AnnounceMemories(Link* link, uint32_t pd) {
  link->local_pd.store(pd);
  Device::Existing().regions().ForEachMemory(
      pd, [&](uint64_t memory, int fd) { link->Announce(memory, fd); });
}

// --- The active end. ---

int ConnectionManager::Connect(CmId* id, const rdma_conn_param* given) {
  const std::lock_guard lock(mutex_);
  if (id->state != State::kRouteResolved || !CanConnect(id->queue_pair())) return EINVAL;
  const rdma_conn_param param = OrDefault(given);
  if (param.private_data_len > kConnectData) return EINVAL;
  id->connecting = CmMessage(CmKind::kRequest);
  CmBody& body = id->connecting.body;
  CopyPrivateData(given, &body);
  std::memcpy(&body.source, &id->route.addr.src_storage, sizeof(body.source));
  std::memcpy(&body.target, &id->route.addr.dst_storage, sizeof(body.target));
  body.responder_resources = Depth(param.responder_resources);
  body.initiator_depth = Depth(param.initiator_depth);
  body.flow_control = param.flow_control;
  body.retry_count = param.retry_count & 7;
  body.rnr_retry_count = param.rnr_retry_count & 7;
  id->attributes = {};
  id->attributes.retry_cnt = body.retry_count;
  id->attributes.timeout = id->ack_timeout;
  id->state = State::kConnecting;
  const int error = StartConnecting(id);
  if (error == EAGAIN) {
    RetryConnecting(id->serial, MonotonicNanos() + kConnectNanos);
    return 0;
  }
  return error;
}

// 0, EAGAIN if the listener's queue is full, or an errno for the caller of connect.
int ConnectionManager::StartConnecting(CmId* id) {
  UniqueFd socket;
  const int error = CmConnect(NetAddress(&id->route.addr.dst_addr), &socket);
  if (error == ECONNREFUSED) {
    id->state = State::kFailed;
    Raise(id, RDMA_CM_EVENT_REJECTED, kRejectNobodyListens);
    return 0;
  }
  if (error != 0) return error;
  auto link = std::make_shared<Link>(this, 0, std::move(socket));
  if (const absl::Status made = link->CreateSegment(); !made.ok()) {
    return errno == EMFILE || errno == ENFILE ? errno : ENOMEM;
  }
  id->link = link;
  id_of_link_[link.get()] = id->serial;
  FillQp(&id->connecting, id->queue_pair(), link->segment_fd());
  if (const int error_of_fds = id->connecting.fd_error; error_of_fds != 0) {
    CloseLink(id);
    return error_of_fds;
  }
  if (!link->Send(id->connecting) || !link->Watch()) {
    CloseLink(id);
    id->state = State::kFailed;
    Raise(id, RDMA_CM_EVENT_UNREACHABLE, -ECONNRESET);
    return 0;
  }
  id->connecting = CmMessage();
  AnnounceMemories(link.get(), id->queue_pair()->pd_id());
  Device::Existing().service().RunAt(MonotonicNanos() + kReplyNanos, [this, serial = id->serial] {
    const std::lock_guard lock(mutex_);
    CmId* late = FindId(serial);
    if (late == nullptr || late->state != State::kConnecting) return;
    CloseLink(late);
    late->state = State::kFailed;
    Raise(late, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
  });
  return 0;
}

void ConnectionManager::RetryConnecting(uint64_t serial, int64_t deadline) {
  Device::Existing().service().RunAt(MonotonicNanos() + kConnectRetryNanos, [=, this] {
    const std::lock_guard lock(mutex_);
    CmId* id = FindId(serial);
    if (id == nullptr || id->state != State::kConnecting || id->link != nullptr) return;
    if (!CanConnect(id->queue_pair())) return;
    const int error = StartConnecting(id);
    if (error == 0) return;
    if (error == EAGAIN && MonotonicNanos() < deadline) {
      RetryConnecting(serial, deadline);
      return;
    }
    id->state = State::kFailed;
    Raise(id, RDMA_CM_EVENT_UNREACHABLE, error == EAGAIN ? -ETIMEDOUT : -error);
  });
}

void ConnectionManager::HandleReply(CmId* id, CmMessage message) {
  if (id->state != State::kConnecting) return;
  QueuePair* qp = id->queue_pair();
  const absl::Status status =
      CanConnect(qp) ? id->link->SetRemote(&message) : absl::FailedPreconditionError("no QP");
  if (!status.ok()) {
    LogError("softverbs: connection not established: ", status.ToString());
    CloseLink(id);
    id->state = State::kFailed;
    Raise(id, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL);
    return;
  }
  const CmBody& body = message.body;
  ibv_qp_attr& attr = id->attributes;
  // The reply's depths have been cut to what the request offered.
  attr.max_rd_atomic = Depth(body.responder_resources);
  attr.max_dest_rd_atomic = Depth(body.initiator_depth);
  attr.rnr_retry = body.rnr_retry_count;
  attr.dest_qp_num = body.qp_num;
  attr.path_mtu = IBV_MTU_4096;
  attr.ah_attr = PathTo(id->route.addr.addr.ibaddr.dgid, id->type_of_service);
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (attr.max_dest_rd_atomic > 0) {
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  }
  qp->Establish(id->link, attr);
  id->state = State::kConnected;
  id->link->Send(CmMessage(CmKind::kReady));
  RaiseWithParameters(id, RDMA_CM_EVENT_ESTABLISHED, body, kAcceptData);
}

void ConnectionManager::HandleReject(CmId* id, const CmMessage& message) {
  if (id->state != State::kConnecting) return;
  id->state = State::kFailed;
  CloseLink(id);
  RaiseWithParameters(id, RDMA_CM_EVENT_REJECTED, message.body, kRejectData);
  id->cm_channel()->queue.back()->status = static_cast<int>(message.body.reason);
}

// --- The passive end. ---

void ConnectionManager::AcceptSockets(uint64_t listener_serial) {
  const std::lock_guard lock(mutex_);
  CmId* listener = FindId(listener_serial);
  if (listener == nullptr || listener->state != State::kListening) return;
  if (!spare_fd_.valid()) spare_fd_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (;;) {
    UniqueFd socket(
        accept4(listener->listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if ((errno != EMFILE && errno != ENFILE) || !RefuseForWantOfDescriptors(*listener)) return;
      continue;
    }
    auto link = std::make_shared<Link>(this, 1, std::move(socket));
    incoming_[link.get()] = {link, listener_serial};
    if (!link->Watch()) {
      incoming_.erase(link.get());
      continue;
    }
    Device::Existing().service().RunAt(
        MonotonicNanos() + kRequestLimitNanos,
        [this, silent = std::weak_ptr<Link>(link)] { DropSilent(silent.lock()); });
  }
}

// No descriptor is left for a socket that waits: the spare one is given up for it, so that the peer
// is refused at once and the listener does not stay readable for ever. False if that failed too.
bool ConnectionManager::RefuseForWantOfDescriptors(const CmId& listener) {
  spare_fd_.Reset();
  const UniqueFd refused(accept4(listener.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool accepted = refused.valid();
  if (accepted) CmRefuse(refused.get());
  if (accepted && !out_of_descriptors_) {
    LogError("softverbs: no file descriptor is left for another connection (ulimit -n)");
  }
  out_of_descriptors_ = true;
  return accepted;
}

// Who has connected and asked for nothing has had its time.
void ConnectionManager::DropSilent(const std::shared_ptr<Link>& link) {
  const std::lock_guard lock(mutex_);
  if (link == nullptr || incoming_.erase(link.get()) == 0) return;
  link->Close();
}

void ConnectionManager::HandleRequest(CmId* listener, std::shared_ptr<Link> link,
                                      CmMessage message) {
  CmId* id = NewId(listener->cm_channel(), listener->context, listener->ps);
  id->state = State::kRequested;
  id->verbs = DeviceContext();
  id->port_num = 1;
  SetAddress(id, true, NetAddress(reinterpret_cast<const sockaddr*>(&message.body.target)));
  SetAddress(id, false, NetAddress(reinterpret_cast<const sockaddr*>(&message.body.source)));
  id_of_link_[link.get()] = id->serial;
  id->link = std::move(link);
  RaiseWithParameters(id, RDMA_CM_EVENT_CONNECT_REQUEST, message.body, kConnectData);
  id->cm_channel()->queue.back()->listen_id = listener;
  id->request = std::move(message);
}

int ConnectionManager::Accept(CmId* id, const rdma_conn_param* given) {
  const std::lock_guard lock(mutex_);
  QueuePair* qp = id->queue_pair();
  if (id->state != State::kRequested || !CanConnect(qp)) return EINVAL;
  const rdma_conn_param param = OrDefault(given);
  if (param.private_data_len > kAcceptData) return EINVAL;
  CmMessage& request = id->request;
  const bool has_segment = request.fds.size() > 3;
  absl::Status status = has_segment ? id->link->AdoptSegment(std::move(request.fds[3]))
                                    : absl::InvalidArgumentError("a request without segment");
  if (status.ok()) {
    request.fds.erase(request.fds.begin() + 3);
    status = id->link->SetRemote(&request);
  }
  if (!status.ok()) {
    LogError("softverbs: connection not accepted: ", status.ToString());
    return EINVAL;
  }
  CmMessage reply(CmKind::kReply);
  CopyPrivateData(given, &reply.body);
  ibv_qp_attr attr{};
  attr.max_rd_atomic = std::min(Depth(param.initiator_depth), request.body.responder_resources);
  attr.max_dest_rd_atomic =
      std::min(Depth(param.responder_resources), request.body.initiator_depth);
  attr.rnr_retry = request.body.rnr_retry_count;
  attr.retry_cnt = request.body.retry_count;
  attr.timeout = id->ack_timeout;
  attr.dest_qp_num = request.body.qp_num;
  attr.path_mtu = IBV_MTU_4096;
  attr.ah_attr = PathTo(id->route.addr.addr.ibaddr.dgid, id->type_of_service);
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (attr.max_dest_rd_atomic > 0) {
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  }
  reply.body.initiator_depth = attr.max_rd_atomic;
  reply.body.responder_resources = attr.max_dest_rd_atomic;
  reply.body.flow_control = param.flow_control;
  reply.body.rnr_retry_count = param.rnr_retry_count & 7;
  FillQp(&reply, qp, -1);
  if (reply.fd_error != 0) return reply.fd_error;
  qp->Establish(id->link, attr);
  // Announced before the reply, so that the first READ finds the memory known.
  AnnounceMemories(id->link.get(), qp->pd_id());
  id->request = CmMessage();
  id->state = State::kAccepted;
  if (!id->link->Send(reply)) {
    // The active end is gone; its death is reported as any other.
    PeerDied(id);
  }
  return 0;
}

int ConnectionManager::Reject(CmId* id, const void* data, uint8_t length) {
  const std::lock_guard lock(mutex_);
  if (id->state != State::kRequested || length > kRejectData) return EINVAL;
  CmMessage reject(CmKind::kReject);
  reject.body.reason = kRejectByConsumer;
  if (data != nullptr) {
    std::memcpy(reject.body.data.data(), data, length);
    reject.body.data_length = length;
  }
  id->link->Send(reject);
  CloseLink(id);
  id->request = CmMessage();
  id->state = State::kFailed;
  return 0;
}

// --- The end. ---

int ConnectionManager::Disconnect(CmId* id) {
  const std::lock_guard lock(mutex_);
  switch (id->state) {
    case State::kConnected:
    case State::kAccepted:
      break;
    case State::kDisconnecting:
    case State::kDisconnected:
      if (id->qp != nullptr) id->queue_pair()->EnterError();
      return 0;
    default:
      return EINVAL;
  }
  if (id->qp != nullptr) id->queue_pair()->EnterError();
  id->state = State::kDisconnecting;
  if (!id->link->Send(CmMessage(CmKind::kDisconnect))) Disconnected(id);
  return 0;
}

void ConnectionManager::Disconnected(CmId* id) {
  id->state = State::kDisconnected;
  CloseLink(id);
  Raise(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

// As on the wire, the QP of the end that did not ask stays as it is until its application acts; its
// next operation finds the other end in ERR.
void ConnectionManager::HandleDisconnect(CmId* id) {
  id->link->Send(CmMessage(CmKind::kDisconnected));
  if (id->state == State::kConnected || id->state == State::kAccepted ||
      id->state == State::kDisconnecting) {
    Disconnected(id);
  }
}

void ConnectionManager::PeerDied(CmId* id) {
  switch (id->state) {
    case State::kConnecting:
      id->state = State::kFailed;
      Raise(id, RDMA_CM_EVENT_UNREACHABLE, id->link->out_of_descriptors() ? -EMFILE : -ETIMEDOUT);
      CloseLink(id);
      return;
    case State::kConnected:
    case State::kAccepted:
    case State::kDisconnecting:
      break;
    default:
      return;  // kRequested: accept will find out
  }
  if (QueuePair* qp = id->queue_pair(); qp != nullptr) {
    qp->EnterError();
    for (CompletionQueue* cq : {qp->rcq(), qp->scq()}) {
      if (cq->comp_channel() != nullptr) cq->comp_channel()->ResignalFired();
    }
  }
  Disconnected(id);
}

void ConnectionManager::OnLinkMessage(Link* link, CmMessage message) {
  const std::lock_guard lock(mutex_);
  if (const auto it = incoming_.find(link); it != incoming_.end()) {
    auto [owned, listener_serial] = std::move(it->second);
    incoming_.erase(it);
    CmId* listener = FindId(listener_serial);
    if (listener == nullptr || message.body.kind != CmKind::kRequest) {
      owned->Close();
      return;
    }
    HandleRequest(listener, std::move(owned), std::move(message));
    return;
  }
  const auto it = id_of_link_.find(link);
  CmId* id = it == id_of_link_.end() ? nullptr : FindId(it->second);
  if (id == nullptr) return;
  switch (message.body.kind) {
    case CmKind::kReply:
      HandleReply(id, std::move(message));
      break;
    case CmKind::kReject:
      HandleReject(id, message);
      break;
    case CmKind::kReady:
      if (id->state != State::kAccepted) break;
      id->state = State::kConnected;
      Raise(id, RDMA_CM_EVENT_ESTABLISHED, 0);
      break;
    case CmKind::kDisconnect:
      HandleDisconnect(id);
      break;
    case CmKind::kMemoryGone:
      // The link has let go of it. A key's tag is cleared before its memory is withdrawn.
      if (id->qp != nullptr) id->queue_pair()->DropStaleTranslations();
      break;
    case CmKind::kDisconnected:
      if (id->state == State::kDisconnecting) Disconnected(id);
      break;
    default:
      break;
  }
}

void ConnectionManager::OnLinkClosed(Link* link) {
  const std::lock_guard lock(mutex_);
  incoming_.erase(link);
  const auto it = id_of_link_.find(link);
  CmId* id = it == id_of_link_.end() ? nullptr : FindId(it->second);
  if (id != nullptr) PeerDied(id);
}

}  // namespace verbena::softverbs
