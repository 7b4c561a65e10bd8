#include "client/src/waiter.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/macros.h"

namespace verbena::client {
namespace {

absl::Status DescriptorError(const char* what, int error) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " failed: ", std::strerror(error),
                   "; a connection needs three file descriptors and those of its device, this "
                   "process may have ",
                   limit.rlim_cur, " (ulimit -n)"));
}

}  // namespace

Waiter::Waiter(UniqueFd epoll, UniqueFd timer, UniqueFd wake)
    : epoll_(std::move(epoll)), timer_(std::move(timer)), wake_(std::move(wake)) {}

absl::StatusOr<std::unique_ptr<Waiter>> Waiter::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return DescriptorError("epoll_create1", errno);
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return DescriptorError("timerfd_create", errno);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return DescriptorError("eventfd", errno);
  std::unique_ptr<Waiter> waiter(new Waiter(std::move(epoll), std::move(timer), std::move(wake)));
  VERBENA_RETURN_IF_ERROR(waiter->Add(waiter->timer_.get(), kTimer));
  VERBENA_RETURN_IF_ERROR(waiter->Add(waiter->wake_.get(), kWake));
  return waiter;
}

absl::Status Waiter::Add(int fd, uint32_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = what;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat("descriptor ", fd, " cannot be waited on: ", std::strerror(error)));
}

absl::Status Waiter::Watch(Source source, int fd) {
  int& watched = watched_[static_cast<size_t>(source)];
  if (watched == fd) return absl::OkStatus();
  // It may have been closed already, and then is out of the set.
  if (watched >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched, nullptr);
  watched = -1;
  if (fd < 0) return absl::OkStatus();
  VERBENA_RETURN_IF_ERROR(Add(fd, static_cast<uint32_t>(source)));
  watched = fd;
  return absl::OkStatus();
}

Waiter::Ready Waiter::Wait(int64_t deadline) { return Take(MillisUntil(deadline)); }

Waiter::Ready Waiter::Take(int timeout_ms) {
  std::array<epoll_event, 4> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  Ready ready;
  for (int i = 0; i < count; ++i) {
    uint64_t ticks = 0;
    switch (events[static_cast<size_t>(i)].data.u32) {
      case static_cast<uint32_t>(Source::kCompletions):
        ready.completions = true;
        break;
      case static_cast<uint32_t>(Source::kEvents):
        ready.events = true;
        break;
      case kTimer:
        ready.timer = read(timer_.get(), &ticks, sizeof(ticks)) > 0;
        timer_at_ = INT64_MAX;
        break;
      default:
        ready.woken = read(wake_.get(), &ticks, sizeof(ticks)) > 0;
    }
  }
  return ready;
}

void Waiter::WakeAt(int64_t deadline) {
  if (deadline >= timer_at_) return;
  // A time of zero would turn the timer off.
  const int64_t at = std::max<int64_t>(deadline, 1);
  itimerspec time{};
  time.it_value.tv_sec = at / 1'000'000'000;
  time.it_value.tv_nsec = at % 1'000'000'000;
  if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr) == 0) timer_at_ = deadline;
}

void Waiter::Wake() const {
  const int error = errno;  // a signal handler's caller still needs it
  const uint64_t one = 1;
  // It fails only where the counter is full, and then the descriptor is readable.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  errno = error;
}

}  // namespace verbena::client
