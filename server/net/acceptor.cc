#include "server/net/acceptor.h"

#include <ifaddrs.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/errors.h"
#include "common/verbs/poll_fd.h"

namespace verbena::net {
namespace {

constexpr int kBacklog = 512;
// Answers to changes fit: a response of one or two results. (siw gives 80 bytes at most.)
constexpr uint32_t kInlineWanted = 80;
constexpr int64_t kRearmAfter = 1'000'000'000;

// The machine's own addresses of a family, with `port`.
std::vector<NetAddress> LocalAddresses(int family, uint16_t port) {
  std::vector<NetAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const absl::Cleanup release = [list] { freeifaddrs(list); };
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    NetAddress address(entry->ifa_addr);
    address.set_port(port);
    addresses.push_back(address);
  }
  return addresses;
}

// Whether a failed bind says that there is no device for the address, rather than that something
// is wrong with it.
bool MeansNoDevice(const absl::Status& status) {
  // A loopback address can be bound, but has no device.
  if (verbs::IsNoDevice(status) || absl::IsNotFound(status)) return true;
  const int error = verbs::ErrnoOf(status).value_or(0);
  return error == EADDRNOTAVAIL || error == ENODEV;
}

absl::Status Watch(int epoll, int fd, void* what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = what;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return absl::InternalError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

bool Admission::WaitEmpty(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  return empty_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return count_ == 0; });
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(verbs::VerbsApi& api, NetAddress* address,
                                                         const QueueOptions& options,
                                                         const Slice& slice) {
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, BindAll(api, address));
  acceptor->layout_version_ = slice.layout_version;
  for (const verbs::CmId& listener : acceptor->listeners_) {
    VERBENA_RETURN_IF_ERROR(acceptor->AdapterFor(listener, options, slice).status());
  }
  return acceptor;
}

absl::Status Acceptor::TryBind(verbs::VerbsApi& api, const NetAddress& address) {
  NetAddress copy = address;
  return BindAll(api, &copy).status();
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::BindAll(verbs::VerbsApi& api,
                                                            NetAddress* address) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor);
  acceptor->api_ = &api;
  absl::StatusOr<verbs::CmChannel> channel = verbs::CmChannel::Create(api);
  if (!channel.ok()) {
    if (!verbs::IsNoDevice(channel.status())) return channel.status();
    return absl::NotFoundError(
        absl::StrCat("fabric ", api.fabric(), ": ", channel.status().message()));
  }
  acceptor->channel_ = *std::move(channel);
  const bool real = std::string_view(api.fabric()) != "soft";
  // A listener on a wildcard address has no device of its own, so each address gets a listener.
  std::vector<NetAddress> addresses = {*address};
  if (real && address->IsWildcard()) {
    addresses = LocalAddresses(address->family(), address->port());
  }
  std::vector<std::string> without;
  for (NetAddress& each : addresses) {
    each.set_port(address->port());
    const absl::Status status = acceptor->BindOne(each);
    if (absl::IsNotFound(status) || MeansNoDevice(status)) {
      without.push_back(absl::StrCat(each.host(), " (", status.message(), ")"));
      continue;
    }
    VERBENA_RETURN_IF_ERROR(status);
    if (address->port() == 0) {
      address->set_port(acceptor->listeners_.back().local_address().port());
    }
  }
  if (acceptor->listeners_.empty()) {
    return absl::NotFoundError(
        absl::StrCat("fabric ", api.fabric(), ": no RDMA device has the address ",
                     without.empty() ? address->host() : absl::StrJoin(without, ", ")));
  }
  return acceptor;
}

absl::Status Acceptor::BindOne(const NetAddress& address) {
  VERBENA_ASSIGN_OR_RETURN(verbs::CmId id, verbs::CmId::Create(channel_));
  VERBENA_RETURN_IF_ERROR(id.Bind(address));
  if (!id.device().valid() && std::string_view(api_->fabric()) != "soft") {
    return absl::NotFoundError("the connection manager names no device");
  }
  listeners_.push_back(std::move(id));
  return absl::OkStatus();
}

