#include "server/maintenance.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/threads.h"
#include "server/storage/allocator.h"
#include "server/storage/compactor.h"

namespace verbena::server {
namespace {

// Between two searches that find nothing, however often the thread is woken. ns.
constexpr int64_t kRest = 100'000'000;

}  // namespace

absl::Status Maintenance::Start() {
  if (tasks_.empty()) return absl::OkStatus();
  VERBENA_ASSIGN_OR_RETURN(thread_, MakeThread("maintenance", [this] { Run(); }));
  return absl::OkStatus();
}

void Maintenance::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wakes_.notify_one();
  thread_.join();
}

// The thread looks at `woken_` with the mutex held before it sleeps. So whoever sets it and has had
// the mutex afterwards finds the thread either not yet there, and it sees `woken_`, or asleep, and
// the notice reaches it.
void Maintenance::Wake() {
  if (woken_.exchange(true)) return;
  { const std::lock_guard lock(mutex_); }
  wakes_.notify_one();
}

void Maintenance::Run() {
  for (;;) {
    // Ahead of the tasks: what happens while they run wakes the thread once more.
    woken_.store(false);
    int64_t next = kWhenWoken;
    for (const Task& task : tasks_) next = std::min(next, task(MonotonicNanos()));
    rounds_.fetch_add(1, std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    const auto wanted = [this] { return stopping_ || woken_.load(); };
    if (next == kWhenWoken) {
      wakes_.wait(lock, wanted);
    } else {
      const int64_t pause = std::max<int64_t>(next - MonotonicNanos(), 0);
      wakes_.wait_for(lock, std::chrono::nanoseconds(pause), wanted);
    }
    if (stopping_) return;
  }
}

int64_t CompactionTask::operator()(int64_t now) {
  // Woken during a pause, by what compaction itself has freed for example.
  if (now < not_before_) return not_before_;
  storage::Compactor& compactor = store_.compactor();
  const uint64_t emptied = compactor.counters().windows_emptied;
  const uint64_t moved = compactor.Step(store_.maintenance_worker());
  if (compactor.counters().windows_emptied != emptied) pause_ = kFirstPause;
  if (moved > 0) {
    not_before_ =
        now + static_cast<int64_t>(static_cast<double>(moved) * 1e9 / static_cast<double>(rate_));
    return not_before_;
  }
  // In this order: what makes the heap sparse after the look is told.
  storage::PageHeap& heap = store_.allocator().heap();
  heap.RearmSparseNotice();
  if (!heap.IsSparse()) return Maintenance::kWhenWoken;
  not_before_ = now + kRest;
  return now + std::exchange(pause_, std::min(2 * pause_, kLongestPause));
}

}  // namespace verbena::server
