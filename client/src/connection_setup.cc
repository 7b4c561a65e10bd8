// Connecting: from "ADDR:PORT" to a connection that knows the server's slice.
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "client/src/fabric.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/text.h"
#include "common/layout/item.h"
#include "common/verbs/conn_param.h"

namespace verbena {
namespace {

constexpr uint32_t kMaxDepth = 1024;
// A directory of at most this many bytes is READ whole on connecting.
constexpr uint64_t kEagerDirectory = 64 * 1024;

absl::StatusOr<verbs::ConnectOptions> CheckConnectOptions(const Options& options) {
  verbs::ConnectOptions checked;
  if (options.tos.has_value()) {
    VERBENA_ASSIGN_OR_RETURN(checked.tos, verbs::kTosRange.Check(*options.tos));
  }
  VERBENA_ASSIGN_OR_RETURN(checked.ack_timeout, verbs::kAckTimeoutRange.Check(options.ack_timeout));
  VERBENA_ASSIGN_OR_RETURN(checked.retry_count, verbs::kRetryCountRange.Check(options.retry_count));
  VERBENA_ASSIGN_OR_RETURN(checked.min_rnr_timer, verbs::kRnrTimerRange.Check(options.rnr_timer));
  return checked;
}

absl::Status CheckOptions(const Options& options) {
  if (options.depth < 1 || options.depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("depth is ", options.depth, "; it must be 1 to ", kMaxDepth));
  }
  if (options.connect_timeout.count() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "connect_timeout is ", options.connect_timeout.count(), " ms; it must be positive"));
  }
  if (options.operation_timeout.count() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "operation_timeout is ", options.operation_timeout.count(), " ms; it must be positive"));
  }
  if (options.poll_time.count() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("poll_time is ", options.poll_time.count(), " us; it must not be negative"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> RandomSession() {
  uint64_t session = 0;
  while (session == 0) {
    if (getrandom(&session, sizeof(session), 0) != sizeof(session)) {
      return absl::UnavailableError("getrandom gave no random bytes for the session");
    }
  }
  return session;
}

int64_t Nanos(std::chrono::milliseconds time) { return std::chrono::nanoseconds(time).count(); }

}  // namespace

absl::StatusOr<std::unique_ptr<Connection::Impl>> Connection::Impl::Connect(
    std::string_view server, const Options& options, std::shared_ptr<client::SharedCache> cache) {
  VERBENA_RETURN_IF_ERROR(CheckOptions(options));
  client::EndpointOptions endpoint_options;
  VERBENA_ASSIGN_OR_RETURN(endpoint_options.connect, CheckConnectOptions(options));
  VERBENA_ASSIGN_OR_RETURN(endpoint_options.server, NetAddress::Parse(server));
  if (endpoint_options.server.port() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", ToAbsl(server), "\" has port 0; a server's port is 1 to 65535"));
  }
  endpoint_options.operations = RequestSlots(options.depth);
  endpoint_options.deadline = MonotonicNanos() + Nanos(options.connect_timeout);
  VERBENA_ASSIGN_OR_RETURN(endpoint_options.session, RandomSession());
  VERBENA_ASSIGN_OR_RETURN(
      const client::FabricChoice fabric,
      client::ChooseFabric(options.fabric, endpoint_options.server, options.connect_timeout));
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<client::Waiter> waiter, client::Waiter::Create());
  absl::StatusOr<std::unique_ptr<Endpoint>> endpoint =
      Endpoint::Connect(*fabric.api, endpoint_options);
  if (absl::IsUnavailable(endpoint.status()) && !fabric.why_not_verbs.empty()) {
    return absl::UnavailableError(
        absl::StrCat(endpoint.status().message(), " (Fabric verbs: ", fabric.why_not_verbs, ".)"));
  }
  VERBENA_RETURN_IF_ERROR(endpoint.status());
  VERBENA_RETURN_IF_ERROR((*endpoint)->WatchedBy(*waiter));
  if (cache == nullptr) {
    cache =
        std::make_shared<client::SharedCache>(options.one_sided_reads ? options.cache_bytes : 0);
  }
  std::unique_ptr<Impl> impl(
      new Impl(*std::move(endpoint), std::move(waiter), options, std::move(cache)));
  VERBENA_RETURN_IF_ERROR(impl->Greet(endpoint_options.deadline));
  return impl;
}

