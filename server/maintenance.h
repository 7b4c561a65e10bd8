// The one thread that keeps house beside those that serve. It runs its tasks when they ask for it
// or when somebody wakes it, and sleeps otherwise: a server in which nothing happens takes no
// processor time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/storage/store.h"

namespace verbena::server {

class Maintenance {
 public:
  // Does a bounded piece of work, and tells when it wants to be called next: a time of
  // MonotonicNanos (now or earlier: at once), or kWhenWoken. It may be called earlier than that.
  // All run on the one thread, which is the store's maintenance worker.
  using Task = std::function<int64_t(int64_t now)>;
  static constexpr int64_t kWhenWoken = INT64_MAX;

  explicit Maintenance(std::vector<Task> tasks) : tasks_(std::move(tasks)) {}
  ~Maintenance() { Stop(); }
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

  // Starts the thread, which runs all tasks once; none if there are no tasks. ResourceExhausted if
  // there is no thread to be had.
  absl::Status Start();
  // Waits for the task that is running. The thread is gone afterwards. Not thread-safe.
  void Stop();
  // All tasks are run soon. Thread-safe and short; may be called with locks held.
  void Wake();

  // How often the tasks were gone through.
  uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

 private:
  void Run();

  const std::vector<Task> tasks_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::atomic<bool> woken_{false};
  bool stopping_ = false;  // under mutex_
  std::atomic<uint64_t> rounds_{0};
};

// Compaction in the background: a step whenever there is something to gain, with pauses so that not
// more than `rate` bytes are moved in a second.
//
// The heap becomes sparse by what is freed or by what is allocated, and the allocator tells of both
// (Allocator::SetCompactionNotice). Where it is sparse and nothing could be done, something may
// change of which nobody tells (a pin is given back, a value that was under way is stored), so it
// is tried again, less and less often.
class CompactionTask {
 public:
  static constexpr int64_t kFirstPause = 1'000'000'000;     // ns
  static constexpr int64_t kLongestPause = 16'000'000'000;  // ns

  CompactionTask(storage::Store& store, uint64_t rate) : store_(store), rate_(rate) {}

  int64_t operator()(int64_t now);

 private:
  storage::Store& store_;
  const uint64_t rate_;  // bytes a second
  int64_t not_before_ = 0;
  int64_t pause_ = kFirstPause;  // until it is tried again, ns
};

}  // namespace verbena::server
