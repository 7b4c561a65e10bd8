#include "server/maintenance.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/compactor.h"
#include "tests/no_threads.h"

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

TEST(MaintenanceTest, WithoutAThreadItSaysSo) {
  Maintenance maintenance({[](int64_t) { return Maintenance::kWhenWoken; }});
  const testing::NoThreads none;
  EXPECT_TRUE(absl::IsResourceExhausted(maintenance.Start()));
}

TEST(MaintenanceTest, ATaskRunsAtTheStartAndWhenWoken) {
  Calls calls;
  Maintenance maintenance({[&](int64_t) {
    calls.Add();
    return Maintenance::kWhenWoken;
  }});
  ASSERT_TRUE(maintenance.Start().ok());
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
  ASSERT_TRUE(maintenance.Start().ok());
  ASSERT_TRUE(calls.WaitFor(4));
  EXPECT_GE(MonotonicNanos() - begin, 30'000'000);
}

TEST(MaintenanceTest, WithoutTasksThereIsNoThread) {
  Maintenance maintenance({});
  ASSERT_TRUE(maintenance.Start().ok());
  maintenance.Wake();
  maintenance.Stop();
  EXPECT_EQ(maintenance.rounds(), 0u);
}

std::unique_ptr<storage::Store> SmallStore() {
  storage::RegionOptions options;
  options.size = 32 * kMiB;
  options.want_huge_pages = false;
  absl::StatusOr<storage::Region> region = storage::Region::Create(options);
  EXPECT_TRUE(region.ok()) << region.status();
  if (!region.ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<storage::Store>> store =
      storage::Store::Create(*std::move(region), {});
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Three quarters of a full store are deleted: compaction starts by itself, does not move more than
// it may, and comes to rest.
TEST(MaintenanceTest, CompactsAtABoundedRate) {
  const std::unique_ptr<storage::Store> created = SmallStore();
  ASSERT_NE(created, nullptr);
  storage::Store& store = *created;
  constexpr uint64_t kRate = 4 * kMiB;
  Maintenance maintenance({CompactionTask(store, kRate)});
  store.allocator().SetCompactionNotice(kMiB, [&] { maintenance.Wake(); });
  ASSERT_TRUE(maintenance.Start().ok());
  const std::string value(500, 'v');
  int count = 0;
  while (store.Put(0, absl::StrCat("key", count), Bytes(value)).ok()) ++count;
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

// Nothing is freed any more when what is free for all sizes runs short: it is the allocation that
// makes the heap sparse which wakes.
TEST(MaintenanceTest, CompactsWhenAllocationsMakeTheHeapSparse) {
  const std::unique_ptr<storage::Store> store = SmallStore();
  ASSERT_NE(store, nullptr);
  const std::string small(500, 's');
  const std::string other(2000, 'o');
  int count = 0;
  while (store->Stats().free_pages > 12) {
    ASSERT_TRUE(store->Put(0, absl::StrCat("key", count++), Bytes(small)).ok());
  }
  for (int i = 0; i < count; ++i) {
    if (i % 4 != 0) {
      ASSERT_TRUE(store->Delete(0, absl::StrCat("key", i))->existed);
    }
  }
  store->allocator().FlushCaches();
  Maintenance maintenance({CompactionTask(*store, kGiB)});
  // No notice of what is freed.
  store->allocator().SetCompactionNotice(kTiB, [&] { maintenance.Wake(); });
  ASSERT_TRUE(maintenance.Start().ok());
  ASSERT_FALSE(store->allocator().heap().IsSparse());
  const int64_t deadline = MonotonicNanos() + 60'000'000'000;
  for (int i = 0; store->Stats().compaction.windows_emptied == 0; ++i) {
    // Until it is sparse, and then no more, so that no allocation fails and compacts by itself.
    if (!store->allocator().heap().IsSparse()) {
      ASSERT_TRUE(store->Put(0, absl::StrCat("other", i), Bytes(other)).ok()) << i;
    }
    ASSERT_LT(MonotonicNanos(), deadline);
    ASSERT_EQ(store->Stats().failed_allocations, 0u);
  }
  maintenance.Stop();
}

// What cannot be moved now can be later, and nobody may tell of that.
TEST(MaintenanceTest, WhatCouldNotBeCompactedIsTriedAgain) {
  const std::unique_ptr<storage::Store> store = SmallStore();
  ASSERT_NE(store, nullptr);
  // One block in 16 is prepared for a change, and soon all others are free.
  std::vector<storage::PreparedPut> prepared;
  const std::string value(1000, 'v');
  int count = 0;
  while (store->Put(0, absl::StrCat("key", count), Bytes(value)).ok()) {
    if (++count % 16 != 0) continue;
    auto put = store->PreparePut(0, absl::StrCat("prepared", count), Bytes(value));
    if (put.ok()) prepared.push_back(*std::move(put));
  }
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(store->Delete(0, absl::StrCat("key", i))->existed);
  }
  store->allocator().FlushCaches();
  ASSERT_TRUE(store->allocator().heap().IsSparse());
  CompactionTask task(*store, kGiB);
  int64_t now = 0;
  int64_t longest = 0;
  for (int calls = 0; longest < CompactionTask::kLongestPause; ++calls) {
    ASSERT_LT(calls, 10'000);
    const int64_t next = task(now);
    ASSERT_NE(next, Maintenance::kWhenWoken);
    longest = std::max(longest, next - now);
    now = next;
  }
  EXPECT_LE(longest, CompactionTask::kLongestPause);
  EXPECT_EQ(store->Stats().compaction.items_moved, 0u);
  for (storage::PreparedPut& put : prepared) {
    ASSERT_TRUE(store->Publish(std::move(put)).ok());
  }
  // Some searches pass over the places where it was in vain.
  for (int calls = 0; store->allocator().heap().IsSparse(); ++calls) {
    ASSERT_LT(calls, 10'000);
    now = task(now);
    ASSERT_NE(now, Maintenance::kWhenWoken);
  }
  EXPECT_GT(store->Stats().compaction.items_moved, 0u);
}

}  // namespace
}  // namespace verbena::server
