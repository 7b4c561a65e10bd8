#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"
#include "tests/unit/storage/zipfian_trace.h"

namespace verbena::storage {
namespace {

std::unique_ptr<Store> MakeCache(int workers) {
  constexpr uint64_t kSize = 16 * kMiB;
  StoreOptions options;
  options.workers = workers;
  options.max_value_size = kSize;
  options.evict = true;
  return MakeStore(kSize, options);
}

class StoreEvictionTest : public CheckedStoreTest {
 protected:
  StoreEvictionTest() : CheckedStoreTest(MakeCache(/*workers=*/1)) {}
  absl::Status Put(std::string_view key, uint64_t size) {
    return store_->Put(0, key, AsBytes(std::string(size, 'v'))).status();
  }
};

TEST_F(StoreEvictionTest, AFullRegionTakesNewItemsForOldOnes) {
  for (int i = 0; i < 500'000; ++i) {
    const absl::Status status = Put(absl::StrCat("key-", i), 100);
    ASSERT_TRUE(status.ok()) << i << ": " << status;
  }
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.items + stats.evicted, 500'000u);
  // What is there fills the region.
  EXPECT_GT(stats.used_bytes, stats.slice_bytes * 17 / 20);
  EXPECT_TRUE(Has(*store_, "key-499999"));
  EXPECT_FALSE(Has(*store_, "key-100"));
}

TEST_F(StoreEvictionTest, WhatIsReadStays) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Put(absl::StrCat("hot-", i), 100).ok());
  for (int i = 0; i < 400'000; ++i) {
    ASSERT_TRUE(Put(absl::StrCat("cold-", i), 100).ok());
    store_->Touch(store_->index().Hash(absl::StrCat("hot-", i % 1000)));
  }
  int hot = 0;
  for (int i = 0; i < 1000; ++i) hot += Has(*store_, absl::StrCat("hot-", i));
  EXPECT_GT(hot, 990);
}

TEST_F(StoreEvictionTest, OnlyWhatIsThereCountsAsRead) {
  ASSERT_TRUE(Put("key", 100).ok());
  const uint64_t before = store_->Stats().touches;
  EXPECT_FALSE(Has(*store_, "another key"));
  EXPECT_EQ(store_->Stats().touches, before);
  EXPECT_TRUE(Has(*store_, "key"));
  EXPECT_EQ(store_->Stats().touches, before + 1);
}

// The sizes change all the time, up to a quarter of the region.
TEST_F(StoreEvictionTest, AllSizes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t size = random() % (uint64_t{16} << random() % 19);
    const absl::Status status = Put(absl::StrCat("key-", random() % 5000), size);
    ASSERT_TRUE(status.ok()) << size << ": " << status;
  }
  EXPECT_GT(store_->Stats().evicted, 100u);
}

// And nothing has to go for it.
TEST_F(StoreEvictionTest, AnItemThatNeverFitsIsRefused) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Put(absl::StrCat("key-", i), 1000).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Put("key", 15 * kMiB + 512 * kKiB)));
  EXPECT_EQ(store_->Stats().items, 1000u);
  EXPECT_EQ(store_->Stats().evicted, 0u);
  EXPECT_TRUE(Put("key", 1000).ok());
}

// Nor for one that values under way leave no room for.
TEST_F(StoreEvictionTest, ALargeValueBesideAnotherOneUnderWay) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Put(absl::StrCat("key-", i), 1000).ok());
  {
    const absl::StatusOr<PreparedPut> first = store_->PreparePutInto(0, "first", 8 * kMiB);
    ASSERT_TRUE(first.ok()) << first.status();
    const uint64_t evicted = store_->Stats().evicted;
    const absl::StatusOr<PreparedPut> second = store_->PreparePutInto(0, "second", 8 * kMiB);
    EXPECT_TRUE(absl::IsResourceExhausted(second.status())) << second.status();
    EXPECT_EQ(store_->Stats().evicted, evicted);
  }
  EXPECT_TRUE(Put("second", 8 * kMiB).ok());
  // One that is there can go.
  EXPECT_TRUE(Put("first", 8 * kMiB).ok());
  EXPECT_FALSE(Has(*store_, "second"));
}

