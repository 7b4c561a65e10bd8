#include "client/src/endpoint.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/causes.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/verbs/device_files.h"
#include "common/verbs/errors.h"
#include "common/verbs/local_devices.h"

namespace verbena::client {
namespace {

// Inline sends: the most that is asked for first; devices that have less get less.
constexpr uint32_t kInlineWishes[] = {256, 64, 0};

// The interrupt of the next completion queue: all in turn, from one that is another in each
// process, so that the clients of a machine do not share one.
int NextVector(const verbs::DeviceView& device) {
  static std::atomic<unsigned> next{static_cast<unsigned>(getpid())};
  return static_cast<int>(next++ % static_cast<unsigned>(device.completion_vectors()));
}

// How many endpoints use each context. Never destroyed: threads may outlive main.
struct ContextUsers {
  static ContextUsers& Get() {
    static ContextUsers& users = *new ContextUsers;
    return users;
  }
  std::mutex mutex;
  std::map<const ibv_context*, int> count;
};

}  // namespace

ContextUse::ContextUse(const verbs::DeviceView& device) : device_(device) {
  const std::lock_guard lock(ContextUsers::Get().mutex);
  ++ContextUsers::Get().count[device_.context()];
}

ContextUse& ContextUse::operator=(ContextUse&& other) noexcept {
  if (this != &other) {
    End();
    device_ = std::exchange(other.device_, {});
  }
  return *this;
}

bool ContextUse::End() {
  if (!device_.valid()) return false;
  const ibv_context* const context = std::exchange(device_, {}).context();
  ContextUsers& users = ContextUsers::Get();
  const std::lock_guard lock(users.mutex);
  const auto it = users.count.find(context);
  if (--it->second > 0) return false;
  users.count.erase(it);
  return true;
}

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Begin(verbs::VerbsApi& api,
                                                          const EndpointOptions& options,
                                                          ConnectAnswer::Kind* kind) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(api));
  endpoint->server_ = options.server.ToString();
  endpoint->connect_options_ = options.connect;
  *kind = ConnectAnswer::Kind::kRefused;
  absl::Status status = endpoint->Resolve(options);
  if (!status.ok()) status = endpoint->WithDevices(status, options.server);
  if (status.ok()) status = endpoint->MakePlan(options.operations);
  if (status.ok()) status = endpoint->MakeMemory(options.operations);
  if (status.ok()) status = endpoint->MakeQueues();
  if (!status.ok()) status = endpoint->WithLimits(status);
  if (status.ok()) status = AskInTime(endpoint, options);
  if (status.ok()) return endpoint;
  if (absl::IsDeadlineExceeded(status)) *kind = ConnectAnswer::Kind::kAgain;
  return OfConnecting(status);
}

// Where the route to the server has no device: which routes have one. Where a file of a device
// could not be opened: which, and why.
absl::Status Endpoint::WithDevices(const absl::Status& status, const NetAddress& server) {
  const int error = verbs::ErrnoOf(status).value_or(0);
  if (!verbs::IsSoft(api_) && (error == EPERM || error == EACCES || error == ENOENT)) {
    // The libraries do not say which file it was.
    const absl::Status files = verbs::CheckDeviceFiles();
    if (!files.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), " ", files.message()));
    }
  }
  if (!verbs::IsNoRoute(status) || verbs::IsSoft(api_) || !cm_channel_.valid()) return status;
  const absl::Status usable = verbs::CheckKernelDevices(api_);
  return absl::UnavailableError(absl::StrCat(
      "fabric ", fabric(), ": no RDMA device of this machine leads to ", server.host(), " (",
      std::strerror(error), "); ",
      usable.ok() ? verbs::AddressesWithDeviceText(cm_channel_) : std::string(usable.message()),
      ". The server's address must be in the network of one of them; for a server on this machine "
      "without a device use --fabric=soft"));
}

// What a device has no room for does not say of what there may be how much.
absl::Status Endpoint::WithLimits(const absl::Status& status) const {
  if (verbs::ErrnoOf(status) != ENOMEM || !capabilities_.has_value()) return status;
  const ibv_device_attr& limits = capabilities_->limits();
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), " (A connection takes 1 of each, and device ", device_name_,
                   " has room for: max_qp ", limits.max_qp, ", max_cq ", limits.max_cq, ", max_mr ",
                   limits.max_mr, ", max_pd ", limits.max_pd, ", for all programs together.)"));
}

Endpoint::~Endpoint() { Break(); }

