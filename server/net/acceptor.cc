// Acceptor: set-up and the loop.
#include "server/net/acceptor.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/threads.h"
#include "common/verbs/device_files.h"
#include "common/verbs/errors.h"
#include "common/verbs/local_devices.h"
#include "server/net/epoll.h"
#include "server/net/listening.h"

namespace verbena::net {
namespace {

constexpr int kBacklog = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(verbs::VerbsApi& api, NetAddress* address,
                                                         const QueueOptions& options,
                                                         const verbs::ConnectOptions& connect,
                                                         const Slice& slice, HeldDevices held) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(api, options, connect, slice));
  VERBENA_RETURN_IF_ERROR(acceptor->BindAll(address));
  if (address->IsWildcard() && !verbs::IsSoft(api)) {
    // The others of a wildcard's devices serve; libibverbs shows no reason for one that does not.
    if (const absl::Status usable = verbs::CheckKernelDevices(api); !usable.ok()) {
      LogWarn("not listening on every RDMA device: ", usable.message());
    }
  }
  // Of a wildcard's addresses, one whose port is down or whose device is going is waited for.
  const bool only_one = acceptor->listeners_.size() == 1;
  for (size_t i = 0; i < acceptor->listeners_.size();) {
    Listener& listener = acceptor->listeners_[i];
    const absl::Status status = acceptor->SetUp(listener);
    if (!status.ok()) {
      const bool gone = verbs::ErrnoOf(status) == ENODEV;
      if (only_one || !(gone || absl::IsFailedPrecondition(status))) return status;
      LogWarn("not listening on ", listener.address.ToString(), " yet: ", status.message());
      acceptor->missing_.push_back(listener.address);
      acceptor->listeners_.erase(acceptor->listeners_.begin() + static_cast<ptrdiff_t>(i));
      if (acceptor->listeners_.empty()) return status;
      continue;
    }
    ++i;
  }
  VERBENA_RETURN_IF_ERROR(acceptor->TakeOver(held, address->port()));
  return acceptor;
}

absl::StatusOr<HeldDevices> Acceptor::TryBind(verbs::VerbsApi& api, const NetAddress& address) {
  // Held first, so that there is an id on each device that the trial opens, at any time.
  HeldDevices held = HoldDevices(api, address);
  NetAddress copy = address;
  VERBENA_RETURN_IF_ERROR(Acceptor(api, {}, {}, {}).BindAll(&copy));
  return held;
}

// Devices that have an adapter are its business. Of the others the acceptor is to hear when they
// are removed, unless they are already.
absl::Status Acceptor::TakeOver(HeldDevices& held, uint16_t port) {
  const auto is = [](const NetAddress& address) {
    return [text = address.ToString()](const NetAddress& each) { return each.ToString() == text; };
  };
  for (auto& [address, id] : held.held) {
    address.set_port(port);
    const bool known = std::any_of(missing_.begin(), missing_.end(), is(address)) ||
                       std::any_of(listeners_.begin(), listeners_.end(),
                                   [&](const Listener& each) { return is(address)(each.address); });
    if (!known) {
      LogWarn("not listening on ", address.ToString(), " yet: its device, ", id.device().name(),
              ", has gone while this server was starting");
      missing_.push_back(address);
    }
    if (FindAdapter(id) != nullptr) continue;
    const absl::Status moved = id.Migrate(channel_);
    if (verbs::ErrnoOf(moved) == ENXIO) {
      // The kernel has ended its part of the id, which it does by itself only for a removal.
      verbs::CloseFilesOfRemoved(id.device());
      continue;
    }
    VERBENA_RETURN_IF_ERROR(moved);
    failed_.push_back(std::move(id));
  }
  return absl::OkStatus();
}

absl::Status Acceptor::BindAll(NetAddress* address) {
  absl::StatusOr<verbs::CmChannel> channel = verbs::CmChannel::Create(*api_);
  if (!channel.ok()) {
    const bool none = verbs::IsNoDevice(channel.status());
    if (!none && !absl::IsPermissionDenied(channel.status())) return channel.status();
    const absl::Status none_for =
        NoDeviceFor(*api_, channel_, *address, {std::string(channel.status().message())});
    // Refused for a reason that the device files do not show.
    return none || address->IsLoopback() || !absl::IsNotFound(none_for) ? none_for
                                                                        : channel.status();
  }
  channel_ = *std::move(channel);
  std::vector<std::string> without;
  for (NetAddress& each : AddressesToListenOn(*api_, *address)) {
    each.set_port(address->port());
    absl::StatusOr<verbs::CmId> id = verbs::BindToDevice(channel_, each);
    if (!id.ok()) {
      if (!MeansNoDevice(id.status())) return id.status();
      if (!address->IsWildcard()) without.emplace_back(id.status().message());
      continue;
    }
    each.set_port(id->local_address().port());
    address->set_port(each.port());
    Listener& listener = listeners_.emplace_back();
    listener.id = *std::move(id);
    listener.address = each;
  }
  if (listeners_.empty()) return NoDeviceFor(*api_, channel_, *address, without);
  return absl::OkStatus();
}

