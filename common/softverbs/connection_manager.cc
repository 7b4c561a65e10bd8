#include "common/softverbs/connection_manager.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/clock.h"

namespace verbena::softverbs {
namespace {

// IB CM reject reasons, as rdma_cm reports them.
constexpr int kRejectNobodyListens = 8;
constexpr int kRejectByConsumer = 28;
// How long a request may wait for room in the listener's queue, and between tries.
constexpr int64_t kConnectNanos = 5'000'000'000;
constexpr int64_t kConnectRetryNanos = 5'000'000;
// How long a request may stay unanswered.
constexpr int64_t kReplyNanos = 30'000'000'000;

using State = CmId::State;

uint8_t Depth(uint8_t wanted) {
  return std::min<uint8_t>(wanted, kMaxRdAtomic);  // 0xff: as many as the device can
}

void FillGid(const NetAddress& address, ibv_gid* gid) {
  *gid = {};
  if (address.family() == AF_INET6) {
    std::memcpy(gid->raw, &reinterpret_cast<const sockaddr_in6*>(address.addr())->sin6_addr, 16);
  } else {
    gid->raw[10] = gid->raw[11] = 0xff;
    std::memcpy(gid->raw + 12, &reinterpret_cast<const sockaddr_in*>(address.addr())->sin_addr, 4);
  }
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

class ConnectionManager::ListenHandler : public EpollHandler {
 public:
  explicit ListenHandler(uint64_t serial) : serial_(serial) {}
  void OnEvents(uint32_t) override { Get().AcceptSockets(serial_); }

 private:
  uint64_t serial_;
};

ConnectionManager& ConnectionManager::Get() {
  static auto& manager = *new ConnectionManager();
  return manager;
}

// --- Channels and events. ---

CmChannel* ConnectionManager::CreateChannel() {
  EventCounter counter = EventCounter::Create();
  if (!counter.valid()) return nullptr;
  auto* channel = new CmChannel();
  channel->counter = std::move(counter);
  channel->fd = channel->counter.fd();
  return channel;
}

void ConnectionManager::DestroyChannel(CmChannel* channel) { delete channel; }

CmEvent* ConnectionManager::Raise(CmId* id, rdma_cm_event_type type, int status) {
  auto event = std::make_unique<CmEvent>();
  event->id = id;
  event->listen_id = nullptr;
  event->event = type;
  event->status = status;
  event->param = {};
  event->data = {};
  CmEvent* raised = event.get();
  id->cm_channel()->queue.push_back(std::move(event));
  id->cm_channel()->counter.Signal();
  return raised;
}

void ConnectionManager::RaiseWithParameters(CmId* id, rdma_cm_event_type type, const CmBody& body,
                                            size_t length) {
  CmEvent* event = Raise(id, type, 0);
  rdma_conn_param& param = event->param.conn;
  std::copy(body.data.begin(), body.data.end(), event->data.begin());
  // The length delivered is the transport's, the surplus is zero.
  param.private_data = event->data.data();
  param.private_data_len = static_cast<uint8_t>(length);
  // Swapped: seen from this end.
  param.responder_resources = body.initiator_depth;
  param.initiator_depth = body.responder_resources;
  param.flow_control = body.flow_control;
  param.retry_count = body.retry_count;
  param.rnr_retry_count = body.rnr_retry_count;
  param.srq = body.has_srq;
  param.qp_num = body.qp_num;
}

int ConnectionManager::GetEvent(CmChannel* channel, rdma_cm_event** event) {
  for (;;) {
    if (channel->counter.Take() != 0) return errno;
    const std::lock_guard lock(mutex_);
    if (channel->queue.empty()) continue;
    CmEvent* taken = channel->queue.front().release();
    channel->queue.pop_front();
    static_cast<CmId*>(taken->id)->unacknowledged++;
    if (taken->listen_id != nullptr) static_cast<CmId*>(taken->listen_id)->unacknowledged++;
    *event = taken;
    return 0;
  }
}

int ConnectionManager::AckEvent(CmEvent* event) {
  const std::lock_guard lock(mutex_);
  static_cast<CmId*>(event->id)->unacknowledged--;
  if (event->listen_id != nullptr) static_cast<CmId*>(event->listen_id)->unacknowledged--;
  acknowledged_.notify_all();
  delete event;
  return 0;
}

// Forgets events of an id that nobody has collected. Connection requests that a listener leaves
// behind are given to the caller to destroy.
void ConnectionManager::DropEvents(CmId* id, std::vector<CmId*>* orphans) {
  CmChannel* channel = id->cm_channel();
  const auto dropped = std::erase_if(channel->queue, [&](const auto& event) {
    if (event->listen_id == id) orphans->push_back(static_cast<CmId*>(event->id));
    return event->id == id || event->listen_id == id;
  });
  for (size_t i = 0; i < dropped; ++i) channel->counter.Discard();
}

// --- Ids. ---

Context* ConnectionManager::DeviceContext() {
  if (context_ == nullptr) context_ = Context::Open(Device::Existing().abi());
  return context_;
}

CmId* ConnectionManager::NewId(CmChannel* channel, void* context, rdma_port_space space) {
  auto* id = new CmId();
  static_cast<rdma_cm_id&>(*id) = {};
  id->channel = channel;
  id->context = context;
  id->ps = space;
  id->qp_type = IBV_QPT_RC;
  id->serial = next_serial_++;
  ids_[id->serial] = id;
  return id;
}

CmId* ConnectionManager::FindId(uint64_t serial) {
  const auto it = ids_.find(serial);
  return it == ids_.end() ? nullptr : it->second;
}

int ConnectionManager::CreateId(CmChannel* channel, rdma_cm_id** id, void* context,
                                rdma_port_space space) {
  // Synchronous ids (no channel) are not offered.
  if (channel == nullptr || (space != RDMA_PS_TCP && space != RDMA_PS_IB)) return EINVAL;
  const std::lock_guard lock(mutex_);
  *id = NewId(channel, context, space);
  return 0;
}

void ConnectionManager::CloseLink(CmId* id) {
  if (id->link == nullptr) return;
  id_of_link_.erase(id->link.get());
  id->link->Close();
  id->link.reset();
}

int ConnectionManager::DestroyId(CmId* id) {
  std::vector<CmId*> orphans;
  {
    std::unique_lock lock(mutex_);
    acknowledged_.wait(lock, [&] { return id->unacknowledged == 0; });
    DropEvents(id, &orphans);
    if (id->listener.valid()) {
      LinkRegistry::RememberSocket(id->listener.get(), false);
      if (id->listener_token != 0)
        Device::Existing().service().Remove(id->listener_token, id->listener.get());
      std::erase_if(incoming_, [&](auto& entry) {
        if (entry.second.second != id->serial) return false;
        entry.second.first->Close();
        return true;
      });
    }
    if (id->link != nullptr && id->state == State::kRequested) {
      CmMessage reject(CmKind::kReject);
      reject.body.reason = kRejectByConsumer;
      id->link->Send(reject);
    } else if (id->link != nullptr &&
               (id->state == State::kConnected || id->state == State::kAccepted)) {
      id->link->Send(CmMessage(CmKind::kDisconnect));
    }
    CloseLink(id);
    if (id->qp != nullptr) id_of_qp_.erase(id->queue_pair());
    ids_.erase(id->serial);
  }
  for (CmId* orphan : orphans) DestroyId(orphan);
  delete id;
  return 0;
}

void ConnectionManager::SetAddress(CmId* id, bool source, const NetAddress& address) {
  rdma_addr& route = id->route.addr;
  std::memcpy(source ? &route.src_storage : &route.dst_storage, address.addr(), address.length());
  FillGid(address, source ? &route.addr.ibaddr.sgid : &route.addr.ibaddr.dgid);
  route.addr.ibaddr.pkey = 0xffff;
}

int ConnectionManager::BindAddr(CmId* id, const sockaddr* address) {
  const std::lock_guard lock(mutex_);
  if (id->state != State::kIdle) return EINVAL;
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return EAFNOSUPPORT;
  NetAddress local(address);
  if (const int error = CmListener::Bind(&local, &id->listener); error != 0) return error;
  LinkRegistry::RememberSocket(id->listener.get(), true);
  SetAddress(id, true, local);
  // As with rdma_cm, a wildcard is not yet a device.
  if (!local.IsWildcard()) {
    id->verbs = DeviceContext();
    id->port_num = 1;
  }
  id->state = State::kBound;
  return 0;
}

int ConnectionManager::Listen(CmId* id, int backlog) {
  const std::lock_guard lock(mutex_);
  if (id->state == State::kIdle) {
    NetAddress any;
    any.addr()->sa_family = AF_INET;
    if (const int error = CmListener::Bind(&any, &id->listener); error != 0) return error;
    LinkRegistry::RememberSocket(id->listener.get(), true);
    SetAddress(id, true, any);
  } else if (id->state != State::kBound) {
    return EINVAL;
  }
  // The service thread takes sockets off at once; the kernel's queue only has to hold a burst.
  if (listen(id->listener.get(), std::max(backlog, SOMAXCONN)) != 0) return errno;
  id->listener_token = Device::Existing().service().Add(
      id->listener.get(), EPOLLIN, std::make_shared<ListenHandler>(id->serial));
  if (id->listener_token == 0) return ENOMEM;
  id->state = State::kListening;
  return 0;
}

int ConnectionManager::ResolveAddr(CmId* id, const sockaddr* source, const sockaddr* target) {
  const std::lock_guard lock(mutex_);
  if (id->state != State::kIdle && id->state != State::kBound) return EINVAL;
  if (target->sa_family != AF_INET && target->sa_family != AF_INET6) return EAFNOSUPPORT;
  NetAddress to(target);
  if (to.IsWildcard()) {
    if (to.family() == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(to.addr())->sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in*>(to.addr())->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
  }
  if (!to.IsLocal()) {
    // This device reaches its own host only.
    Raise(id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
    return 0;
  }
  NetAddress from = to;
  if (source != nullptr) {
    from = NetAddress(source);
    if (!from.IsLocal()) return EADDRNOTAVAIL;
  }
  // An ephemeral port of a space of our own; nothing listens on it.
  if (source == nullptr || from.port() == 0) {
    from.set_port(static_cast<uint16_t>(32768 + id->serial % 28232));
  }
  SetAddress(id, true, from);
  SetAddress(id, false, to);
  id->verbs = DeviceContext();
  id->port_num = 1;
  id->state = State::kAddressResolved;
  Raise(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  return 0;
}

int ConnectionManager::ResolveRoute(CmId* id) {
  const std::lock_guard lock(mutex_);
  if (id->state != State::kAddressResolved) return EINVAL;
  id->state = State::kRouteResolved;
  Raise(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  return 0;
}

int ConnectionManager::SetOption(CmId* id, int level, int name, const void* value, size_t length) {
  const std::lock_guard lock(mutex_);
  if (level != RDMA_OPTION_ID) return ENOSYS;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      return length == 1 ? 0 : EINVAL;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      return length == sizeof(int) && id->state == State::kIdle ? 0 : EINVAL;
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      if (length != 1) return EINVAL;
      const uint8_t timeout = *static_cast<const uint8_t*>(value);
      if (timeout > 31) return EINVAL;
      id->ack_timeout = timeout;
      return 0;
    }
    default:
      return ENOSYS;
  }
}

int ConnectionManager::MigrateId(CmId* id, CmChannel* channel) {
  std::unique_lock lock(mutex_);
  CmChannel* old = id->cm_channel();
  if (old == channel) return 0;
  acknowledged_.wait(lock, [&] { return id->unacknowledged == 0; });
  id->channel = channel;
  // Events that wait move along, in order.
  std::deque<std::unique_ptr<CmEvent>> staying;
  for (auto& event : old->queue) {
    if (event->id != id && event->listen_id != id) {
      staying.push_back(std::move(event));
      continue;
    }
    static_cast<CmId*>(event->id)->channel = channel;
    channel->queue.push_back(std::move(event));
    channel->counter.Signal();
    old->counter.Discard();
  }
  old->queue = std::move(staying);
  return 0;
}

// --- Queue pairs. ---

int ConnectionManager::CreateQp(CmId* id, ProtectionDomain* pd, ibv_qp_init_attr* attr) {
  const std::lock_guard lock(mutex_);
  if (pd == nullptr || id->qp != nullptr) return EINVAL;
  if (id->verbs != pd->context) {
    spdlog::error("softverbs: rdma_create_qp: the PD must be made on the id's own context (verbs)");
    return EINVAL;
  }
  QueuePair* qp = QueuePair::Create(pd, attr);
  if (qp == nullptr) return errno;
  qp->Initialize();
  id->qp = qp;
  id->pd = pd;
  id->send_cq = attr->send_cq;
  id->recv_cq = attr->recv_cq;
  id->srq = attr->srq;
  id_of_qp_[qp] = id->serial;
  return 0;
}

int ConnectionManager::DestroyQp(QueuePair* qp) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = id_of_qp_.find(qp); it != id_of_qp_.end()) {
      if (CmId* id = FindId(it->second); id != nullptr) id->qp = nullptr;
      id_of_qp_.erase(it);
    }
  }
  return qp->Destroy();
}

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
    message->AddFd(channel->counter().fd());
  }
  if (CompletionChannel* channel = qp->scq()->comp_channel(); channel != nullptr) {
    body.send_channel = channel->id();
    message->AddFd(channel->counter().fd());
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
  if (const absl::Status made = link->CreateSegment(); !made.ok()) return ENOMEM;
  id->link = link;
  id_of_link_[link.get()] = id->serial;
  FillQp(&id->connecting, id->queue_pair(), link->segment_fd());
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
    spdlog::error("softverbs: connection not established: {}", status.ToString());
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
  for (;;) {
    UniqueFd socket(
        accept4(listener->listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    auto link = std::make_shared<Link>(this, 1, std::move(socket));
    incoming_[link.get()] = {link, listener_serial};
    if (!link->Watch()) incoming_.erase(link.get());
  }
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
    spdlog::error("softverbs: connection not accepted: {}", status.ToString());
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
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (attr.max_dest_rd_atomic > 0) {
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  }
  reply.body.initiator_depth = attr.max_rd_atomic;
  reply.body.responder_resources = attr.max_dest_rd_atomic;
  reply.body.flow_control = param.flow_control;
  reply.body.rnr_retry_count = param.rnr_retry_count & 7;
  FillQp(&reply, qp, -1);
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
      CloseLink(id);
      Raise(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
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
