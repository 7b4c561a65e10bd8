// Acceptor: what devices and the connection manager tell, and devices that go and come.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/verbs/errors.h"
#include "server/net/acceptor.h"
#include "server/net/epoll.h"
#include "server/net/listening.h"

namespace verbena::net {
namespace {

constexpr int64_t kRearmAfter = 1'000'000'000;
constexpr int64_t kLookAgainAfter = 1'000'000'000;

}  // namespace

void Acceptor::TakeCmEvents() {
  while (true) {
    absl::StatusOr<std::optional<verbs::CmEvent>> event = channel_.TryGetEvent();
    if (!event.ok()) {
      if (log_.Allow()) LogError("connection manager: ", event.status().message());
      return;
    }
    if (!event->has_value()) return;
    switch ((*event)->type()) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        OnConnectRequest(*std::move(*event));
        break;
      case RDMA_CM_EVENT_DEVICE_REMOVAL: {
        // Ids cannot be destroyed while their event is not acknowledged.
        ibv_context* const context = (*event)->id()->verbs;
        (*event)->Ack();
        OnRemoved(context);
        break;
      }
      case RDMA_CM_EVENT_ADDR_CHANGE: {
        rdma_cm_id* const id = (*event)->id();
        (*event)->Ack();
        OnAddressChange(id);
        break;
      }
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED: {
        auto* const connection = static_cast<Connection*>((*event)->id()->context);
        if (connection == nullptr) {
          LogError("connection manager: ", verbs::CmEventText((*event)->type()),
                   " on an id without a connection");
        } else if (!connection->disconnecting) {
          connection->worker->Post({WorkerMail::Kind::kPeerLeft, connection});
        }
        break;
      }
      default:
        break;
    }
  }
}

// A bond has failed over, say. The connection manager's ids keep the port that they were bound to,
// so a listener is bound anew. A connection shows by itself whether its path still leads anywhere.
void Acceptor::OnAddressChange(rdma_cm_id* id) {
  const auto found = std::find_if(listeners_.begin(), listeners_.end(),
                                  [&](const Listener& each) { return each.id.get() == id; });
  if (found == listeners_.end()) return;
  LogWarn(found->address.ToString(),
          ": its network interface has another hardware address (a bond that has failed over?); "
          "listening on it anew. Clients whose path has gone with the old one must connect again");
  Listener old;
  {
    const std::lock_guard lock(mutex_);
    missing_.push_back(found->address);
    old = std::move(*found);
    listeners_.erase(found);
  }
  look_at_ = MonotonicNanos();
}

void Acceptor::TakeAsyncEvents(Adapter& adapter) {
  while (!adapter.leaving()) {
    absl::StatusOr<std::optional<verbs::AsyncEvent>> event = adapter.device().TryGetAsyncEvent();
    if (!event.ok()) {
      // The descriptor stays readable, so it is tried again.
      if (log_.Allow()) LogError(event.status().message());
      return;
    }
    if (!event->has_value()) return;
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
        LogWarn("device ", adapter.name(), ": few receives are left in a shared receive queue");
        rearm_at_ = MonotonicNanos() + kRearmAfter;
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      OnQueuePairEvent(event);
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_GID_CHANGE:
      OnPortEvent(adapter, event);
      break;
    // The queues are shared by many connections, all of which are lost. This happens to a device or
    // driver at fault, not to one that is used wrongly: there is room for all that may be posted.
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      StartRemoval(adapter.device().context(),
                   absl::StrCat("has failed (", verbs::AsyncEventText(event.type()), ")"));
      break;
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
      break;
    default:
      LogWarn("device ", adapter.name(), ": ", verbs::AsyncEventText(event.type()));
  }
}

void Acceptor::OnQueuePairEvent(const verbs::AsyncEvent& event) {
  const auto found = std::find_if(connections_.begin(), connections_.end(), [&](const auto& each) {
    return each.first->raw_qp == event.raw().element.qp;
  });
  if (found == connections_.end()) return;
  Connection* const connection = found->first;
  if (event.type() == IBV_EVENT_QP_LAST_WQE_REACHED) {
    connection->worker->Post({WorkerMail::Kind::kLastReceive, connection});
    return;
  }
  if (connection->disconnecting) return;
  if (log_.Allow()) {
    LogWarn("connection ", connection->id, " from ", connection->peer, ": ",
            verbs::AsyncEventText(event.type()));
  }
  connection->worker->Post({WorkerMail::Kind::kPeerLeft, connection});
}

// Connections stay: what they wait for is repeated for as long as the transport's retries last.
void Acceptor::OnPortEvent(Adapter& adapter, const verbs::AsyncEvent& event) {
  const int port = event.raw().element.port_num;
  for (Listener& listener : listeners_) {
    if (listener.adapter != &adapter || listener.info.port.port != port) continue;
    const absl::Status status = DescribeListener(adapter.device(), listener);
    if (!status.ok()) LogWarn(listener.address.ToString(), ": ", status.message());
  }
  const std::string text = absl::StrCat("device ", adapter.name(), ", port ", port, ": ",
                                        verbs::AsyncEventText(event.type()));
  if (event.type() == IBV_EVENT_PORT_ERR) {
    LogError(text, "; clients cannot reach the server through it until it is active again");
  } else {
    LogInfo(text);
  }
}