// Nor for one that needs a row which they stand in the midst of, though there are enough pages.
TEST_F(StoreEvictionTest, ALargeValueAroundAnotherOneUnderWay) {
  ASSERT_TRUE(Put("before", 5 * kMiB).ok());
  absl::StatusOr<PreparedPut> middle = store_->PreparePutInto(0, "middle", 2 * kMiB);
  ASSERT_TRUE(middle.ok()) << middle.status();
  ASSERT_TRUE(store_->Delete(0, "before")->existed);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Put(absl::StrCat("key-", i), 1000).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Put("large", 9 * kMiB + 512 * kKiB)));
  EXPECT_EQ(store_->Stats().evicted, 0u);
  EXPECT_EQ(store_->Stats().items, 1000u);
  { const PreparedPut dropped = *std::move(middle); }
  EXPECT_TRUE(Put("large", 9 * kMiB + 512 * kKiB).ok());
}

// What is pinned is being read, and its memory would not become free.
TEST_F(StoreEvictionTest, WhatIsPinnedStays) {
  ASSERT_TRUE(Put("pinned", 100'000).ok());
  const uint64_t pin = store_->GetOrPin(0, "pinned", {})->pin;
  ASSERT_NE(pin, 0u);
  // All are read once, so that the pinned one, the oldest, is the first that would go.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Put(absl::StrCat("key-", i), 10'000).ok());
    store_->Touch(store_->index().Hash(absl::StrCat("key-", i)));
  }
  // Nearly all others have to go for this.
  ASSERT_TRUE(Put("large", 12 * kMiB - 1000).ok());
  EXPECT_GT(store_->Stats().evicted, 900u);
  EXPECT_TRUE(Has(*store_, "pinned"));
  EXPECT_EQ(store_->Stats().pinned_bytes, 0u) << "it was removed";
  EXPECT_TRUE(store_->Unpin(0, pin));
  ASSERT_TRUE(Put("larger", 14 * kMiB - 64 * kKiB).ok());
  EXPECT_FALSE(Has(*store_, "pinned"));
}

// It is in the way of a value that needs most of the region, so that nothing has to go for that.
TEST_F(StoreEvictionTest, ALargeValueBesideAPinnedOne) {
  ASSERT_TRUE(Put("first", 4'000'000).ok());
  ASSERT_TRUE(Put("pinned", 4'000'000).ok());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Put(absl::StrCat("key-", i), 1000).ok());
  ASSERT_TRUE(store_->Delete(0, "first")->existed);
  const uint64_t pin = store_->GetOrPin(0, "pinned", {})->pin;
  ASSERT_NE(pin, 0u);
  // There are so many bytes, but in no row; and then not so many.
  for (const uint64_t size : {8 * kMiB, 13 * kMiB}) {
    EXPECT_TRUE(absl::IsResourceExhausted(Put("large", size)));
    EXPECT_EQ(store_->Stats().evicted, 0u);
    EXPECT_EQ(store_->Stats().items, 1001u);
  }
  EXPECT_TRUE(Put("smaller", 3 * kMiB).ok());
  EXPECT_TRUE(store_->Unpin(0, pin));
  EXPECT_TRUE(Put("large", 8 * kMiB).ok());
}