absl::StatusOr<Adapter*> Acceptor::AdapterFor(const verbs::CmId& id, const QueueOptions& options,
                                              const Slice& slice) {
  if (Adapter* known = FindAdapter(id); known != nullptr) return known;
  verbs::DeviceView view = id.device();
  int port = id.port();
  if (!view.valid()) {
    // The software device is one for all addresses; an id on any of them has its context.
    VERBENA_ASSIGN_OR_RETURN(const NetAddress loopback, NetAddress::Parse("127.0.0.1:0"));
    VERBENA_ASSIGN_OR_RETURN(verbs::CmId anchor, verbs::CmId::Create(channel_));
    VERBENA_RETURN_IF_ERROR(anchor.Bind(loopback));
    view = anchor.device();
    port = 0;
    anchors_.push_back(std::move(anchor));
  }
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<Adapter> adapter,
                           Adapter::Create(view, port, options, slice));
  VERBENA_RETURN_IF_ERROR(verbs::SetNonBlocking(view.async_fd()));
  adapters_.push_back(std::move(adapter));
  return adapters_.back().get();
}

// The adapter of an id's device; nullptr if there is none yet.
Adapter* Acceptor::FindAdapter(const verbs::CmId& id) {
  const verbs::DeviceView view = id.device();
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    if (view.valid() && adapter->device().context() == view.context()) return adapter.get();
  }
  // One software device, whatever context its ids have.
  if (std::string_view(api_->fabric()) == "soft" && !adapters_.empty()) {
    return adapters_.front().get();
  }
  return nullptr;
}

Acceptor::~Acceptor() { Stop(); }

absl::Status Acceptor::Start(std::vector<Worker*> workers, Admission* admission) {
  workers_ = std::move(workers);
  admission_ = admission;
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid() || !mailbox_.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make the acceptor's file descriptors: ", std::strerror(errno),
                     " (see `ulimit -n`)"));
  }
  VERBENA_RETURN_IF_ERROR(Watch(epoll_.get(), mailbox_.fd(), &mailbox_));
  VERBENA_RETURN_IF_ERROR(Watch(epoll_.get(), channel_.fd(), &channel_));
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    VERBENA_RETURN_IF_ERROR(Watch(epoll_.get(), adapter->device().async_fd(), adapter.get()));
  }
  for (verbs::CmId& listener : listeners_) {
    VERBENA_RETURN_IF_ERROR(listener.Listen(kBacklog));
  }
  RearmAlarms();
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "verbena-cm");
  return absl::OkStatus();
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  mailbox_.Post({AcceptorMail::Kind::kStop});
  thread_.join();
}

