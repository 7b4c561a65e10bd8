#include "common/softverbs/service_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/blocked_signals.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/threads.h"

namespace verbena::softverbs {

ServiceThread::ServiceThread()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (valid()) epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
}

ServiceThread::~ServiceThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

absl::Status ServiceThread::Start() {
  if (thread_.joinable()) return absl::OkStatus();
  const BlockedSignals blocked;
  VERBENA_ASSIGN_OR_RETURN(thread_, MakeThread("the software device", [this] { Run(); }));
  pthread_setname_np(thread_.native_handle(), "vsoft");
  return absl::OkStatus();
}

uint64_t ServiceThread::Add(int fd, uint32_t events, std::shared_ptr<EpollHandler> handler) {
  const std::lock_guard lock(mutex_);
  const uint64_t token = next_token_++;
  handlers_[token] = std::move(handler);
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    handlers_.erase(token);
    return 0;
  }
  return token;
}

void ServiceThread::Modify(uint64_t token, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void ServiceThread::Remove(uint64_t token, int fd) {
  std::shared_ptr<EpollHandler> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (const auto it = handlers_.find(token); it != handlers_.end()) {
    last = std::move(it->second);
    handlers_.erase(it);
  }
}

void ServiceThread::RunAt(int64_t when, std::function<void()> action) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = timers_.empty() || when < timers_.begin()->first;
    timers_.emplace(when, std::move(action));
  }
  if (first) Wake();
}

void ServiceThread::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

int ServiceThread::NextTimeoutMs() {
  const std::lock_guard lock(mutex_);
  if (timers_.empty()) return -1;
  const int64_t wait = timers_.begin()->first - MonotonicNanos();
  if (wait <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(wait / 1'000'000 + 1, 60'000));
}

void ServiceThread::RunTimers() {
  for (;;) {
    std::function<void()> action;
    {
      const std::lock_guard lock(mutex_);
      if (timers_.empty() || timers_.begin()->first > MonotonicNanos()) return;
      action = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
    action();
  }
}

void ServiceThread::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int n = epoll_wait(epoll_.get(), events.data(), events.size(), NextTimeoutMs());
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      // A copy, since nothing may refer to a member of a packed struct.
      const uint64_t token = event.data.u64;
      std::shared_ptr<EpollHandler> handler;
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
        if (token == 0) {
          uint64_t count;
          (void)!read(wake_.get(), &count, sizeof(count));
          continue;
        }
        const auto it = handlers_.find(token);
        if (it != handlers_.end()) handler = it->second;
      }
      if (handler) handler->OnEvents(event.events);
    }
    RunTimers();
  }
}

}  // namespace verbena::softverbs