// Finds or makes the listener's adapter.
absl::Status Acceptor::SetUp(Listener& listener) {
  if (!listener.id.device().valid()) {
    // The software device is one for all addresses; an id on any of them has its context.
    VERBENA_ASSIGN_OR_RETURN(const NetAddress loopback, NetAddress::Parse("127.0.0.1:0"));
    VERBENA_ASSIGN_OR_RETURN(listener.anchor, verbs::BindToDevice(channel_, loopback));
  }
  const verbs::CmId& with_device = listener.anchor.valid() ? listener.anchor : listener.id;
  VERBENA_RETURN_IF_ERROR(DescribeListener(with_device.device(), listener));
  if (!listener.info.port.active) {
    return absl::FailedPreconditionError(absl::StrCat(
        "port ", listener.info.port.port, " of device ", with_device.device().name(), " is ",
        listener.info.port.state, ": check the cable and `ip link`, or `rdma link`"));
  }
  if (connect_.tos.has_value()) {
    VERBENA_RETURN_IF_ERROR(listener.id.SetTypeOfService(*connect_.tos));
  }
  VERBENA_ASSIGN_OR_RETURN(listener.adapter, AdapterFor(with_device));
  return absl::OkStatus();
}

// Finds or makes the adapter of an id's device; once the threads run, one that is made is theirs
// too. Until it is registered nobody is accepted on other devices either, and connections that end
// are not destroyed. That is bearable: it happens when a device has come back, the region's pages
// are there already (registering 1 GiB of them takes an emulated processor 65 ms, and less where
// they are huge), clients of other devices ask again, and those that are connected notice nothing.
absl::StatusOr<Adapter*> Acceptor::AdapterFor(const verbs::CmId& id) {
  if (Adapter* known = FindAdapter(id); known != nullptr) return known;
  const verbs::DeviceView device = id.device();
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    if (adapter->device().context() == device.context()) {
      return absl::UnavailableError(absl::StrCat("device ", adapter->name(), " is being removed"));
    }
  }
  NetAddress own = id.local_address();
  own.set_port(0);
  VERBENA_ASSIGN_OR_RETURN(verbs::CmId anchor, verbs::BindToDevice(channel_, own));
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<Adapter> made,
                           Adapter::Create(std::move(anchor), options_, slice_));
  Adapter* const adapter = made.get();
  if (epoll_.valid()) {
    VERBENA_RETURN_IF_ERROR(WatchFor(epoll_.get(), adapter->device().async_fd(), adapter));
    for (Worker* worker : workers_) {
      worker->Post(
          {.kind = WorkerMail::Kind::kAddQueues, .queues = &adapter->queues(worker->index())});
    }
  }
  {
    const std::lock_guard lock(mutex_);
    adapters_.push_back(std::move(made));
  }
  // A device that works again has an anchor again.
  std::erase_if(failed_, [&](const verbs::CmId& each) {
    return each.device().context() == adapter->device().context();
  });
  if (epoll_.valid()) RearmAlarms();
  return adapter;
}

absl::Status Acceptor::DescribeListener(const verbs::DeviceView& device, Listener& listener) const {
  const verbs::CmId& id = listener.anchor.valid() ? listener.anchor : listener.id;
  ListenerInfo info;
  info.address = listener.address.ToString();
  VERBENA_ASSIGN_OR_RETURN(info.port, verbs::DescribePort(device, id.port()));
  info.gid = verbs::DescribeGid(device, info.port, id.get()->route.addr.addr.ibaddr.sgid);
  const std::lock_guard lock(mutex_);
  listener.info = std::move(info);
  return absl::OkStatus();
}

// The adapter of an id's device; nullptr if there is none (any more).
Adapter* Acceptor::FindAdapter(const verbs::CmId& id) {
  const verbs::DeviceView view = id.device();
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    if (adapter->leaving()) continue;
    if (view.valid() && adapter->device().context() == view.context()) return adapter.get();
    // One software device, whatever context its ids have.
    if (verbs::IsSoft(*api_)) return adapter.get();
  }
  return nullptr;
}

