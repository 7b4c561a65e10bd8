#include "client/src/reconnector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/causes.h"
#include "common/base/blocked_signals.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/threads.h"

namespace verbena::client {

namespace {

// The part of the time that is left for connecting, and the least time (ns), that a greeting has
// before another connection is tried.
constexpr int64_t kGreetParts = 4;
constexpr int64_t kLeastGreetTime = 1'000'000'000;

}  // namespace

// A connection that was made and lost again before it could be used is made once more, where lost
// ones are made again at all (they have sessions then).
absl::StatusOr<Connected> Dial(const Dialling& dialling, int64_t deadline,
                               const std::atomic<bool>* cancelled) {
  EndpointOptions endpoint_options = dialling.endpoint;
  endpoint_options.deadline = deadline;
  endpoint_options.cancelled = cancelled;
  GreetOptions greet_options = dialling.greet;
  greet_options.cancelled = cancelled;
  const int most = dialling.greet.operations != 0 ? 5 : 1;
  for (int tries = 1;; ++tries) {
    VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<Endpoint> endpoint,
                             Endpoint::Connect(*dialling.api, endpoint_options));
    // A connection on which nothing comes (siw has been seen to send nothing at all on one) is
    // given a part of the time only. To greet anew changes nothing at the server.
    const int64_t now = MonotonicNanos();
    greet_options.deadline =
        std::min(deadline, now + std::max((deadline - now) / kGreetParts, kLeastGreetTime));
    absl::StatusOr<Greeting> greeting = Greet(*endpoint, greet_options);
    if (greeting.ok()) return Connected{std::move(endpoint), *std::move(greeting)};
    const bool again = (absl::IsDeadlineExceeded(greeting.status()) ||
                        (absl::IsUnavailable(greeting.status()) && tries < most)) &&
                       MonotonicNanos() < deadline;
    Endpoint::Drop(std::move(endpoint));
    if (!again) return greeting.status();
  }
}

BackOff::BackOff() : random_(std::random_device{}()) {}

int64_t BackOff::Next() {
  const int64_t wait = std::uniform_int_distribution<int64_t>(0, limit_)(random_);
  limit_ = std::min(2 * limit_, kMost);
  return wait;
}

Reconnector::~Reconnector() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

absl::Status Reconnector::Start(int64_t deadline) {
  const BlockedSignals blocked;
  VERBENA_ASSIGN_OR_RETURN(thread_,
                           MakeThread("connecting again", [this, deadline] { Run(deadline); }));
  return absl::OkStatus();
}

void Reconnector::Run(int64_t deadline) {
  absl::StatusOr<Connected> outcome = Dial(dialling_, deadline, &cancelled_);
  {
    // Either it is here before Cancel, which takes it, or it comes too late.
    const std::lock_guard lock(mutex_);
    if (!cancelled_) outcome_ = std::move(outcome);
  }
  waiter_.Wake();
}

std::optional<absl::StatusOr<Connected>> Reconnector::Take() {
  std::optional<absl::StatusOr<Connected>> outcome;
  {
    const std::lock_guard lock(mutex_);
    if (!outcome_.has_value()) return std::nullopt;
    outcome = std::move(outcome_);
    outcome_.reset();
  }
  thread_.join();
  return outcome;
}

void Reconnector::Cancel() {
  std::optional<absl::StatusOr<Connected>> dropped;
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  dropped.swap(outcome_);
}

void Reconnector::Abandon() {
  if (thread_.joinable()) thread_.detach();
}

}  // namespace verbena::client