absl::Status Endpoint::WaitFor(rdma_cm_event_type type, int64_t deadline, const char* what) {
  VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event,
                           cm_channel_.WaitEvent(MillisUntil(deadline)));
  const auto text = [&] { return absl::StrCat(what, " ", server_, " over ", fabric()); };
  if (!event.has_value()) {
    return absl::DeadlineExceededError(absl::StrCat(text(), " took longer than the time allowed"));
  }
  if (event->type() == type) return absl::OkStatus();
  absl::Status error = verbs::CmEventError(event->type(), event->status(), server_);
  if (error.ok()) {
    return absl::InternalError(
        absl::StrCat(text(), ": unexpected event ", verbs::CmEventText(event->type())));
  }
  // The connection manager's own time limit, which is the same.
  if (event->status() == -ETIMEDOUT) return absl::DeadlineExceededError(error.message());
  return error;
}

absl::Status Endpoint::Resolve(const EndpointOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(cm_channel_, verbs::CmChannel::Create(api_));
  VERBENA_ASSIGN_OR_RETURN(cm_id_, verbs::CmId::Create(cm_channel_));
  VERBENA_RETURN_IF_ERROR(verbs::ApplyBeforeConnect(cm_id_, connect_options_));
  const int timeout_ms = std::max(MillisUntil(options.deadline), 1);
  VERBENA_RETURN_IF_ERROR(cm_id_.ResolveAddress(options.server, timeout_ms));
  VERBENA_RETURN_IF_ERROR(
      WaitFor(RDMA_CM_EVENT_ADDR_RESOLVED, options.deadline, "resolving the address of"));
  VERBENA_RETURN_IF_ERROR(cm_id_.ResolveRoute(timeout_ms));
  VERBENA_RETURN_IF_ERROR(
      WaitFor(RDMA_CM_EVENT_ROUTE_RESOLVED, options.deadline, "finding the route to"));
  device_name_ = cm_id_.device().name();
  context_use_ = ContextUse(cm_id_.device());
  return absl::OkStatus();
}

absl::Status Endpoint::MakePlan(uint32_t operations) {
  VERBENA_ASSIGN_OR_RETURN(capabilities_, verbs::Capabilities::Of(cm_id_.device()));
  VERBENA_ASSIGN_OR_RETURN(plan_, EndpointPlan::Make(*capabilities_, device_name_, operations));
  connect_options_.initiator_depth = static_cast<uint8_t>(plan_.reads);
  connect_options_ = verbs::LimitToDevice(connect_options_, capabilities_->limits());
  return absl::OkStatus();
}

absl::Status Endpoint::MakeMemory(uint32_t operations) {
  send_buffers_ = operations + 1;
  const uint64_t receives = AlignUp(uint64_t{plan_.receives} * kMessageBytes, 4096);
  const uint64_t sends = AlignUp(uint64_t{send_buffers_} * kMessageBytes, 4096);
  const uint64_t sinks = uint64_t{operations} * sizeof(ReadSink);
  const uint64_t bytes = receives + sends + sinks;
  VERBENA_RETURN_IF_ERROR(CheckRegistration(
      *capabilities_, device_name_, bytes,
      absl::StrCat("a connection for ", operations, " operations at once"), "set a smaller depth"));
  VERBENA_ASSIGN_OR_RETURN(memory_, SharedMemory::Create("verbena-client", bytes, false));
  receives_ = memory_.data();
  sends_ = receives_ + receives;
  sinks_ = reinterpret_cast<ReadSink*>(sends_ + sends);

  VERBENA_ASSIGN_OR_RETURN(pd_, verbs::ProtectionDomain::Create(cm_id_.device()));
  // The server READs large values from memory registered with these flags.
  sink_access_ = capabilities_->read_sink_access() | IBV_ACCESS_REMOTE_READ;
  VERBENA_ASSIGN_OR_RETURN(memory_region_,
                           verbs::MemoryRegion::Register(pd_, memory_.data(), memory_.size(),
                                                         capabilities_->read_sink_access()));
  return absl::OkStatus();
}

absl::Status Endpoint::MakeQueues() {
  VERBENA_ASSIGN_OR_RETURN(completion_channel_, verbs::CompletionChannel::Create(cm_id_.device()));
  const int entries = static_cast<int>(plan_.completions);
  VERBENA_ASSIGN_OR_RETURN(
      cq_, verbs::CompletionQueue::Create(cm_id_.device(), entries, &completion_channel_,
                                          /*context=*/nullptr, NextVector(cm_id_.device())));
  if (cq_.capacity() < entries) {
    return absl::ResourceExhaustedError(absl::StrCat("device ", device_name_,
                                                     " made a completion queue of ", cq_.capacity(),
                                                     " entries instead of ", entries));
  }
  VERBENA_RETURN_IF_ERROR(MakeQueuePair({.send_cq = cq_.get(),
                                         .recv_cq = cq_.get(),
                                         .max_send_wr = plan_.send_depth,
                                         .max_recv_wr = plan_.receives,
                                         .max_send_sge = scatters_reads() ? 2u : 1u}));
  for (uint32_t i = 0; i < plan_.receives; ++i) {
    VERBENA_RETURN_IF_ERROR(verbs::FromReturn(PostReceive(i), "ibv_post_recv"));
  }
  return absl::OkStatus();
}

