#include "client/src/endpoint.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/layout/region_header.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/errors.h"
#include "common/wire/handshake.h"

namespace verbena::client {
namespace {

// READs in flight that are asked for; devices commonly allow 16.
constexpr uint32_t kMostReads = 64;
// Inline sends: the most that is asked for first; devices that have less get less.
constexpr uint32_t kInlineWishes[] = {256, 64, 0};

int MillisUntil(int64_t deadline) {
  const int64_t left = deadline - MonotonicNanos();
  if (left <= 0) return 0;
  return static_cast<int>(std::min<int64_t>((left + 999'999) / 1'000'000, 3'600'000));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Connect(verbs::VerbsApi& api,
                                                            const EndpointOptions& options) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(api));
  endpoint->server_ = options.server.ToString();
  endpoint->connect_options_ = options.connect;
  VERBENA_RETURN_IF_ERROR(endpoint->Resolve(options));
  VERBENA_RETURN_IF_ERROR(endpoint->MakeMemory(options.operations));
  VERBENA_RETURN_IF_ERROR(endpoint->MakeQueues(options));
  VERBENA_RETURN_IF_ERROR(endpoint->Handshake(options));
  return endpoint;
}

Endpoint::~Endpoint() { Break(); }

absl::StatusOr<verbs::CmEvent> Endpoint::WaitFor(rdma_cm_event_type type, int64_t deadline,
                                                 const char* what) {
  VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event,
                           cm_channel_.WaitEvent(MillisUntil(deadline)));
  if (!event.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " ", server_, " over ", fabric(), " took longer than the time allowed"));
  }
  if (event->type() == type) return std::move(*event);
  if (event->type() == RDMA_CM_EVENT_REJECTED) return OnRejected(*event);
  absl::Status error = verbs::CmEventError(event->type(), event->status(), server_);
  if (!error.ok()) return error;
  return absl::InternalError(
      absl::StrCat(what, " ", server_, ": unexpected event ", verbs::CmEventText(event->type())));
}

absl::Status Endpoint::Resolve(const EndpointOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(cm_channel_, verbs::CmChannel::Create(api_));
  VERBENA_ASSIGN_OR_RETURN(cm_id_, verbs::CmId::Create(cm_channel_));
  VERBENA_RETURN_IF_ERROR(verbs::ApplyBeforeConnect(cm_id_, connect_options_));
  const int timeout_ms = std::max(MillisUntil(options.deadline), 1);
  VERBENA_RETURN_IF_ERROR(cm_id_.ResolveAddress(options.server, timeout_ms));
  VERBENA_RETURN_IF_ERROR(
      WaitFor(RDMA_CM_EVENT_ADDR_RESOLVED, options.deadline, "resolving the address of").status());
  VERBENA_RETURN_IF_ERROR(cm_id_.ResolveRoute(timeout_ms));
  VERBENA_RETURN_IF_ERROR(
      WaitFor(RDMA_CM_EVENT_ROUTE_RESOLVED, options.deadline, "finding the route to").status());
  device_name_ = cm_id_.device().name();
  return absl::OkStatus();
}

absl::Status Endpoint::MakeMemory(uint32_t operations) {
  send_buffers_ = operations + 1;
  const uint64_t receives = AlignUp(uint64_t{kReceives} * kMessageBytes, 4096);
  const uint64_t sends = AlignUp(uint64_t{send_buffers_} * kMessageBytes, 4096);
  const uint64_t sinks = uint64_t{operations} * sizeof(ReadSink);
  VERBENA_ASSIGN_OR_RETURN(memory_,
                           SharedMemory::Create("verbena-client", receives + sends + sinks, false));
  receives_ = memory_.data();
  sends_ = receives_ + receives;
  sinks_ = reinterpret_cast<ReadSink*>(sends_ + sends);

  VERBENA_ASSIGN_OR_RETURN(pd_, verbs::ProtectionDomain::Create(cm_id_.device()));
  VERBENA_ASSIGN_OR_RETURN(const verbs::Capabilities device,
                           verbs::Capabilities::Of(cm_id_.device()));
  // The server READs large values from memory registered with these flags.
  sink_access_ = device.read_sink_access() | IBV_ACCESS_REMOTE_READ;
  VERBENA_ASSIGN_OR_RETURN(memory_region_,
                           verbs::MemoryRegion::Register(pd_, memory_.data(), memory_.size(),
                                                         device.read_sink_access()));
  return absl::OkStatus();
}

