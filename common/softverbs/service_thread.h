// The device's own thread in a process, started on first use: it serves sockets, timers and kicks
// from peers, as an adapter's firmware does. It blocks all signals and sleeps while there is
// nothing to do. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"

namespace verbena::softverbs {

class EpollHandler {
 public:
  virtual ~EpollHandler() = default;
  // Called on the service thread with EPOLL* bits; may still be called once after Remove returns.
  virtual void OnEvents(uint32_t events) = 0;
};

class ServiceThread {
 public:
  ServiceThread();
  ~ServiceThread();

  bool valid() const { return epoll_.valid() && wake_.valid(); }
  // ResourceExhausted if there is no thread to be had.
  absl::Status Start();

  // Watches `fd` (not owned) until Remove. Returns a token, 0 on failure.
  uint64_t Add(int fd, uint32_t events, std::shared_ptr<EpollHandler> handler);
  void Modify(uint64_t token, int fd, uint32_t events);
  void Remove(uint64_t token, int fd);

  // Calls `action` on the service thread once `when` (MonotonicNanos) has come.
  void RunAt(int64_t when, std::function<void()> action);

 private:
  void Run();
  void RunTimers();
  int NextTimeoutMs();
  void Wake();

  UniqueFd epoll_;
  UniqueFd wake_;
  std::mutex mutex_;
  bool stop_ = false;
  uint64_t next_token_ = 1;  // 0 is the wake descriptor's
  std::unordered_map<uint64_t, std::shared_ptr<EpollHandler>> handlers_;
  std::multimap<int64_t, std::function<void()>> timers_;
  std::thread thread_;
};

}  // namespace verbena::softverbs
