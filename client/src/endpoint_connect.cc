// Endpoint: asking the server for a connection, as often as it takes, and what its answers mean.
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/causes.h"
#include "client/src/endpoint.h"
#include "common/base/blocked_signals.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/threads.h"
#include "common/layout/region_header.h"
#include "common/verbs/errors.h"
#include "common/wire/handshake.h"

namespace verbena::client {
namespace {

using Kind = ConnectAnswer::Kind;

// Attempts that wait at once. Each is repeated by the connection manager too, if slowly.
constexpr size_t kMostAttempts = 4;

// The time between attempts doubles up to so many times the first: an answer may always be lost,
// and whoever waits for it is not to wait for long.
constexpr int64_t kMostPatience = 16;

// Runs `task` in a thread that nobody waits for.
template <typename Task>
absl::Status RunBeside(Task&& task) {
  const BlockedSignals blocked;
  VERBENA_ASSIGN_OR_RETURN(std::thread thread, MakeThread("connecting", std::forward<Task>(task)));
  thread.detach();
  return absl::OkStatus();
}

// Attempts beside each other. An earlier one is not given up when a later one is made: a server
// that is slow rather than out of reach answers it in the end. The first answer counts; the other
// attempts are dropped, and the connection manager tells the server so.
class Attempts {
 public:
  Attempts(verbs::VerbsApi& api, const EndpointOptions& options)
      : api_(api), options_(options), patience_(std::max<int64_t>(options.patience, 1)) {}

  ~Attempts() { DropAll(); }

  absl::StatusOr<std::unique_ptr<Endpoint>> Run() {
    do {
      if (options_.cancelled != nullptr && options_.cancelled->load()) {
        return absl::CancelledError("connecting was given up");
      }
      if (MayBegin() && MonotonicNanos() >= next_) BeginOne();
      if (!refusal_.ok()) return refusal_;
      Wait(MayBegin() ? std::min(next_, options_.deadline) : options_.deadline);
      for (size_t i = 0; i < waiting_.size();) {
        if (std::unique_ptr<Endpoint> connected = Look(i)) return connected;
        if (!refusal_.ok()) return refusal_;
      }
    } while (MonotonicNanos() < options_.deadline);
    return absl::DeadlineExceededError(absl::StrCat(
        "connecting to ", options_.server.ToString(), " over ", api_.fabric(),
        " took longer than the time allowed (", made_, made_ == 1 ? " attempt" : " attempts",
        last_.ok() ? std::string(", without an answer: the server is stopped or overloaded, or the "
                                 "network loses what is sent; see whether it runs, or allow more "
                                 "time)")
                   : absl::StrCat("; the last: ", last_.message(), ")")));
  }

 private:
  void DropAll() {
    for (std::unique_ptr<Endpoint>& endpoint : waiting_) Endpoint::Drop(std::move(endpoint));
    waiting_.clear();
  }

  bool MayBegin() const { return waiting_.size() < kMostAttempts && !no_more_; }

  void BeginOne() {
    ++made_;
    EndpointOptions options = options_;
    const int64_t now = MonotonicNanos();
    options.deadline = std::min(options.deadline, now + patience_);
    next_ = now + patience_;
    patience_ = std::min(2 * patience_, kMostPatience * std::max<int64_t>(options_.patience, 1));
    Kind kind{};
    absl::StatusOr<std::unique_ptr<Endpoint>> endpoint = Endpoint::Begin(api_, options, &kind);
    if (endpoint.ok()) {
      waiting_.push_back(*std::move(endpoint));
      return;
    }
    last_ = endpoint.status();
    if (kind == Kind::kAgain) return;
    // Something is wrong here (no memory to be locked, say); those that wait may still be answered.
    no_more_ = !waiting_.empty();
    if (!no_more_) refusal_ = last_;
  }

  void Wait(int64_t until) {
    pollfd fds[kMostAttempts];
    for (size_t i = 0; i < waiting_.size(); ++i) fds[i] = {waiting_[i]->cm_fd(), POLLIN, 0};
    if (options_.cancelled != nullptr) until = std::min(until, MonotonicNanos() + kCancelInterval);
    poll(fds, waiting_.size(), MillisUntil(until));
  }