// A value that is to be READ from a client needs its block first, and the READ may fail: then what
// was evicted is gone, and nothing else has changed.
TEST_F(StoreEvictionTest, APreparedPutThatComesToNothingLeavesTheKeyAsItWas) {
  int count = 0;
  while (store_->Stats().evicted == 0) {
    ASSERT_TRUE(Put(absl::StrCat("key-", count++), 1000).ok());
  }
  PutOptions options;
  options.flags = 7;
  options.due_ns = MonotonicNanos() + 3600 * int64_t{1'000'000'000};
  const std::string value(1000, 'o');
  ASSERT_TRUE(store_->Put(0, "old", AsBytes(value), options).ok());
  const uint64_t version = store_->Get(0, "old", std::span<uint8_t>())->version;
  store_->Touch(store_->index().Hash("old"));
  const StoreStats before = store_->Stats();
  {
    const absl::StatusOr<PreparedPut> put = store_->PreparePutInto(0, "old", 4 * kMiB);
    ASSERT_TRUE(put.ok()) << put.status();
  }
  const StoreStats after = store_->Stats();
  EXPECT_GT(after.evicted, before.evicted);
  EXPECT_EQ(after.items + after.evicted, before.items + before.evicted);
  EXPECT_LE(after.block_bytes, before.block_bytes);
  std::string found;
  const GetResult old = *store_->Get(0, "old", &found);
  ASSERT_TRUE(old.found);
  EXPECT_EQ(found, value);
  EXPECT_EQ(old.version, version);
  EXPECT_EQ(old.flags, 7);
  EXPECT_EQ(store_->Due(0, "old")->due_ns, options.due_ns);
}

// The whole path of a cache: clients that find what they can by READs and put what they miss, and
// of the GETs that hit, one in 16 is reported, 64 together. The sizes of values are now of many
// classes and now of few, with the same mean, so that items have to be moved together. The
// simulated caches have room for as many items as the store had in the mean.
TEST(StoreEvictionTraceTest, RecoversMostOfTheGapBetweenFifoAndLru) {
  constexpr uint64_t kKeys = 370'000;
  constexpr int kRequests = 600'000;
  constexpr int kPhase = 60'000;  // requests
  constexpr uint64_t kOneIn = 16;
  constexpr size_t kBatch = 64;
  const std::unique_ptr<Store> store = MakeCache(/*workers=*/1);
  ASSERT_NE(store, nullptr);
  ReferenceReader reader(
      [slice = store->region().bytes()](uint64_t offset, void* target, uint64_t size) {
        std::memcpy(target, slice.data() + offset, size);
      },
      1);
  std::vector<uint16_t> sizes(kKeys);  // of the values that were put last
  const std::string bytes(640, 'v');
  ZipfianTrace trace(0.99, kKeys, kRequests);
  std::mt19937_64 random(7);
  std::vector<layout::KeyHash> reports;
  int requests = 0;
  uint64_t items = 0;  // summed over the samples
  uint64_t samples = 0;
  const double ours = trace.HitRate([&](uint64_t key) {
    if (requests++ >= trace.warm_up() && requests % 64 == 0) {
      items += store->Stats().items;
      ++samples;
    }
    const std::string name = absl::StrCat("key-", key);
    if (reader.Lookup(name) == ReferenceReader::Outcome::kFound) {
      EXPECT_EQ(reader.value().size(), sizes[key]);
      if (random() % kOneIn == 0) reports.push_back(store->index().Hash(name));
      if (reports.size() == kBatch) {
        for (const layout::KeyHash hash : reports) store->Touch(hash);
        reports.clear();
      }
      return true;
    }
    const bool many_classes = requests / kPhase % 2 == 0;
    const uint64_t size = many_classes ? 40 + random() % 581 : 320 + random() % 21;
    sizes[key] = static_cast<uint16_t>(size);
    EXPECT_TRUE(store->Put(0, name, AsBytes(std::string_view(bytes).substr(0, size))).ok());
    return false;
  });
  const auto room = static_cast<size_t>(items / samples);
  const double fifo = HitRateOfFifo(trace, room);
  const double lru = HitRateOfLru(trace, room);
  const StoreStats stats = store->Stats();
  std::cout << "room for " << room << " of " << kKeys << " keys: FIFO " << fifo << ", LRU " << lru
            << ", the store " << ours << "; evicted " << stats.evicted << ", moved "
            << stats.compaction.items_moved << "\n";
  EXPECT_NEAR(static_cast<double>(room) / kKeys, 0.1, 0.02);
  ASSERT_GT(lru, fifo);
  EXPECT_GE(ours, fifo + (lru - fifo) / 2);
  EXPECT_GT(stats.compaction.items_moved, 0u);
  EXPECT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

TEST(StoreEvictionThreadsTest, WorkersEvictAndChangeAtTheSameTime) {
  const std::unique_ptr<Store> store = MakeCache(/*workers=*/2);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 2; ++worker) {
    threads.emplace_back([&, worker] {
      std::mt19937_64 random(static_cast<uint64_t>(worker));
      for (int i = 0; i < 50'000; ++i) {
        const std::string key = absl::StrCat("key-", random() % 100'000);
        const std::string value(random() % 1000, 'v');
        ASSERT_TRUE(store->Put(worker, key, AsBytes(value)).ok());
        if (i % 10 == 0) {
          ASSERT_TRUE(store->Delete(worker, key).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(store->Stats().evicted, 0u);
  EXPECT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

}  // namespace
}  // namespace verbena::storage
