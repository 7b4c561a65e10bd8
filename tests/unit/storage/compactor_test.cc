#include "server/storage/compactor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

class CompactorTest : public CheckedStoreTest {
 protected:
  CompactorTest() : CheckedStoreTest(MakeStore(32 * kMiB, 2)) {}

  Compactor& compactor() { return store_->compactor(); }
  CompactionCounters counters() { return compactor().counters(); }
  int worker() const { return store_->maintenance_worker(); }

  static std::string ValueOf(int i, uint64_t size) {
    return std::string(size, static_cast<char>('a' + i % 26));
  }
  // Puts keys `first`, `first` + 1, ... of this size until memory is out; returns the next one.
  int Fill(int first, uint64_t size) {
    for (int i = first;; ++i) {
      if (!store_->Put(0, absl::StrCat("key", i), AsBytes(ValueOf(i, size))).ok()) return i;
    }
  }
  void Delete(int i) { ASSERT_TRUE(store_->Delete(0, absl::StrCat("key", i))->existed); }
  void ExpectValue(int i, uint64_t size) {
    std::string value;
    ASSERT_TRUE(store_->Get(0, absl::StrCat("key", i), &value)->found) << i;
    ASSERT_EQ(value, ValueOf(i, size));
  }
};

// Blocks of a window are given out neither by the heap nor by a cache, also not those that are
// freed meanwhile; afterwards they are.
TEST_F(CompactorTest, NothingIsGivenOutOfAWindow) {
  Allocator& allocator = store_->allocator();
  std::vector<Block> blocks;
  for (int i = 0; i < 40'000; ++i) blocks.push_back(allocator.Allocate(0, 100));
  std::mt19937 random(1);
  std::shuffle(blocks.begin(), blocks.end(), random);
  // Some lie in the caches of both workers.
  for (int i = 0; i < 20'000; ++i) {
    allocator.Free(i % 2, blocks.back());
    blocks.pop_back();
  }
  const HeapWindow window = allocator.heap().IsolateSparsestSlab(1.0);
  ASSERT_TRUE(window);
  allocator.BeginWindow(window);
  const auto inside = [&](Block block) {
    return block.offset >= window.begin && block.offset < window.end;
  };
  const size_t used = allocator.heap().BlocksInWindow().size();
  EXPECT_EQ(used, static_cast<size_t>(std::count_if(blocks.begin(), blocks.end(), inside)))
      << "the caches were not emptied";
  ASSERT_GT(used, 10u);
  // Half of them are freed by either worker...
  size_t freed = 0;
  for (size_t i = 0; i < blocks.size() && freed < used / 2; ++i) {
    if (!inside(blocks[i])) continue;
    allocator.Free(static_cast<int>(freed++ % 2), blocks[i]);
    std::swap(blocks[i--], blocks.back());
    blocks.pop_back();
  }
  EXPECT_EQ(allocator.heap().BlocksInWindow().size(), used - freed);
  ASSERT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  // ... and not given out, to the last block that there is.
  std::vector<Block> others;
  while (const Block block = allocator.Allocate(static_cast<int>(others.size() % 2), 100)) {
    ASSERT_FALSE(inside(block));
    others.push_back(block);
  }
  EXPECT_FALSE(allocator.EndWindow().all_free);
  const Block block = allocator.Allocate(0, 100);
  EXPECT_TRUE(inside(block));
  ASSERT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  allocator.Free(0, block);
  for (const Block b : others) allocator.Free(0, b);
  for (const Block b : blocks) allocator.Free(0, b);
}

TEST_F(CompactorTest, SparsePagesAreEmptiedUntilEnoughIsFree) {
  const int count = Fill(0, 1000);
  EXPECT_EQ(compactor().Step(worker()), 0u) << "there is nothing to gain";
  for (int i = 0; i < count; ++i) {
    if (i % 4 != 0) Delete(i);
  }
  store_->allocator().FlushCaches();
  uint64_t moved = 0;
  while (const uint64_t bytes = compactor().Step(worker())) moved += bytes;
  EXPECT_GT(moved, 0u);
  EXPECT_EQ(counters().bytes_moved, moved);
  EXPECT_GT(counters().items_moved, 0u);
  EXPECT_GT(counters().windows_emptied, 0u);
  EXPECT_EQ(counters().given_up, 0u);
  EXPECT_FALSE(store_->allocator().heap().IsSparse());
  for (int i = 0; i < count; i += 4) ExpectValue(i, 1000);
}

// No page is free, and one value in four is left.
TEST_F(CompactorTest, AnAllocationMakesRoomForAnotherSize) {
  const int count = Fill(0, 1000);
  for (int i = 0; i < count; ++i) {
    if (i % 4 != 0) Delete(i);
  }
  ASSERT_EQ(store_->Stats().free_pages, 0u);
  const int next = Fill(count, 5000);
  EXPECT_GT(counters().windows_emptied, 0u);
  const StoreStats stats = store_->Stats();
  EXPECT_GT(static_cast<double>(stats.live_bytes), 0.85 * 32 * kMiB);
  for (int i = 0; i < count; i += 4) ExpectValue(i, 1000);
  for (int i = count; i < next; ++i) ExpectValue(i, 5000);
}

TEST_F(CompactorTest, ScatteredFreePagesMakeARun) {
  // One value in a page, and then in every other page.
  const int count = Fill(0, 900'000);
  ASSERT_GT(count, 20);
  for (int i = 0; i < count; i += 2) Delete(i);
  const std::string large(6 * kMiB, 'x');
  ASSERT_TRUE(store_->Put(0, "large", AsBytes(large)).ok());
  EXPECT_GT(counters().items_moved, 0u);
  EXPECT_GT(counters().pages_emptied, 0u);
  std::string value;
  ASSERT_TRUE(store_->Get(0, "large", &value)->found);
  EXPECT_EQ(value, large);
  for (int i = 1; i < count; i += 2) ExpectValue(i, 900'000);
}

TEST_F(CompactorTest, SlabsAreMovedOutOfTheWayOfARun) {
  const int count = Fill(0, 1000);
  for (int i = 0; i < count; ++i) {
    if (i % 2 != 0) Delete(i);
  }
  ASSERT_LT(store_->Stats().free_pages, 6u);
  const std::string large(6 * kMiB, 'x');
  ASSERT_TRUE(store_->Put(0, "large", AsBytes(large)).ok());
  for (int i = 0; i < count; i += 2) ExpectValue(i, 1000);
}

// Segments of the index need whole pages.
TEST_F(CompactorTest, TheIndexGetsRoomToGrow) {
  const int count = Fill(0, 3000);
  for (int i = 0; i < count; ++i) {
    if (i % 2 != 0) Delete(i);
  }
  ASSERT_EQ(store_->Stats().free_pages, 0u);
  const uint64_t segment_pages = store_->Stats().segment_pages;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(store_->Put(0, absl::StrCat("small", i), AsBytes("")).ok()) << i;
  }
  EXPECT_GT(store_->Stats().segment_pages, segment_pages);
  for (int i = 0; i < count; i += 2) ExpectValue(i, 3000);
}

// What is prepared is in no slot and stays where it is; its slab is used again.
TEST_F(CompactorTest, PreparedBlocksStay) {
  // A few in each slab, and nothing else in the end.
  std::vector<PreparedPut> prepared;
  int count = 0;
  while (store_->Put(0, absl::StrCat("key", count), AsBytes(ValueOf(count, 1000))).ok()) {
    if (++count % 16 != 0) continue;
    const std::string value = ValueOf(static_cast<int>(prepared.size()), 1000);
    absl::StatusOr<PreparedPut> put =
        store_->PreparePut(0, absl::StrCat("p", prepared.size()), AsBytes(value));
    if (put.ok()) prepared.push_back(*std::move(put));
  }
  ASSERT_GT(prepared.size(), 1000u);
  std::vector<uint64_t> offsets;
  for (const PreparedPut& put : prepared) offsets.push_back(put.value_offset());
  for (int i = 0; i < count; ++i) Delete(i);
  store_->allocator().FlushCaches();
  ASSERT_TRUE(store_->allocator().heap().IsSparse());
  while (compactor().Step(worker()) > 0) {
  }
  EXPECT_GT(counters().given_up, 0u);
  EXPECT_EQ(counters().windows_emptied, 0u);
  EXPECT_EQ(counters().items_moved, 0u);
  ASSERT_TRUE(store_->allocator().Validate().ok()) << store_->allocator().Validate();
  for (size_t i = 0; i < prepared.size(); ++i) {
    EXPECT_EQ(prepared[i].value_offset(), offsets[i]);
    ASSERT_TRUE(store_->Publish(std::move(prepared[i])).ok());
  }
  std::string value;
  for (size_t i = 0; i < offsets.size(); ++i) {
    ASSERT_TRUE(store_->Get(0, absl::StrCat("p", i), &value)->found);
    ASSERT_EQ(value, ValueOf(static_cast<int>(i), 1000));
  }
}

// Stops the thread that moves an item, once, until it may go on.
class MoveStopper : public ItemListener {
 public:
  void OnInserted(layout::KeyHash, std::string_view, layout::Slot) override {}
  void OnMoved(layout::KeyHash hash, std::string_view, layout::Slot, layout::Slot,
               bool changed) override {
    if (changed || stopped_once_.exchange(true)) return;
    stopped_.set_value(hash);
    go_on_.get_future().wait();
  }
  void OnRemoved(layout::KeyHash, std::string_view, layout::Slot) override {}

  // The hash of the key whose bucket is locked meanwhile.
  layout::KeyHash WaitUntilStopped() { return stopped_.get_future().get(); }
  void GoOn() { go_on_.set_value(); }

 private:
  std::atomic<bool> stopped_once_{false};
  std::promise<layout::KeyHash> stopped_;
  std::promise<void> go_on_;
};

// Half of the region is free, in blocks of one class, and pages are being emptied for a large
// value. Whoever needs memory for items of another size meanwhile has that given up: he waits until
// one item was moved, and is not refused before the region is full.
TEST_F(CompactorTest, ALargeWindowIsGivenUpForOthers) {
  const int count = Fill(0, 1000);
  for (int i = 0; i < count; i += 2) Delete(i);
  store_->allocator().FlushCaches();
  MoveStopper stopper;
  store_->AddListener(&stopper);
  std::future<absl::Status> large = std::async(std::launch::async, [&] {
    return store_->Put(0, "large", AsBytes(std::string(7 * kMiB, 'x'))).status();
  });
  const uint32_t locked = stopper.WaitUntilStopped().bucket();
  std::future<absl::Status> small = std::async(std::launch::async, [&] {
    const std::string value(5000, 'v');
    absl::Status status;
    for (int i = 0; status.ok(); ++i) {
      const std::string key = absl::StrCat("small-", i);
      if (store_->index().Hash(key).bucket() == locked) continue;
      status = store_->Put(1, key, AsBytes(value)).status();
    }
    return status;
  });
  while (compactor().turns().waiting() == 0 &&
         small.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout) {
  }
  EXPECT_EQ(compactor().turns().waiting(), 1u) << "refused: " << counters().turned_away;
  stopper.GoOn();
  EXPECT_TRUE(absl::IsResourceExhausted(small.get()));
  // Of the large one it cannot be told who has got the memory.
  const absl::Status status = large.get();
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  EXPECT_GE(counters().gave_way, 1u);
  EXPECT_EQ(counters().turned_away, 0u);
  const StoreStats stats = store_->Stats();
  EXPECT_GT(static_cast<double>(stats.live_bytes + stats.items * sizeof(layout::ItemHeader)),
            0.8 * 32 * kMiB);
}

// Who needs a large place himself does not wait for another's.
TEST_F(CompactorTest, ALargeValueIsTurnedAwayFromALargeWindow) {
  const int count = Fill(0, 900'000);
  for (int i = 0; i < count; i += 2) Delete(i);
  MoveStopper stopper;
  store_->AddListener(&stopper);
  const std::string value(6 * kMiB, 'x');
  std::future<absl::Status> first = std::async(
      std::launch::async, [&] { return store_->Put(0, "first", AsBytes(value)).status(); });
  const uint32_t locked = stopper.WaitUntilStopped().bucket();
  KeyFinder keys(*store_, 0, static_cast<int>((locked + 1) % layout::kBuckets));
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Put(1, keys.Next(), AsBytes(value)).status()));
  EXPECT_EQ(counters().turned_away, 1u);
  EXPECT_EQ(counters().gave_way, 0u);
  stopper.GoOn();
  EXPECT_TRUE(first.get().ok());
}

// Two workers and the background, all of which compact all the time, each wait for one window of
// each of the others at most.
TEST_F(CompactorTest, AllocationsWaitForOneWindowOfEachOther) {
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  for (int own = 0; own < 2; ++own) {
    threads.emplace_back([&, own] {
      std::mt19937 random(static_cast<unsigned>(own));
      for (int i = 0; i < 4000; ++i) {
        const std::string key = absl::StrCat(own, "-", random() % 2000);
        const uint64_t size = random() % (uint64_t{64} << random() % 14);
        const absl::Status status = store_->Put(own, key, AsBytes(ValueOf(i, size))).status();
        ASSERT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
        if (!status.ok()) {
          for (int j = 0; j < 20; ++j) {
            ASSERT_TRUE(store_->Delete(own, absl::StrCat(own, "-", random() % 2000)).ok());
          }
        }
      }
      --running;
    });
  }
  while (running > 0) compactor().Step(worker());
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(counters().windows_emptied, 0u);
  EXPECT_EQ(counters().turned_away, 0u) << "there were no large windows";
  EXPECT_LE(counters().most_waited_bytes, 2 * layout::kPageSize);
  RecordProperty("most_waited_bytes", absl::StrCat(counters().most_waited_bytes));
}

class WindowTurnsTest : public testing::Test {
 protected:
  // Asks in a thread of its own, and waits until it stands in the line.
  std::future<bool> Ask(bool large, bool patient) {
    const size_t before = turns_.waiting();
    std::future<bool> entered =
        std::async(std::launch::async, [=, this] { return turns_.Enter(large, patient); });
    while (turns_.waiting() == before) std::this_thread::yield();
    return entered;
  }
  static bool IsReady(const std::future<bool>& entered) {
    return entered.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  WindowTurns turns_;
};

TEST_F(WindowTurnsTest, ComeInTheOrderInWhichTheyWereAskedFor) {
  ASSERT_TRUE(turns_.Enter(false, false));
  std::vector<std::future<bool>> line;
  for (int i = 0; i < 4; ++i) line.push_back(Ask(false, i % 2 == 0));
  for (size_t i = 0; i < line.size(); ++i) {
    for (size_t j = i; j < line.size(); ++j) EXPECT_FALSE(IsReady(line[j]));
    turns_.Leave();
    EXPECT_TRUE(line[i].get());
  }
  EXPECT_EQ(turns_.waiting(), 0u);
}

TEST_F(WindowTurnsTest, ALargeOneIsAskedToGiveWay) {
  ASSERT_TRUE(turns_.Enter(false, false));
  std::future<bool> large = Ask(true, false);
  std::future<bool> patient = Ask(false, true);
  EXPECT_FALSE(turns_.asked_to_give_way());
  turns_.Leave();
  EXPECT_TRUE(large.get());
  EXPECT_FALSE(turns_.Enter(true, false)) << "there is a large one";
  EXPECT_FALSE(turns_.asked_to_give_way()) << "the patient wait for its end";
  std::future<bool> hasty = Ask(false, false);
  while (!turns_.asked_to_give_way()) std::this_thread::yield();
  EXPECT_FALSE(IsReady(hasty));
  EXPECT_FALSE(IsReady(patient));
  turns_.Leave();
  EXPECT_TRUE(patient.get());
  EXPECT_FALSE(turns_.asked_to_give_way()) << "this one is not large";
  turns_.Leave();
  EXPECT_TRUE(hasty.get());
}

TEST_F(WindowTurnsTest, WhoStoodInTheLineBeforeALargeOneBeganAsksToo) {
  ASSERT_TRUE(turns_.Enter(false, false));
  std::future<bool> large = Ask(true, false);
  std::future<bool> hasty = Ask(false, false);
  turns_.Leave();
  EXPECT_TRUE(large.get());
  while (!turns_.asked_to_give_way()) std::this_thread::yield();
  EXPECT_FALSE(IsReady(hasty));
  turns_.Leave();
  EXPECT_TRUE(hasty.get());
}

// A full store refuses at once, without a search each time, until something has been freed.
TEST_F(CompactorTest, WhatIsInVainIsNotTriedAgain) {
  const int count = Fill(0, 1000);
  const std::string value(1000, 'v');
  const auto put = [&] { return store_->Put(0, "another", AsBytes(value)).status(); };
  ASSERT_EQ(put().code(), absl::StatusCode::kResourceExhausted);
  const CompactionCounters before = counters();
  const int64_t begin = MonotonicNanos();
  constexpr int kRefused = 20'000;
  for (int i = 0; i < kRefused; ++i) ASSERT_FALSE(put().ok());
  const int64_t each = (MonotonicNanos() - begin) / kRefused;
  RecordProperty("nanoseconds_of_a_refusal", absl::StrCat(each));
  EXPECT_EQ(counters().given_up, before.given_up);
  EXPECT_EQ(counters().windows_emptied, before.windows_emptied);
  for (int i = 0; i < count; i += 3) Delete(i);
  EXPECT_TRUE(store_->Put(0, "other size", AsBytes(std::string(20'000, 'v'))).ok());
  EXPECT_GT(counters().windows_emptied, before.windows_emptied);
}

}  // namespace
}  // namespace verbena::storage