absl::Status Endpoint::MakeQueuePair(verbs::QueuePairOptions options) {
  absl::Status error;
  for (const uint32_t wish : kInlineWishes) {
    options.max_inline_data = wish;
    absl::StatusOr<verbs::QueuePair> qp = verbs::QueuePair::CreateOn(cm_id_, pd_, options);
    if (qp.ok()) {
      qp_ = *std::move(qp);
      inline_bytes_ = std::max(wish, qp_.cap().max_inline_data);
      return absl::OkStatus();
    }
    if (error.ok()) error = qp.status();
  }
  return error;
}

int Endpoint::PostReceive(uint32_t i) {
  ibv_sge sge = verbs::MakeSge(receives_ + uint64_t{i} * kMessageBytes, kMessageBytes, lkey());
  ibv_recv_wr request = verbs::MakeRecv(WrId(RequestKind::kReceive, {i, 1}).bits(), &sge);
  ibv_recv_wr* bad = nullptr;
  return verbs::PostRecv(qp_.get(), &request, &bad);
}

absl::Status Endpoint::CheckEvents() {
  VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event, cm_channel_.TryGetEvent());
  while (event.has_value()) {
    const rdma_cm_event_type type = event->type();
    if (type == RDMA_CM_EVENT_DEVICE_REMOVAL) removed_ = true;
    if (type == RDMA_CM_EVENT_DISCONNECTED) {
      return absl::UnavailableError(
          absl::StrCat("the server at ", server_, " is gone: it ended the connection or has died"));
    }
    VERBENA_RETURN_IF_ERROR(verbs::CmEventError(type, event->status(), server_));
    event->Ack();
    VERBENA_ASSIGN_OR_RETURN(event, cm_channel_.TryGetEvent());
  }
  return absl::OkStatus();
}

absl::Status Endpoint::Arm() { return cq_.Arm(); }

absl::Status Endpoint::WatchedBy(Waiter& waiter) const {
  VERBENA_RETURN_IF_ERROR(waiter.Watch(Waiter::Source::kCompletions, completion_channel_.fd()));
  return waiter.Watch(Waiter::Source::kEvents, cm_channel_.fd());
}

// An event only says "look again", which the caller does in any case. The one queue is armed once
// before each sleep, so one event is all there is; one more would only shorten the next sleep.
void Endpoint::TakeCompletionEvent() { completion_channel_.TryGetEvent().IgnoreError(); }

bool Endpoint::Sleep(Waiter& waiter, int64_t deadline) {
  const Waiter::Ready ready = waiter.Wait(deadline);
  if (ready.completions) TakeCompletionEvent();
  return ready.events;
}

void Endpoint::ReleaseQueuePair() { qp_ = {}; }

void Endpoint::ReleaseQueues() {
  ReleaseQueuePair();
  cq_ = {};
}

void Endpoint::ReleaseDevice() {
  completion_channel_ = {};
  memory_region_ = {};
  pd_ = {};
  // Removing waits for the context's files, which the connection manager's library keeps open.
  if (context_use_.End() && removed_) verbs::CloseFilesOfRemoved(cm_id_.device());
  cm_id_ = {};
}

void Endpoint::Break() {
  if (broken_ || !qp_.valid()) return;
  broken_ = true;
  // That the device is being removed may stand behind the news that the connection has ended.
  pollfd fd = {cm_channel_.fd(), POLLIN, 0};
  while (!removed_ && poll(&fd, 1, 0) > 0) {
    const absl::StatusOr<std::optional<verbs::CmEvent>> event = cm_channel_.TryGetEvent();
    if (!event.ok() || !event->has_value()) break;
    removed_ = (*event)->type() == RDMA_CM_EVENT_DEVICE_REMOVAL;
  }
  // Both may fail on a connection that has ended by itself; that is what is wanted.
  qp_.ToError().IgnoreError();
  if (connected_) cm_id_.Disconnect().IgnoreError();
}

}  // namespace verbena::client