void Acceptor::RearmAlarms() {
  rearm_at_ = 0;
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    if (adapter->leaving()) continue;
    for (uint32_t worker = 0; worker < adapter->plan().workers; ++worker) {
      const absl::Status status = adapter->queues(static_cast<int>(worker)).receives->ArmAlarm();
      if (!status.ok()) {
        LogDebug("device ", adapter->name(),
                 ": no alarm for its receive queues: ", status.message());
      }
    }
  }
}

void Acceptor::OnRemoved(ibv_context* context) {
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    if (adapter->device().context() == context) adapter->SetRemoved();
  }
  StartRemoval(context, "is removed");
  const auto mine = std::stable_partition(
      failed_.begin(), failed_.end(),
      [&](const verbs::CmId& anchor) { return anchor.device().context() != context; });
  if (mine != failed_.end()) verbs::CloseFilesOfRemoved(mine->device());
  failed_.erase(mine, failed_.end());
}

// The driver waits until everything on the device is let go, whichever context it is open with.
void Acceptor::StartRemoval(ibv_context* context, const std::string& why) {
  const auto found = std::find_if(adapters_.begin(), adapters_.end(), [&](const auto& adapter) {
    return adapter->device().context() == context && !adapter->leaving();
  });
  if (found == adapters_.end()) return;
  const std::string device = (*found)->name();
  std::vector<Adapter*> leaving;
  std::vector<std::string> addresses;
  uint64_t connections = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Adapter>& adapter : adapters_) {
      if (adapter->name() != device || adapter->leaving()) continue;
      adapter->SetLeaving();
      leaving.push_back(adapter.get());
      connections += adapter->counters().connections.Get();
      for (const Listener& listener : listeners_) {
        if (listener.adapter != adapter.get()) continue;
        missing_.push_back(listener.address);
        addresses.push_back(listener.address.ToString());
      }
    }
  }
  counters_.devices_removed.Add();
  LogError("device ", device, " ", why, ": its ", connections,
           " connections end, and nobody can connect to ", absl::StrJoin(addresses, ", "),
           " until it is back. The data stays.");
  for (Adapter* adapter : leaving) {
    Unwatch(epoll_.get(), adapter->device().async_fd());
    for (const auto& [connection, owner] : connections_) {
      if (connection->queues->adapter != adapter || connection->disconnecting) continue;
      connection->worker->Post({WorkerMail::Kind::kDeviceRemoved, connection});
    }
    ContinueRemoval(*adapter);
  }
}

// Connections first, then the workers' queues, then the rest.
void Acceptor::ContinueRemoval(Adapter& adapter) {
  if (!adapter.leaving()) return;
  if (adapter.counters().connections.Get() > 0) return;
  bool all = true;
  for (Worker* worker : workers_) {
    QueueSet& queues = adapter.queues(worker->index());
    all &= queues.dropped;
    if (std::exchange(queues.dropping, true)) continue;
    worker->Post({.kind = WorkerMail::Kind::kDropQueues, .queues = &queues, .acceptor = &mailbox_});
  }
  if (all) FinishRemoval(adapter);
}

void Acceptor::FinishRemoval(Adapter& adapter) {
  const std::string name = adapter.name();
  const verbs::DeviceView device = adapter.device();
  std::unique_ptr<Adapter> gone;
  std::vector<Listener> ended;
  {
    const std::lock_guard lock(mutex_);
    const auto mine = std::stable_partition(
        listeners_.begin(), listeners_.end(),
        [&](const Listener& listener) { return listener.adapter != &adapter; });
    std::move(mine, listeners_.end(), std::back_inserter(ended));
    listeners_.erase(mine, listeners_.end());
    const auto found = std::find_if(adapters_.begin(), adapters_.end(),
                                    [&](const auto& each) { return each.get() == &adapter; });
    gone = std::move(*found);
    adapters_.erase(found);
  }
  const bool removed = gone->removed();
  verbs::CmId anchor = gone->TakeAnchor();
  gone.reset();
  // The ids keep the context alive, so its files are closed before they go.
  if (removed) {
    verbs::CloseFilesOfRemoved(device);
  } else {
    failed_.push_back(std::move(anchor));
  }
  ended.clear();
  LogInfo("device ", name, " is let go");
  if (adapters_.empty()) {
    LogError("fabric ", api_->fabric(), " has no device left: nobody can connect through it");
  }
  look_at_ = MonotonicNanos() + kLookAgainAfter;
}

void Acceptor::LookForMissing() {
  std::string failure;
  for (const NetAddress& address : std::vector<NetAddress>(missing_)) {
    const absl::Status status = draining_ ? absl::OkStatus() : ListenAgain(address);
    if (!status.ok()) {
      if (!MeansNoDevice(status)) failure = std::string(status.message());
      continue;
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(missing_,
                  [&](const NetAddress& each) { return each.ToString() == address.ToString(); });
  }
  if (!failure.empty() && failure != look_failure_) {
    LogWarn("cannot listen again: ", failure, " (tried again each second)");
  }
  look_failure_ = failure;
  look_at_ = missing_.empty() ? 0 : MonotonicNanos() + kLookAgainAfter;
}

}  // namespace verbena::net