void Acceptor::Run() {
  std::array<epoll_event, 16> events;
  while (!stop_) {
    int timeout = -1;
    if (rearm_at_ != 0) {
      const int64_t left = rearm_at_ - MonotonicNanos();
      timeout = static_cast<int>(std::max<int64_t>(0, (left + 999'999) / 1'000'000));
    }
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < count; ++i) {
      void* const what = events[static_cast<size_t>(i)].data.ptr;
      if (what == &mailbox_) {
        TakeMail();
      } else if (what == &channel_) {
        TakeCmEvents();
      } else {
        TakeAsyncEvents(*static_cast<Adapter*>(what));
      }
    }
    if (rearm_at_ != 0 && MonotonicNanos() >= rearm_at_) RearmAlarms();
  }
}

void Acceptor::TakeMail() {
  for (const AcceptorMail& mail : mailbox_.Take()) {
    switch (mail.kind) {
      case AcceptorMail::Kind::kAdopted:
        Accept(*mail.connection);
        break;
      case AcceptorMail::Kind::kDisconnect:
        Disconnect(*mail.connection);
        break;
      case AcceptorMail::Kind::kDestroy:
        Destroy(mail.connection);
        break;
      case AcceptorMail::Kind::kDrain:
        draining_ = true;
        break;
      case AcceptorMail::Kind::kStop:
        stop_ = true;
        break;
    }
  }
}

void Acceptor::TakeCmEvents() {
  while (true) {
    absl::StatusOr<std::optional<verbs::CmEvent>> event = channel_.TryGetEvent();
    if (!event.ok()) {
      LogError("connection manager: ", event.status().message());
      return;
    }
    if (!event->has_value()) return;
    if ((*event)->type() == RDMA_CM_EVENT_CONNECT_REQUEST) {
      OnConnectRequest(*std::move(*event));
      continue;
    }
    auto* const connection = static_cast<Connection*>((*event)->id()->context);
    switch ((*event)->type()) {
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED:
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (connection == nullptr) {
          LogError("connection manager: ", verbs::CmEventText((*event)->type()),
                   " on an id without a connection");
        } else if (!connection->disconnecting) {
          connection->worker->Post({WorkerMail::Kind::kPeerLeft, connection});
        }
        break;
      default:
        break;
    }
  }
}

void Acceptor::TakeAsyncEvents(Adapter& adapter) {
  while (true) {
    absl::StatusOr<std::optional<verbs::AsyncEvent>> event = adapter.device().TryGetAsyncEvent();
    if (!event.ok() || !event->has_value()) return;
    adapter.counters().async_events.Add();
    OnAsyncEvent(adapter, **event);
  }
}

void Acceptor::OnAsyncEvent(Adapter& adapter, const verbs::AsyncEvent& event) {
  switch (event.type()) {
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      // More receives are posted than have been granted, so somebody sends more than he may. The
      // alarm is set again after a while, lest it ring all the time.
      adapter.counters().srq_limit_events.Add();
      if (rearm_at_ == 0) {
        LogWarn("device ", adapter.info().device,
                ": few receives are left in a shared receive queue");
        rearm_at_ = MonotonicNanos() + kRearmAfter;
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      for (const auto& [connection, owner] : connections_) {
        if (connection->raw_qp != event.raw().element.qp || connection->disconnecting) continue;
        if (log_.Allow()) {
          LogWarn("connection ", connection->id, " from ", connection->peer, ": ",
                  verbs::AsyncEventText(event.type()));
        }
        connection->worker->Post({WorkerMail::Kind::kPeerLeft, connection});
      }
      break;
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
    case IBV_EVENT_SQ_DRAINED:
      break;
    default:
      LogWarn("device ", adapter.info().device, ": ", verbs::AsyncEventText(event.type()));
  }
}

void Acceptor::RearmAlarms() {
  rearm_at_ = 0;
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    for (uint32_t worker = 0; worker < adapter->plan().workers; ++worker) {
      const absl::Status status = adapter->queues(static_cast<int>(worker)).receives->ArmAlarm();
      if (!status.ok()) {
        LogDebug("device ", adapter->info().device,
                 ": no alarm for its receive queues: ", status.message());
      }
    }
  }
}

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
  Adapter* const adapter = FindAdapter(id);
  if (adapter == nullptr) {
    Reject(id, wire::RejectReason::kResources, "the server does not use this device");
    return;
  }
  if (!admission_->TryEnter()) {
    Reject(id, wire::RejectReason::kConnectionLimit,
           absl::StrCat("the server has all of its ", admission_->limit(),
                        " connections (--max_connections)"));
    return;
  }
  QueueSet* const queues = ChooseQueues(*adapter);
  if (queues == nullptr) {
    admission_->Leave();
    Reject(id, wire::RejectReason::kConnectionLimit,
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

  connection->parameters = verbs::LimitToRequest(
      verbs::LimitToDevice({.initiator_depth = kReadsInFlight, .responder_resources = 0xff},
                           adapter->attributes()),
      offered);
  connection->reads_allowed = connection->parameters.initiator_depth;
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
  answer.layout = layout_version_;
  const auto data = wire::Encode(answer);
  const absl::Status accepted =
      connection.cm_id.Accept(verbs::MakeConnParam(connection.parameters, data));
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
  counters_.accepted.Add();
  if (const absl::Status status =
          verbs::ApplyAfterConnect(connection.cm_id, connection.qp, connection.parameters);
      !status.ok()) {
    LogDebug("connection ", connection.id, ": ", status.message());
  }
  // A second wall: the connection manager gives queue pairs rights to write, which nobody needs
  // here. (The first wall is that nothing is registered for it.)
  ibv_qp_attr rights{};
  rights.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  if (const absl::Status status = connection.qp.Modify(rights, IBV_QP_ACCESS_FLAGS); !status.ok()) {
    LogDebug("connection ", connection.id, ": ", status.message());
  }
  LogDebug("connection ", connection.id, " from ", connection.peer, ", worker ",
           connection.queues->worker);
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
  connection->session = hello.session;
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

void Acceptor::Reject(verbs::CmId& id, wire::RejectReason reason, const std::string& text) {
  counters_.rejected[std::min(static_cast<size_t>(reason), kRejectReasons - 1)].Add();
  if (log_.Allow()) LogInfo("refused ", id.peer_address().ToString(), ": ", text);
  wire::RejectData data;
  data.layout = layout_version_;
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
  Worker* const worker = connection->worker;
  // The worker deletes it.
  [[maybe_unused]] Connection* const released = found->second.release();
  connections_.erase(found);
  worker->Post({WorkerMail::Kind::kGone, connection});
  admission_->Leave();
}

}  // namespace verbena::net
