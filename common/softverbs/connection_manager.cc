#include "common/softverbs/connection_manager.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/softverbs/port.h"

namespace verbena::softverbs {
namespace {

using State = CmId::State;

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
  for (size_t i = 0; i < dropped; ++i) (void)channel->counter.TryTake();
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
  (source ? route.addr.ibaddr.sgid : route.addr.ibaddr.dgid) = GidOf(address);
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
      if (length != 1) return EINVAL;
      id->type_of_service = *static_cast<const uint8_t*>(value);
      return 0;
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
    (void)old->counter.TryTake();
  }
  old->queue = std::move(staying);
  return 0;
}

// --- Queue pairs. ---

int ConnectionManager::CreateQp(CmId* id, ProtectionDomain* pd, ibv_qp_init_attr* attr) {
  const std::lock_guard lock(mutex_);
  if (pd == nullptr || id->qp != nullptr) return EINVAL;
  if (id->verbs != pd->context) {
    LogError("softverbs: rdma_create_qp: the PD must be made on the id's own context (verbs)");
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

}  // namespace verbena::softverbs