absl::Status Endpoint::MakeQueues(const EndpointOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const ibv_device_attr limits, cm_id_.device().Query());
  connect_options_.initiator_depth =
      static_cast<uint8_t>(std::min({options.operations, kMostReads, 255u}));
  connect_options_ = verbs::LimitToDevice(connect_options_, limits);
  read_depth_ = connect_options_.initiator_depth;
  // READs are always signalled, requests now and then: twice as many places keep the queue from
  // being what posts wait for.
  send_depth_ = 2 * (read_depth_ + kMaxRequests);

  VERBENA_ASSIGN_OR_RETURN(completion_channel_, verbs::CompletionChannel::Create(cm_id_.device()));
  // Twice all that can complete, so that the queue cannot overrun whatever the device counts.
  const int entries = static_cast<int>(2 * (send_depth_ + kReceives));
  VERBENA_ASSIGN_OR_RETURN(
      cq_, verbs::CompletionQueue::Create(cm_id_.device(), entries, &completion_channel_));
  if (cq_.capacity() < entries) {
    return absl::ResourceExhaustedError(absl::StrCat("device ", device_name_,
                                                     " made a completion queue of ", cq_.capacity(),
                                                     " entries instead of ", entries));
  }
  VERBENA_RETURN_IF_ERROR(MakeQueuePair({.send_cq = cq_.get(),
                                         .recv_cq = cq_.get(),
                                         .max_send_wr = send_depth_,
                                         .max_recv_wr = kReceives}));
  for (uint32_t i = 0; i < kReceives; ++i) {
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

absl::Status Endpoint::Handshake(const EndpointOptions& options) {
  wire::ConnectData connect;
  connect.layout = layout::kLayoutVersion;
  connect.tenant = wire::TenantId("default");
  connect.session = options.session;
  if (getrandom(connect.nonce.data(), connect.nonce.size(), 0) !=
      static_cast<ssize_t>(connect.nonce.size())) {
    return absl::UnavailableError("getrandom gave no random bytes for the handshake");
  }
  const auto bytes = wire::Encode(connect);
  VERBENA_RETURN_IF_ERROR(cm_id_.Connect(verbs::MakeConnParam(connect_options_, bytes)));
  VERBENA_ASSIGN_OR_RETURN(verbs::CmEvent event,
                           WaitFor(RDMA_CM_EVENT_ESTABLISHED, options.deadline, "connecting to"));
  connected_ = true;
  VERBENA_RETURN_IF_ERROR(OnEstablished(event));
  event.Ack();
  return verbs::ApplyAfterConnect(cm_id_, qp_, connect_options_);
}

absl::Status Endpoint::OnEstablished(const verbs::CmEvent& event) {
  const absl::StatusOr<wire::AcceptData> accept = wire::DecodeAccept(event.private_data());
  if (!accept.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        server_,
        " accepted the connection, but is no Verbena server: ", accept.status().message()));
  }
  if (accept->protocol != wire::kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server at ", server_, " speaks protocol version ", accept->protocol,
                     ", this client version ", wire::kProtocolVersion));
  }
  if (accept->layout != layout::kLayoutVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server at ", server_, " has layout version ", accept->layout,
                     ", this client reads version ", layout::kLayoutVersion));
  }
  // What the server lets this side have; some devices leave it at 0, which would mean none at all.
  const uint32_t granted = event.param().initiator_depth;
  if (granted != 0) read_depth_ = std::min(read_depth_, granted);
  return absl::OkStatus();
}

absl::Status Endpoint::OnRejected(const verbs::CmEvent& event) const {
  const absl::StatusOr<wire::RejectData> reject = wire::DecodeReject(event.private_data());
  if (event.status() == verbs::kRejectedNoListener) {
    return absl::UnavailableError(absl::StrCat("nobody listens at ", server_, " on fabric ",
                                               fabric(), ": is a verbena-server running there?"));
  }
  if (!reject.ok()) return verbs::CmEventError(event.type(), event.status(), server_);
  std::string text = absl::StrCat("the server at ", server_, " refused the connection: ");
  if (reject->reason == wire::RejectReason::kOtherProtocol) {
    return absl::FailedPreconditionError(
        absl::StrCat(text, "it speaks protocol version ", reject->protocol,
                     ", this client version ", wire::kProtocolVersion,
                     reject->layout != layout::kLayoutVersion
                         ? absl::StrCat("; its layout version is ", reject->layout,
                                        ", this client's ", layout::kLayoutVersion)
                         : ""));
  }
  absl::StrAppend(&text,
                  reject->text.empty() ? wire::RejectReasonName(reject->reason) : reject->text);
  if (reject->reason == wire::RejectReason::kDraining) return absl::UnavailableError(text);
  return absl::FailedPreconditionError(text);
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

void Endpoint::Sleep(int64_t deadline) {
  pollfd fds[] = {{completion_channel_.fd(), POLLIN, 0}, {cm_channel_.fd(), POLLIN, 0}};
  poll(fds, 2, MillisUntil(deadline));
  // Events only say "look again", which the caller does in any case; all are taken, so that the
  // next sleep is not ended by an old one.
  while (true) {
    const absl::StatusOr<std::optional<verbs::CqEvent>> event = completion_channel_.TryGetEvent();
    if (!event.ok() || !event->has_value()) return;
  }
}

void Endpoint::Break() {
  if (broken_ || !qp_.valid()) return;
  broken_ = true;
  // Both may fail on a connection that has ended by itself; that is what is wanted.
  qp_.ToError().IgnoreError();
  if (connected_) cm_id_.Disconnect().IgnoreError();
}

}  // namespace verbena::client
