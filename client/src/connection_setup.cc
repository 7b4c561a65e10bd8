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
#include "common/layout/directory.h"
#include "common/layout/item.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/data_path.h"

namespace verbena {
namespace {

constexpr uint32_t kMaxDepth = 1024;

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

// Times end well before the clock's nanoseconds do.
constexpr std::chrono::nanoseconds kLongestTime{INT64_MAX / 4};

// A duration that is at least `least`; compared as it is, since its nanoseconds may not fit.
template <typename Duration>
absl::Status CheckTime(const char* name, Duration time, Duration least, const char* unit) {
  const auto most = std::chrono::duration_cast<Duration>(kLongestTime);
  if (time >= least && time <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is ", time.count(), " ", unit, "; it must be ", least.count(), " to ", most.count()));
}

absl::Status CheckOptions(const Options& options) {
  if (options.depth < 1 || options.depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("depth is ", options.depth, "; it must be 1 to ", kMaxDepth));
  }
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  VERBENA_RETURN_IF_ERROR(
      CheckTime("connect_timeout", options.connect_timeout, milliseconds(1), "ms"));
  VERBENA_RETURN_IF_ERROR(
      CheckTime("operation_timeout", options.operation_timeout, milliseconds(1), "ms"));
  return CheckTime("poll_time", options.poll_time, microseconds(0), "us");
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
  const int64_t deadline = MonotonicNanos() + Nanos(options.connect_timeout);
  VERBENA_ASSIGN_OR_RETURN(endpoint_options.session, RandomSession());
  VERBENA_ASSIGN_OR_RETURN(
      const client::FabricChoice fabric,
      client::ChooseFabric(options.fabric, endpoint_options.server, options.connect_timeout));
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<client::Waiter> waiter, client::Waiter::Create());
  client::Dialling dialling;
  dialling.api = fabric.api;
  dialling.endpoint = endpoint_options;
  dialling.greet.operations = options.reconnect ? RequestSlots(options.depth) : 0;
  dialling.greet.want_directory = options.one_sided_reads && !options.preload;
  absl::StatusOr<client::Connected> connected =
      client::Dial(dialling, deadline, /*cancelled=*/nullptr);
  if (absl::IsUnavailable(connected.status()) && !fabric.why_not_verbs.empty()) {
    return absl::UnavailableError(
        absl::StrCat(connected.status().message(), " (Fabric verbs: ", fabric.why_not_verbs, ".)"));
  }
  VERBENA_RETURN_IF_ERROR(connected.status());
  VERBENA_RETURN_IF_ERROR(connected->endpoint->WatchedBy(*waiter));
  if (cache == nullptr) {
    cache =
        std::make_shared<client::SharedCache>(options.one_sided_reads ? options.cache_bytes : 0);
  }
  std::unique_ptr<Impl> impl(
      new Impl(*std::move(connected), std::move(waiter), dialling, options, std::move(cache)));
  VERBENA_RETURN_IF_ERROR(impl->PreloadOnce(deadline));
  return impl;
}

// Within what is left of the time for connecting.
absl::Status Connection::Impl::PreloadOnce(int64_t deadline) {
  client::IndexCache& index = *context_->index;
  if (!options_.preload || !options_.one_sided_reads || index.preloaded.exchange(true)) {
    return absl::OkStatus();
  }
  timeout_ns_ = std::max<int64_t>(deadline - MonotonicNanos(), 1'000'000);
  scan_interval_ns_ = ScanIntervalFor(timeout_ns_);
  absl::Status status = Preload();
  timeout_ns_ = Nanos(options_.operation_timeout);
  scan_interval_ns_ = ScanIntervalFor(timeout_ns_);
  // The next one that connects may do better.
  if (!status.ok()) index.preloaded = false;
  return status;
}

Connection::Impl::Impl(client::Connected connected, std::unique_ptr<client::Waiter> waiter,
                       const client::Dialling& dialling, const Options& options,
                       std::shared_ptr<client::SharedCache> cache)
    : options_(options),
      dialling_(dialling),
      waiter_(std::move(waiter)),
      endpoint_(std::move(connected.endpoint)),
      large_buffers_(*endpoint_, kLargeBufferBytes),
      pool_(options.depth),
      requests_(*endpoint_, RequestSlots(options.depth)),
      keys_(new char[kKeyStride * client::OperationPool::SlotsFor(options.depth)]),
      shared_cache_(std::move(cache)),
      timeout_ns_(Nanos(options.operation_timeout)),
      not_found_(absl::NotFoundError("no such key")),
      starts_(options.depth),
      reads_(options.depth),
      space_waiters_(options.depth),
      scan_interval_ns_(ScanIntervalFor(timeout_ns_)),
      reconnector_(dialling_, *waiter_) {
  pool_.ForEachSlot([this](Operation& op) { op.key_memory = keys_.get() + kKeyStride * op.slot; });
  for (uint32_t i = 0; i < kReadList; ++i) {
    read_list_[i] = verbs::MakeRead(0, &read_sges_[size_t{2} * i], 0, 0);
  }
  lone_read_ = verbs::MakeRead(0, &lone_sge_, 0, 0);
  TakeGreeting(connected.greeting);
}

// What a new connection is about: limits, where the slice is, and what of it is known from before.
void Connection::Impl::TakeGreeting(const client::Greeting& greeting) {
  const wire::Welcome& welcome = greeting.welcome;
  limits_ = greeting.limits;
  touches_wanted_ = (welcome.features & wire::kFeatureTouches) != 0;
  if (touches_wanted_) touches_.reserve(kTouchesInReport);
  touch_random_ |= welcome.epoch ^ static_cast<uint64_t>(MonotonicNanos());
  // Else a connection of a few GETs would never report one of the first.
  touch_countdown_ = 1 + static_cast<uint32_t>(touch_random_ % kTouchEvery);
  requests_.set_max_message(greeting.max_message);
  incarnation_ = welcome.incarnation;
  requests_.set_session_operations(welcome.operations);
  requests_.set_grant(greeting.grant);
  lkey_ = endpoint_->lkey();
  region_address_ = welcome.region_address;
  for (ibv_send_wr& request : read_list_) request.wr.rdma.rkey = welcome.region_rkey;
  lone_read_.wr.rdma.rkey = welcome.region_rkey;
  lone_sge_.lkey = lkey_;
  lone_qp_ = endpoint_->qp();
  lone_cq_ = endpoint_->cq();
  pool_.ForEachSlot([this](Operation& op) {
    op.sink = endpoint_->sink(op.slot);
    op.lookup.UseSink(op.sink);
  });
  // Of another server process there are other data, and nothing that is known holds.
  std::shared_ptr<client::IndexCache> index = shared_cache_->For(greeting.shape);
  if (!context_.has_value() || context_->index != index) {
    const client::LookupCounters counters =
        context_.has_value() ? context_->counters : client::LookupCounters();
    context_.emplace(std::move(index));
    context_->counters = counters;
  }
  warm_reads_ = options_.one_sided_reads && context_->cache.enabled();
  constexpr size_t kWords = layout::kEntriesPerDirectoryPage;
  for (size_t at = 0; at + kWords <= greeting.directory.size(); at += kWords) {
    context_->segments.Learn(at, std::span(greeting.directory).subspan(at, kWords));
  }
  context_->counters.directory_reads += greeting.reads;
}

}  // namespace verbena