// Says hello, learns where the slice is, reads its header and directory.
absl::Status Connection::Impl::Greet(int64_t deadline) {
  timeout_ns_ = std::max<int64_t>(deadline - MonotonicNanos(), 1'000'000);
  scan_interval_ns_ = ScanIntervalFor(timeout_ns_);
  wire::Hello hello{};
  hello.receive_size = Endpoint::kMessageBytes;
  hello.receive_count = endpoint_->receives();
  std::string answer;
  SyncCall call;
  call.value = &answer;
  VERBENA_RETURN_IF_ERROR(Request(OperationKind::kHello, wire::OpCode::kHello, {},
                                  {reinterpret_cast<const char*>(&hello), sizeof(hello)}, &call));
  VERBENA_ASSIGN_OR_RETURN(const wire::Welcome welcome, wire::DecodeWelcome(answer));
  VERBENA_RETURN_IF_ERROR(TakeWelcome(welcome));
  VERBENA_RETURN_IF_ERROR(OpenSlice(welcome));
  timeout_ns_ = Nanos(options_.operation_timeout);
  scan_interval_ns_ = ScanIntervalFor(timeout_ns_);
  return absl::OkStatus();
}

absl::Status Connection::Impl::TakeWelcome(const wire::Welcome& welcome) {
  if (welcome.layout != layout::kLayoutVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server's slice has layout version ", welcome.layout,
                     ", this client reads version ", layout::kLayoutVersion));
  }
  limits_.max_key_size = std::min<uint32_t>(welcome.max_key_size, layout::kMaxKeySize);
  limits_.max_value_size = std::min(welcome.max_value_size, layout::kMaxValueSize);
  touches_wanted_ = (welcome.features & wire::kFeatureTouches) != 0;
  if (touches_wanted_) touches_.reserve(kTouchesInReport);
  touch_random_ |= welcome.epoch ^ static_cast<uint64_t>(MonotonicNanos());
  limits_.window = std::min<uint32_t>(welcome.window, endpoint_->max_requests());
  requests_.set_max_message(welcome.max_message);
  // What every message must have room for: an operation on the longest key.
  const uint32_t fixed = static_cast<uint32_t>(
      sizeof(wire::RequestHeader) +
      wire::OperationSize(limits_.max_key_size, sizeof(wire::ValueReference)));
  if (requests_.max_message() < fixed) {
    return absl::FailedPreconditionError(absl::StrCat("the server takes messages of ",
                                                      welcome.max_message,
                                                      " bytes; a request may need ", fixed));
  }
  limits_.eager_limit =
      std::min(welcome.eager_limit,
               static_cast<uint32_t>(requests_.max_message() - sizeof(wire::RequestHeader) -
                                     wire::OperationSize(limits_.max_key_size, 0)));
  region_address_ = welcome.region_address;
  for (ibv_send_wr& request : read_list_) request.wr.rdma.rkey = welcome.region_rkey;
  return absl::OkStatus();
}

absl::StatusOr<const uint8_t*> Connection::Impl::ReadRaw(uint64_t offset, uint32_t length) {
  SyncCall call;
  VERBENA_ASSIGN_OR_RETURN(Operation * op, AcquireSync(OperationKind::kRawRead, &call));
  uint8_t* const target = op->sink->block.data();
  op->step = {
      .action = Lookup::Action::kRead, .length = length, .offset = offset, .target = target};
  reads_.Push(op);
  FinishSync(&call);
  if (!call.status.ok()) return call.status;
  return target;
}

absl::Status Connection::Impl::OpenSlice(const wire::Welcome& welcome) {
  if (welcome.region_size < layout::kRegionHeaderSize) {
    return absl::InternalError(
        absl::StrCat("the server's slice has only ", welcome.region_size, " bytes"));
  }
  VERBENA_ASSIGN_OR_RETURN(const uint8_t* bytes, ReadRaw(0, sizeof(layout::RegionHeader)));
  layout::RegionHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  VERBENA_ASSIGN_OR_RETURN(const client::SliceShape shape,
                           client::SliceShape::FromHeader(
                               header, welcome.region_size, welcome.epoch,
                               layout::ItemSize(limits_.max_key_size, limits_.max_value_size)));
  context_.emplace(shared_cache_->For(shape));
  if (!options_.one_sided_reads) return absl::OkStatus();
  if (options_.preload && !context_->index->preloaded.exchange(true)) {
    absl::Status status = Preload();
    // The next one that connects may do better.
    if (!status.ok()) context_->index->preloaded = false;
    return status;
  }
  if (shape.directory_size() > kEagerDirectory) return absl::OkStatus();
  for (uint64_t at = 0; at < shape.directory_size(); at += layout::kDirectoryPageSize) {
    VERBENA_ASSIGN_OR_RETURN(const uint8_t* page,
                             ReadRaw(shape.directory_offset + at, layout::kDirectoryPageSize));
    std::array<uint64_t, layout::kEntriesPerDirectoryPage> words;
    std::memcpy(words.data(), page, sizeof(words));
    context_->segments.Learn(at / sizeof(uint64_t), words);
    ++context_->counters.directory_reads;
  }
  return absl::OkStatus();
}

}  // namespace verbena