  // What has become of attempt `i`: connected, refused for good (refusal_), no longer waiting (the
  // next one then has its place), or still waiting (`i` is advanced).
  std::unique_ptr<Endpoint> Look(size_t& i) {
    const ConnectAnswer answer = waiting_[i]->Answer();
    if (answer.kind == Kind::kNone) {
      ++i;
      return nullptr;
    }
    std::unique_ptr<Endpoint> endpoint = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    if (answer.kind == Kind::kConnected) return endpoint;
    last_ = answer.status;
    if (answer.kind == Kind::kRefused || (answer.kind == Kind::kFull && made_ == 1)) {
      refusal_ = answer.status;
    } else if (answer.kind == Kind::kFull) {
      // An earlier attempt, whose answer was lost, may be what fills the server: it lets go of it.
      DropAll();
      i = 0;
      patience_ = std::max<int64_t>(options_.patience, 1);  // the server answers
      next_ = MonotonicNanos() + options_.patience / 4;
    }
    return nullptr;
  }

  verbs::VerbsApi& api_;
  const EndpointOptions& options_;
  int64_t patience_;
  int64_t next_ = 0;  // when to make the next attempt
  int made_ = 0;
  bool no_more_ = false;
  std::vector<std::unique_ptr<Endpoint>> waiting_;
  absl::Status refusal_;
  absl::Status last_;  // of an attempt that has failed
};

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Connect(verbs::VerbsApi& api,
                                                            const EndpointOptions& options) {
  return Attempts(api, options).Run();
}

absl::Status Endpoint::Ask(uint64_t session) {
  wire::ConnectData connect;
  connect.layout = layout::kLayoutVersion;
  connect.tenant = wire::TenantId("default");
  connect.session = session;
  if (getrandom(connect.nonce.data(), connect.nonce.size(), 0) !=
      static_cast<ssize_t>(connect.nonce.size())) {
    return absl::UnavailableError("getrandom gave no random bytes for the handshake");
  }
  const auto bytes = wire::Encode(connect);
  absl::Status status = cm_id_.Connect(verbs::MakeConnParam(connect_options_, bytes));
  // Drivers that open a TCP connection in here tell what came of it in here, too.
  if (verbs::ErrnoOf(status) == ECONNREFUSED) return NobodyListens();
  return status;
}

absl::Status Endpoint::NobodyListens() const {
  return absl::UnavailableError(absl::StrCat("nobody listens at ", server_, " on fabric ", fabric(),
                                             ": is a verbena-server running there?"));
}

// Where asking may block, it is done in another thread, which keeps the endpoint if it takes too
// long, and destroys it when it is done.
absl::Status Endpoint::AskInTime(std::unique_ptr<Endpoint>& endpoint,
                                 const EndpointOptions& options) {
  if (!endpoint->capabilities_->connecting_blocks()) return endpoint->Ask(options.session);
  struct Call {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    absl::Status status;
    std::unique_ptr<Endpoint> kept;
  };
  const auto call = std::make_shared<Call>();
  const absl::Status started =
      RunBeside([call, asking = endpoint.get(), session = options.session] {
        absl::Status status = asking->Ask(session);
        std::unique_ptr<Endpoint> kept;
        const std::lock_guard lock(call->mutex);
        call->status = std::move(status);
        call->done = true;
        kept = std::move(call->kept);
        call->changed.notify_one();
      });
  VERBENA_RETURN_IF_ERROR(started);
  std::unique_lock lock(call->mutex);
  const std::chrono::nanoseconds left(std::max<int64_t>(options.deadline - MonotonicNanos(), 0));
  if (call->changed.wait_for(lock, left, [&] { return call->done; })) return call->status;
  absl::Status late = absl::DeadlineExceededError(absl::StrCat(
      endpoint->server_, " does not answer over ", endpoint->fabric(), " (no TCP connection)"));
  call->kept = std::move(endpoint);
  return late;
}

void Endpoint::Drop(std::unique_ptr<Endpoint> endpoint) {
  if (endpoint == nullptr || !endpoint->capabilities_->connecting_blocks()) return;
  auto shared = std::make_shared<std::unique_ptr<Endpoint>>(std::move(endpoint));
  // Without a thread it is destroyed here.
  RunBeside([shared] { shared->reset(); }).IgnoreError();
}

ConnectAnswer Endpoint::Answer() {
  absl::StatusOr<std::optional<verbs::CmEvent>> event = cm_channel_.TryGetEvent();
  if (!event.ok()) return {Kind::kRefused, event.status()};
  if (!event->has_value()) return {};
  const rdma_cm_event_type type = (*event)->type();
  const int reason = (*event)->status();
  if (type == RDMA_CM_EVENT_REJECTED) return OnRejected(**event);
  if (type != RDMA_CM_EVENT_ESTABLISHED) {
    absl::Status error = verbs::CmEventError(type, reason, server_);
    if (error.ok()) return {};  // progress
    // The connection manager has given up: here, or (a link that is down) at once. That this
    // process may open no more files another attempt does not change.
    const bool again = type == RDMA_CM_EVENT_UNREACHABLE && reason != -EMFILE && reason != -ENFILE;
    return {again ? Kind::kAgain : Kind::kRefused, std::move(error)};
  }
  connected_ = true;
  absl::Status status = OnEstablished(**event);
  (*event)->Ack();
  if (!status.ok()) return {Kind::kRefused, std::move(status)};
  status = verbs::ApplyAfterConnect(cm_id_, qp_, connect_options_);
  // On a connection that has ended already, by any errno.
  if (!status.ok()) return {Kind::kRefused, absl::UnavailableError(status.message())};
  return {Kind::kConnected, {}};
}

absl::Status Endpoint::OnEstablished(const verbs::CmEvent& event) {
  const absl::StatusOr<wire::AcceptData> accept = wire::DecodeAccept(event.private_data());
  if (!accept.ok()) {
    return Final(absl::FailedPreconditionError(absl::StrCat(
        server_,
        " accepted the connection, but is no Verbena server: ", accept.status().message())));
  }
  if (accept->protocol != wire::kProtocolVersion) {
    return Final(absl::FailedPreconditionError(
        absl::StrCat("the server at ", server_, " speaks protocol version ", accept->protocol,
                     ", this client version ", wire::kProtocolVersion)));
  }
  if (accept->layout != layout::kLayoutVersion) {
    return Final(absl::FailedPreconditionError(
        absl::StrCat("the server at ", server_, " has layout version ", accept->layout,
                     ", this client reads version ", layout::kLayoutVersion)));
  }
  return absl::OkStatus();
}

ConnectAnswer Endpoint::OnRejected(const verbs::CmEvent& event) const {
  const int reason = event.status();
  const absl::StatusOr<wire::RejectData> reject = wire::DecodeReject(event.private_data());
  if (!reject.ok()) {
    // iWARP says ECONNREFUSED for a server's refusal as well, but then there is private data.
    if (reason == verbs::kRejectedNoListener || reason == -ECONNREFUSED) {
      return {Kind::kRefused, NobodyListens()};
    }
    // The server's connection manager did not hear from this side, or takes the queue pair for one
    // of an earlier connection: both pass with a new attempt.
    const bool again =
        reason == verbs::kRejectedTimeout || reason == verbs::kRejectedStaleConnection;
    return {again ? Kind::kAgain : Kind::kRefused,
            verbs::CmEventError(event.type(), reason, server_)};
  }
  std::string text = absl::StrCat("the server at ", server_, " refused the connection: ");
  if (reject->reason == wire::RejectReason::kOtherProtocol) {
    return {Kind::kRefused, Final(absl::FailedPreconditionError(absl::StrCat(
                                text, "it speaks protocol version ", reject->protocol,
                                ", this client version ", wire::kProtocolVersion,
                                reject->layout != layout::kLayoutVersion
                                    ? absl::StrCat("; its layout version is ", reject->layout,
                                                   ", this client's ", layout::kLayoutVersion)
                                    : "")))};
  }
  absl::StrAppend(&text,
                  reject->text.empty() ? wire::RejectReasonName(reject->reason) : reject->text);
  if (reject->reason == wire::RejectReason::kDraining) {
    return {Kind::kRefused, absl::UnavailableError(text)};
  }
  absl::Status refused = absl::FailedPreconditionError(text);
  switch (reject->reason) {
    case wire::RejectReason::kConnectionLimit:
      return {Kind::kFull, std::move(refused)};
    case wire::RejectReason::kResources:
      return {Kind::kRefused, std::move(refused)};
    default:  // what another attempt would be told, too
      return {Kind::kRefused, Final(std::move(refused))};
  }
}

}  // namespace verbena::client