std::vector<AdapterInfo> Acceptor::Describe() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> all;
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    if (adapter->leaving()) continue;
    AdapterInfo info;
    info.fabric = api_->fabric();
    info.device = adapter->device().name();
    info.transport = adapter->device().transport() == IBV_TRANSPORT_IWARP ? "iWARP" : "InfiniBand";
    for (const Listener& listener : listeners_) {
      // A device that the connection manager has opened anew has listeners of both times.
      if (listener.adapter->name() != adapter->name()) continue;
      ListenerInfo& told = info.listeners.emplace_back(listener.info);
      // No event tells of another MTU. A device that does not answer is as it was.
      const auto port = verbs::DescribePort(adapter->device(), told.port.port);
      if (port.ok()) told.port = *port;
    }
    info.plan = adapter->plan();
    info.connections = static_cast<uint32_t>(adapter->counters().connections.Get());
    info.srq_limit_events = adapter->counters().srq_limit_events.Get();
    info.async_events = adapter->counters().async_events.Get();
    all.push_back(std::move(info));
  }
  return all;
}

std::vector<std::string> Acceptor::Missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const NetAddress& address : missing_) all.push_back(address.ToString());
  return all;
}

Acceptor::~Acceptor() { Stop(); }

absl::Status Acceptor::Start(std::vector<Worker*> workers, Admission* admission,
                             SessionTable* sessions) {
  workers_ = std::move(workers);
  admission_ = admission;
  sessions_ = sessions;
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid() || !mailbox_.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make the acceptor's file descriptors: ", std::strerror(errno),
                     " (see `ulimit -n`)"));
  }
  VERBENA_RETURN_IF_ERROR(WatchFor(epoll_.get(), mailbox_.fd(), &mailbox_));
  VERBENA_RETURN_IF_ERROR(WatchFor(epoll_.get(), channel_.fd(), &channel_));
  for (const std::unique_ptr<Adapter>& adapter : adapters_) {
    VERBENA_RETURN_IF_ERROR(WatchFor(epoll_.get(), adapter->device().async_fd(), adapter.get()));
  }
  for (Listener& listener : listeners_) {
    VERBENA_RETURN_IF_ERROR(listener.id.Listen(kBacklog));
  }
  RearmAlarms();
  if (!missing_.empty()) look_at_ = MonotonicNanos();
  VERBENA_ASSIGN_OR_RETURN(thread_, MakeThread("the acceptor", [this] { Run(); }));
  pthread_setname_np(thread_.native_handle(), "verbena-cm");
  return absl::OkStatus();
}

// Binds, sets up and listens while the workers run.
absl::Status Acceptor::ListenAgain(const NetAddress& address) {
  Listener listener;
  listener.address = address;
  VERBENA_ASSIGN_OR_RETURN(listener.id, verbs::BindToDevice(channel_, address));
  VERBENA_RETURN_IF_ERROR(SetUp(listener));
  VERBENA_RETURN_IF_ERROR(listener.id.Listen(kBacklog));
  LogInfo("listening again on ", address.ToString(), ": ",
          verbs::ToString(listener.adapter->name(), listener.info.port));
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
  return absl::OkStatus();
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  mailbox_.Post({AcceptorMail::Kind::kStop});
  thread_.join();
}

int Acceptor::TimeoutMillis() const {
  int64_t next = INT64_MAX;
  if (rearm_at_ != 0) next = std::min(next, rearm_at_);
  if (look_at_ != 0) next = std::min(next, look_at_);
  if (next == INT64_MAX) return -1;
  return static_cast<int>(std::max<int64_t>(0, (next - MonotonicNanos() + 999'999) / 1'000'000));
}

void Acceptor::Run() {
  std::array<epoll_event, 16> events;
  while (!stop_) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), TimeoutMillis());
    for (int i = 0; i < count; ++i) {
      void* const what = events[static_cast<size_t>(i)].data.ptr;
      if (what == &mailbox_) {
        TakeMail();
      } else if (what == &channel_) {
        TakeCmEvents();
      } else {
        // It may have gone with an event of this round.
        const auto found = std::find_if(adapters_.begin(), adapters_.end(),
                                        [&](const auto& adapter) { return adapter.get() == what; });
        if (found != adapters_.end() && !(*found)->leaving()) TakeAsyncEvents(**found);
      }
    }
    RunTimers();
  }
}

void Acceptor::RunTimers() {
  if (rearm_at_ != 0 && MonotonicNanos() >= rearm_at_) RearmAlarms();
  if (look_at_ != 0 && MonotonicNanos() >= look_at_) LookForMissing();
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
      case AcceptorMail::Kind::kQueuesDropped:
        mail.queues->dropped = true;
        ContinueRemoval(*mail.queues->adapter);
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

}  // namespace verbena::net
