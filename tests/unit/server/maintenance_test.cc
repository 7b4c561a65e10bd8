#include "server/maintenance.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/compactor.h"

namespace verbena::server {
namespace {

// Counts a task's calls, and waits for them.
class Calls {
 public:
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool WaitFor(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return count_ >= count; });
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

TEST(MaintenanceTest, ATaskRunsAtTheStartAndWhenWoken) {
  Calls calls;
  Maintenance maintenance({[&](int64_t) {
    calls.Add();
    return Maintenance::kWhenWoken;
  }});
  maintenance.Start();
  ASSERT_TRUE(calls.WaitFor(1));
  for (int i = 2; i < 100; ++i) {
    maintenance.Wake();
    ASSERT_TRUE(calls.WaitFor(i));
  }
  maintenance.Stop();
  // Each wake-up was for one call, at most two (at the start, before the thread looked).
  EXPECT_LE(calls.count(), 200);
  EXPECT_EQ(maintenance.rounds(), static_cast<uint64_t>(calls.count()));
}

TEST(MaintenanceTest, ATaskRunsWhenItAsksFor) {
  Calls calls;
  const int64_t begin = MonotonicNanos();
  Maintenance maintenance({[&](int64_t now) {
    calls.Add();
    return calls.count() < 4 ? now + 10'000'000 : Maintenance::kWhenWoken;
  }});
  maintenance.Start();
  ASSERT_TRUE(calls.WaitFor(4));
  EXPECT_GE(MonotonicNanos() - begin, 30'000'000);
}

TEST(MaintenanceTest, WithoutTasksThereIsNoThread) {
  Maintenance maintenance({});
  maintenance.Start();
  maintenance.Wake();
  maintenance.Stop();
  EXPECT_EQ(maintenance.rounds(), 0u);
}

// Three quarters of a full store are deleted: compaction starts by itself, does not move more than
// it may, and comes to rest.
TEST(MaintenanceTest, CompactsAtABoundedRate) {
  storage::RegionOptions options;
  options.size = 32 * kMiB;
  options.want_huge_pages = false;
  absl::StatusOr<storage::Region> region = storage::Region::Create(options);
  ASSERT_TRUE(region.ok()) << region.status();
  absl::StatusOr<std::unique_ptr<storage::Store>> created =
      storage::Store::Create(*std::move(region), {});
  ASSERT_TRUE(created.ok()) << created.status();
  storage::Store& store = **created;
  constexpr uint64_t kRate = 4 * kMiB;
  Maintenance maintenance({CompactionTask(store, kRate)});
  store.allocator().SetFreedNotice(kMiB, [&] { maintenance.Wake(); });
  maintenance.Start();
  const std::string value(500, 'v');
  int count = 0;
  const auto bytes = [&] {
    return std::span(reinterpret_cast<const uint8_t*>(value.data()), value.size());
  };
  while (store.Put(0, absl::StrCat("key", count), bytes()).ok()) ++count;
  const int64_t begin = MonotonicNanos();
  const uint64_t moved_before = store.Stats().compaction.bytes_moved;
  for (int i = 0; i < count; ++i) {
    if (i % 4 != 0) {
      ASSERT_TRUE(store.Delete(0, absl::StrCat("key", i))->existed);
    }
  }
  store.allocator().FlushCaches();
  const int64_t deadline = MonotonicNanos() + 60'000'000'000;
  while (store.allocator().heap().IsSparse() && MonotonicNanos() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(store.allocator().heap().IsSparse());
  const double seconds = static_cast<double>(MonotonicNanos() - begin) / 1e9;
  const uint64_t moved = store.Stats().compaction.bytes_moved - moved_before;
  EXPECT_GT(moved, 0u);
  // The last step's pause is not over.
  EXPECT_LE(static_cast<double>(moved), (seconds + 0.5) * kRate);
  maintenance.Stop();
  EXPECT_TRUE(store.allocator().Validate().ok()) << store.allocator().Validate();
}

}  // namespace
}  // namespace verbena::server
