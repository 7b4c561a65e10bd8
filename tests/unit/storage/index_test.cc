// Growth of the index: splits, overflow buckets, and its two ways to be full.
#include "server/storage/index.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "common/base/text.h"
#include "server/storage/stripe.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

std::string ValueOf(std::string_view key) { return absl::StrCat("value of ", ToAbsl(key)); }

void ExpectHas(Store& store, std::string_view key) {
  std::string value;
  const absl::StatusOr<GetResult> got = store.Get(0, key, &value);
  ASSERT_TRUE(got.ok() && got->found) << key;
  EXPECT_EQ(value, ValueOf(key));
}

// As many of the keys as fit; the error that ended it.
absl::Status Fill(Store& store, KeyFinder& finder, size_t most, std::vector<std::string>& keys) {
  while (keys.size() < most) {
    const std::string key = finder.Next();
    const absl::StatusOr<PutResult> put = store.Put(0, key, AsBytes(ValueOf(key)));
    if (!put.ok()) return put.status();
    EXPECT_FALSE(put->existed);
    keys.push_back(key);
  }
  return absl::OkStatus();
}

TEST(IndexTest, GrowsOverManySplitsAndShrinksToNothing) {
  constexpr size_t kKeys = 300000;
  const std::unique_ptr<Store> store = MakeStore(64 * kMiB);
  ASSERT_NE(store, nullptr);
  std::vector<std::string> keys;
  KeyFinder finder(*store, 0, -1);
  for (size_t target = 20000; target <= kKeys; target += 40000) {
    ASSERT_TRUE(Fill(*store, finder, target, keys).ok());
    ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
    const StoreStats stats = store->Stats();
    EXPECT_EQ(stats.items, target);
    EXPECT_GT(stats.mean_fill, 0.33);
    EXPECT_LT(stats.mean_fill, 0.76);
  }
  for (const std::string& key : keys) ExpectHas(*store, key);
  const uint64_t segments = store->Stats().segments;
  EXPECT_GT(segments, 100u);
  for (const std::string& key : keys) ASSERT_TRUE(store->Delete(0, key)->existed);
  store->allocator().FlushCaches();
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
  const StoreStats stats = store->Stats();
  EXPECT_EQ(stats.items, 0u);
  EXPECT_EQ(stats.live_bytes, 0u);
  EXPECT_EQ(stats.block_bytes, 0u);
  EXPECT_EQ(stats.overflow_buckets, 0u);
  EXPECT_EQ(stats.segments, segments);
  EXPECT_EQ(stats.free_pages, stats.heap_pages - stats.segment_pages);
}

TEST(IndexTest, AFullBucketGoesOnInOverflowBuckets) {
  const std::unique_ptr<Store> store = MakeStore(kMinSliceSize);
  ASSERT_NE(store, nullptr);
  // All keys of one bucket: 15 slots, then overflow bucket by overflow bucket, without a split.
  KeyFinder finder(*store, 0, 77);
  std::vector<std::string> keys;
  const size_t all = layout::kSlotsPerBucket * (1 + layout::kOverflowBuckets);
  for (size_t count = layout::kSlotsPerBucket; count <= all; count += layout::kSlotsPerBucket) {
    ASSERT_TRUE(Fill(*store, finder, count, keys).ok());
    EXPECT_EQ(store->Stats().overflow_buckets, count / layout::kSlotsPerBucket - 1);
  }
  EXPECT_EQ(store->Stats().splits, 0u);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
  for (const std::string& key : keys) ExpectHas(*store, key);
  // Emptied from the front, the chain must stay, since its end is in use.
  for (size_t i = 0; i + 1 < keys.size(); ++i) ASSERT_TRUE(store->Delete(0, keys[i])->existed);
  EXPECT_EQ(store->Stats().overflow_buckets, layout::kOverflowBuckets);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
  ExpectHas(*store, keys.back());
  // With its last key it goes as a whole.
  ASSERT_TRUE(store->Delete(0, keys.back())->existed);
  EXPECT_EQ(store->Stats().overflow_buckets, 0u);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

TEST(IndexTest, SplitsAgainWhileAllKeysAreOnOneSide) {
  const std::unique_ptr<Store> store = MakeStore(16 * kMiB);
  ASSERT_NE(store, nullptr);
  // One key more than a segment can hold in this bucket; the upper 4 bits of all hashes agree.
  KeyFinder finder(*store, 4, 200);
  std::vector<std::string> keys;
  ASSERT_TRUE(
      Fill(*store, finder, layout::kSlotsPerBucket * (1 + layout::kOverflowBuckets) + 1, keys)
          .ok());
  EXPECT_GE(store->Stats().splits, 5u);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
  for (const std::string& key : keys) ExpectHas(*store, key);
}

TEST(IndexTest, AFullDirectoryIsAnErrorOfItsOwn) {
  const std::unique_ptr<Store> store = MakeStore(8 * kMiB);
  ASSERT_NE(store, nullptr);
  const unsigned depth = store->region().directory_depth();
  ASSERT_EQ(depth, 9u);
  // All keys belong to the same entry of the directory.
  KeyFinder finder(*store, depth, -1);
  std::vector<std::string> keys;
  const absl::Status full = Fill(*store, finder, 10000, keys);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("directory of depth 9 is full"), absl::string_view::npos) << full;
  EXPECT_GT(keys.size(), 2000u);
  EXPECT_EQ(store->Stats().failed_allocations, 1u);
  store->allocator().FlushCaches();
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
  for (const std::string& key : keys) ExpectHas(*store, key);
  // Keys elsewhere still fit, old ones can be changed, and a deletion makes room.
  EXPECT_TRUE(store->Put(0, keys[0], AsBytes("a much longer value than it was at first")).ok());
  const std::string victim = keys.back();
  ASSERT_TRUE(store->Delete(0, victim)->existed);
  EXPECT_TRUE(store->Put(0, victim, AsBytes("again")).ok());
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

TEST(StripeTest, VersionsGrowAndTheLockBitStaysOut) {
  Stripe stripe;
  stripe.InitLocked(1000);
  EXPECT_EQ(stripe.version(), 1000u);
  EXPECT_EQ(stripe.NextVersion(), 1001u);
  stripe.Unlock();
  stripe.Lock();
  EXPECT_EQ(stripe.NextVersion(), 1002u);
  stripe.Unlock();
  EXPECT_EQ(stripe.version(), 1002u);
}

}  // namespace
}  // namespace verbena::storage
