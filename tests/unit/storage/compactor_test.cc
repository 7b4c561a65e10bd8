#include "server/storage/compactor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
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
