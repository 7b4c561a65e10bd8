#include "server/storage/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

using absl::StatusCode;

class StoreTest : public CheckedStoreTest {
 protected:
  StoreTest() : CheckedStoreTest(MakeStore(16 * kMiB, 2)) {}
};

TEST_F(StoreTest, PutGetDelete) {
  EXPECT_FALSE(Has(*store_, "key"));
  absl::StatusOr<PutResult> put = store_->Put(0, "key", AsBytes("value"), {.flags = 0x1234});
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_FALSE(put->existed);

  std::string value;
  const absl::StatusOr<GetResult> got = store_->Get(1, "key", &value);
  ASSERT_TRUE(got.ok() && got->found && got->copied);
  EXPECT_EQ(value, "value");
  EXPECT_EQ(got->flags, 0x1234);
  EXPECT_EQ(got->value_len, 5u);
  EXPECT_EQ(got->version, put->version);

  const absl::StatusOr<DeleteResult> deleted = store_->Delete(0, "key");
  ASSERT_TRUE(deleted.ok());
  EXPECT_TRUE(deleted->existed);
  EXPECT_EQ(deleted->version, put->version);
  EXPECT_FALSE(Has(*store_, "key"));
  EXPECT_FALSE(store_->Delete(0, "key")->existed);
}

TEST_F(StoreTest, KeysAndValuesOfAllSizesAndBytes) {
  std::string zeros(100, '\0');
  for (const size_t key_size : {size_t{1}, size_t{8}, size_t{255}, size_t{layout::kMaxKeySize}}) {
    for (const size_t value_size : {size_t{0}, size_t{1}, size_t{100}, size_t{4096}, size_t{70000},
                                    size_t{524288}, size_t{3000000}}) {
      std::string key(key_size, '\0');
      key.back() = static_cast<char>(value_size % 251);
      std::string value(value_size, '\xff');
      for (size_t i = 0; i < value_size; i += 7) value[i] = static_cast<char>(i);
      ASSERT_TRUE(store_->Put(0, key, AsBytes(value)).ok());
      EXPECT_EQ(MustGet(*store_, key), value);
      ASSERT_TRUE(store_->Delete(0, key)->existed);
    }
  }
  // A key of zeros, and its prefixes, are all different.
  for (size_t size = 1; size <= zeros.size(); ++size) {
    ASSERT_TRUE(store_->Put(0, zeros.substr(0, size), AsBytes(absl::StrCat(size))).ok());
  }
  for (size_t size = 1; size <= zeros.size(); ++size) {
    EXPECT_EQ(MustGet(*store_, zeros.substr(0, size)), absl::StrCat(size));
  }
}

TEST_F(StoreTest, SizesOutOfRangeAreNamed) {
  const std::string long_key(layout::kMaxKeySize + 1, 'k');
  const std::string long_value(8 * kMiB + 1, 'v');
  for (const std::string& key : {std::string(), long_key}) {
    const absl::Status errors[] = {store_->Put(0, key, AsBytes("v")).status(),
                                   store_->PreparePut(0, key, AsBytes("v")).status(),
                                   store_->PreparePutInto(0, key, 1).status(),
                                   store_->Get(0, key, std::span<uint8_t>()).status(),
                                   store_->Delete(0, key).status()};
    for (const absl::Status& error : errors) {
      EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(error.message().find(absl::StrCat(key.size())), absl::string_view::npos) << error;
      EXPECT_NE(error.message().find(absl::StrCat(layout::kMaxKeySize)), absl::string_view::npos);
    }
  }
  const absl::Status errors[] = {store_->Put(0, "k", AsBytes(long_value)).status(),
                                 store_->PreparePut(0, "k", AsBytes(long_value)).status(),
                                 store_->PreparePutInto(0, "k", uint64_t{1} << 40).status()};
  for (const absl::Status& error : errors) {
    EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(error.message().find(absl::StrCat(8 * kMiB)), absl::string_view::npos) << error;
  }
  EXPECT_EQ(store_->Stats().items, 0u);
}

TEST_F(StoreTest, AValueThatDoesNotFitIsOnlyDescribed) {
  ASSERT_TRUE(store_->Put(0, "key", AsBytes("0123456789"), {.flags = 3}).ok());
  std::vector<uint8_t> room(9, 0xaa);
  const absl::StatusOr<GetResult> got = store_->Get(0, "key", std::span<uint8_t>(room));
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->found);
  EXPECT_FALSE(got->copied);
  EXPECT_EQ(got->value_len, 10u);
  EXPECT_EQ(room, std::vector<uint8_t>(9, 0xaa));
  // The location leads to the item.
  const uint64_t size = layout::ItemSize(3, got->value_len);
  EXPECT_EQ(got->slot.size_class(), layout::SizeClassFor(size));
  const uint8_t* block = store_->region().At(got->slot.offset());
  uint64_t item_size = 0;
  EXPECT_EQ(layout::JudgeItem(block, size, got->slot.offset(), "key", store_->region().hash_seed(),
                              &item_size),
            layout::ItemState::kAccepted);
  room.resize(10);
  EXPECT_TRUE(store_->Get(0, "key", std::span<uint8_t>(room))->copied);
  EXPECT_EQ(std::memcmp(room.data(), "0123456789", 10), 0);
}

TEST_F(StoreTest, UpdatesStayInPlaceWithinAClassAndMoveBetweenClasses) {
  ASSERT_TRUE(store_->Put(0, "key", AsBytes(std::string(100, 'a'))).ok());
  const layout::Slot first = SlotOf(*store_, "key");
  const absl::StatusOr<PutResult> same = store_->Put(0, "key", AsBytes(std::string(101, 'b')));
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->existed);
  EXPECT_EQ(SlotOf(*store_, "key"), first);
  EXPECT_EQ(MustGet(*store_, "key"), std::string(101, 'b'));
  ASSERT_TRUE(store_->Put(0, "key", AsBytes(std::string(200, 'c'))).ok());
  EXPECT_NE(SlotOf(*store_, "key"), first);
  EXPECT_EQ(MustGet(*store_, "key"), std::string(200, 'c'));
  EXPECT_EQ(store_->Stats().items, 1u);
  // Whatever is left behind in the old block, a reader must not take it for an item.
  const uint64_t* old_check =
      reinterpret_cast<const uint64_t*>(store_->region().At(first.offset()));
  EXPECT_EQ(*old_check, 0u);
}

TEST_F(StoreTest, FreedBlocksAreInvalid) {
  ASSERT_TRUE(store_->Put(0, "small", AsBytes("v")).ok());
  ASSERT_TRUE(store_->Put(0, "run", AsBytes(std::string(kMiB, 'r'))).ok());
  for (const char* key : {"small", "run"}) {
    const uint64_t offset = SlotOf(*store_, key).offset();
    const auto* check = reinterpret_cast<const uint64_t*>(store_->region().At(offset));
    EXPECT_NE(*check, 0u);
    ASSERT_TRUE(store_->Delete(0, key)->existed);
    EXPECT_EQ(*check, 0u);
  }
}

TEST_F(StoreTest, VersionsGrowAcrossDeletionsAndSplits) {
  const auto start = static_cast<uint64_t>(UnixNanos());
  uint64_t last = 0;
  const auto expect_newer = [&](uint64_t version) {
    EXPECT_GT(version, last);
    last = version;
  };
  const absl::StatusOr<PutResult> first = store_->Put(0, "key", AsBytes("1"));
  // Above whatever an earlier start of the server can have given out.
  EXPECT_GT(first->version, start - 60 * uint64_t{1000000000});
  expect_newer(first->version);
  expect_newer(store_->Put(1, "key", AsBytes("2"))->version);
  expect_newer(store_->Put(0, "key", AsBytes(std::string(5000, '3')))->version);
  ASSERT_TRUE(store_->Delete(1, "key")->existed);
  expect_newer(store_->Put(0, "key", AsBytes("4"))->version);
  const uint64_t splits = store_->Stats().splits;
  for (int i = 0; store_->Stats().splits < splits + 8; ++i) {
    ASSERT_TRUE(store_->Put(0, absl::StrCat("filler", i), AsBytes("")).ok());
  }
  expect_newer(store_->Put(0, "key", AsBytes("5"))->version);
  EXPECT_EQ(store_->Get(0, "key", std::span<uint8_t>())->version, last);
}

TEST_F(StoreTest, APreparedPutIsInvisibleUntilPublished) {
  absl::StatusOr<PreparedPut> put = store_->PreparePut(0, "key", AsBytes("value"), {.flags = 7});
  ASSERT_TRUE(put.ok());
  EXPECT_FALSE(Has(*store_, "key"));
  EXPECT_EQ(store_->Stats().items, 0u);
  const absl::StatusOr<PutResult> result = store_->Publish(*std::move(put));
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->existed);
  EXPECT_EQ(MustGet(*store_, "key"), "value");
  EXPECT_EQ(store_->Get(0, "key", std::span<uint8_t>())->flags, 7);
}

TEST_F(StoreTest, ADroppedPreparedPutGivesItsBlockBack) {
  {
    absl::StatusOr<PreparedPut> dropped = store_->PreparePut(0, "key", AsBytes("value"));
    ASSERT_TRUE(dropped.ok());
    PreparedPut moved = *std::move(dropped);
    EXPECT_FALSE(dropped->valid());
    EXPECT_TRUE(moved.valid());
    EXPECT_GT(store_->Stats().block_bytes, 0u);
    absl::StatusOr<PreparedPut> run = store_->PreparePutInto(0, "key", 2 * kMiB);
    ASSERT_TRUE(run.ok());
    moved = *std::move(run);
  }
  EXPECT_EQ(store_->Stats().block_bytes, 0u);
  EXPECT_FALSE(Has(*store_, "key"));
}

// Published in another order than prepared, the last to be published stays.
TEST_F(StoreTest, PreparedPutsOfOneKey) {
  absl::StatusOr<PreparedPut> one = store_->PreparePut(0, "key", AsBytes("one"));
  absl::StatusOr<PreparedPut> two = store_->PreparePut(1, "key", AsBytes("two"));
  ASSERT_TRUE(one.ok() && two.ok());
  const absl::StatusOr<PutResult> second = store_->Publish(*std::move(two));
  ASSERT_TRUE(store_->Put(0, "other", AsBytes("x")).ok());
  const absl::StatusOr<PutResult> first = store_->Publish(*std::move(one));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(second->existed);
  EXPECT_TRUE(first->existed);
  EXPECT_GT(first->version, second->version);
  EXPECT_EQ(MustGet(*store_, "key"), "one");
}

TEST_F(StoreTest, AValueMayArriveInTheBlock) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{10}, 100 * kKiB, 3 * kMiB + 5}) {
    const std::string key = absl::StrCat("key", size);
    absl::StatusOr<PreparedPut> put = store_->PreparePutInto(0, key, size, {.flags = 9});
    ASSERT_TRUE(put.ok());
    ASSERT_EQ(put->value().size(), size);
    EXPECT_EQ(put->value().data(), store_->region().At(put->value_offset()));
    std::string value(size, '\0');
    for (size_t i = 0; i < size; ++i) value[i] = static_cast<char>(i * 31);
    std::copy(value.begin(), value.end(), put->value().begin());
    EXPECT_FALSE(Has(*store_, key));
    ASSERT_TRUE(store_->Publish(*std::move(put)).ok());
    EXPECT_EQ(MustGet(*store_, key), value);
    EXPECT_EQ(store_->Get(0, key, std::span<uint8_t>())->flags, 9);
  }
}

TEST_F(StoreTest, StatsCountWhatIsThere) {
  const StoreStats empty = store_->Stats();
  EXPECT_EQ(empty.items, 0u);
  EXPECT_EQ(empty.segments, 1u);
  EXPECT_EQ(empty.segment_pages, 1u);
  EXPECT_EQ(empty.heap_pages, 15u);
  EXPECT_EQ(empty.free_pages, 14u);
  EXPECT_EQ(empty.slice_bytes, 16 * kMiB);
  EXPECT_EQ(empty.index_bytes, 4096 + 8 * 1024 + layout::kSegmentSize);
  EXPECT_EQ(empty.used_bytes, empty.index_bytes);
  ASSERT_TRUE(store_->Put(0, "0123456789abcdef", AsBytes(std::string(100, 'v'))).ok());
  ASSERT_TRUE(store_->Put(1, "run", AsBytes(std::string(kMiB, 'v'))).ok());
  const StoreStats two = store_->Stats();
  EXPECT_EQ(two.items, 2u);
  EXPECT_EQ(two.live_bytes, 116 + 3 + kMiB);
  EXPECT_EQ(two.block_bytes, 144 + kMiB + 64);
  EXPECT_EQ(two.used_bytes, two.index_bytes + two.block_bytes);
  EXPECT_EQ(two.run_pages, 2u);
  EXPECT_DOUBLE_EQ(two.mean_fill, 2.0 / 3840);
  // Deleted by another worker than the one that put.
  ASSERT_TRUE(store_->Delete(1, "0123456789abcdef")->existed);
  ASSERT_TRUE(store_->Delete(0, "run")->existed);
  EXPECT_EQ(store_->Stats().items, 0u);
  EXPECT_EQ(store_->Stats().live_bytes, 0u);
  EXPECT_EQ(store_->Stats().block_bytes, 0u);
}

TEST(StoreOptionsTest, OutOfRange) {
  for (const StoreOptions& options : {StoreOptions{.workers = 0}, StoreOptions{.max_value_size = 0},
                                      StoreOptions{.max_value_size = layout::kMaxValueSize + 1}}) {
    RegionOptions region_options;
    region_options.size = kMinSliceSize;
    absl::StatusOr<Region> region = Region::Create(region_options);
    ASSERT_TRUE(region.ok());
    EXPECT_EQ(Store::Create(*std::move(region), options).status().code(),
              StatusCode::kInvalidArgument);
  }
}

// Each change in a full store: refused with the sizes named, and the old value stays; changes that
// need no more memory go through.
TEST(StoreOutOfMemoryTest, NothingIsLost) {
  const std::unique_ptr<Store> store = MakeStore(8 * kMiB);
  ASSERT_NE(store, nullptr);
  const std::string kSmall(100, 's');
  const std::string kMiddle(7000, 'm');
  ASSERT_TRUE(store->Put(0, "small", AsBytes(kSmall)).ok());
  ASSERT_TRUE(store->Put(0, "middle", AsBytes(kMiddle)).ok());
  // Full in every class that is tried below.
  const std::vector<std::string> fillers =
      FillUp(*store, {kMiddle.size(), 2000, 300, kSmall.size(), 0});
  const StoreStats full = store->Stats();
  EXPECT_EQ(full.items, fillers.size() + 2);
  EXPECT_EQ(full.failed_allocations, 5u);

  const std::string kLarge(2000, 'l');
  const absl::Status refused[] = {
      store->Put(0, "new", AsBytes(kSmall)).status(),
      store->Put(0, "new", AsBytes(kMiddle)).status(),
      store->Put(0, "new", AsBytes(std::string(kMiB, 'r'))).status(),
      store->Put(0, "small", AsBytes(kLarge)).status(),
      store->Put(0, "small", AsBytes(std::string(kMiB, 'r'))).status(),
      store->PreparePut(0, "small", AsBytes(kSmall)).status(),
      store->PreparePutInto(0, "small", 5 * kMiB).status(),
  };
  for (const absl::Status& error : refused) {
    EXPECT_EQ(error.code(), StatusCode::kResourceExhausted) << error;
  }
  EXPECT_NE(refused[6].message().find(FormatSize(layout::ItemSize(5, 5 * kMiB))),
            absl::string_view::npos)
      << refused[6];
  EXPECT_NE(refused[6].message().find(" left"), absl::string_view::npos) << refused[6];
  EXPECT_FALSE(Has(*store, "new"));
  EXPECT_EQ(MustGet(*store, "small"), kSmall);
  EXPECT_EQ(MustGet(*store, "middle"), kMiddle);
  EXPECT_EQ(store->Stats().failed_allocations, 12u);
  EXPECT_EQ(store->Stats().items, full.items);
  EXPECT_EQ(store->Stats().used_bytes, full.used_bytes);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);

  // In place, small and large.
  EXPECT_TRUE(store->Put(0, "small", AsBytes(std::string(100, 't')), {.flags = 5})->existed);
  EXPECT_EQ(MustGet(*store, "small"), std::string(100, 't'));
  EXPECT_TRUE(store->Put(0, "middle", AsBytes(std::string(7001, 'n')), {.flags = 6})->existed);
  EXPECT_EQ(MustGet(*store, "middle"), std::string(7001, 'n'));
  EXPECT_EQ(store->Get(0, "middle", std::span<uint8_t>())->flags, 6);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);

  for (const std::string& key : fillers) ASSERT_TRUE(store->Delete(0, key)->existed);
  EXPECT_TRUE(store->Put(0, "new", AsBytes(std::string(kMiB, 'r'))).ok());
  EXPECT_TRUE(store->Put(0, "small", AsBytes(kLarge)).ok());
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

// Items still fit, but the index cannot grow.
TEST(StoreOutOfMemoryTest, NoRoomForASegment) {
  const std::unique_ptr<Store> store = MakeStore(8 * kMiB);
  ASSERT_NE(store, nullptr);
  // Four runs leave two pages for items, and the one with the first 28 segments.
  for (const char* key : {"run1", "run2", "run3", "run4"}) {
    ASSERT_TRUE(store->Put(0, key, AsBytes(std::string(kMiB - 100, 'r'))).ok());
  }
  absl::Status error;
  int count = 0;
  while (error.ok()) error = store->Put(0, absl::StrCat(count++), AsBytes("v")).status();
  EXPECT_EQ(error.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(error.message().find("segment"), absl::string_view::npos) << error;
  EXPECT_EQ(store->Stats().segments, kSegmentsPerPage);
  EXPECT_FALSE(Has(*store, absl::StrCat(count - 1)));
  for (int i = 0; i < count - 1; ++i) ASSERT_EQ(MustGet(*store, absl::StrCat(i)), "v");
  EXPECT_TRUE(store->Put(0, "0", AsBytes("changed")).ok());
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
  // A prepared change of the same kind is refused too, and leaves nothing behind.
  const uint64_t used = store->Stats().used_bytes;
  EXPECT_EQ(store->Publish(*store->PreparePut(0, absl::StrCat(count - 1), AsBytes("v"))).status(),
            error);
  EXPECT_EQ(store->Stats().used_bytes, used);
  ASSERT_TRUE(store->Delete(0, "run2")->existed);
  EXPECT_TRUE(store->Put(0, absl::StrCat(count - 1), AsBytes("v")).ok());
  EXPECT_EQ(store->Stats().segments, kSegmentsPerPage + 1);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

TEST(StoreThreadsTest, WorkersChangeTheSameKeys) {
  constexpr int kWorkers = 4;
  constexpr int kKeys = 50;
  const std::unique_ptr<Store> store = MakeStore(16 * kMiB, kWorkers);
  ASSERT_NE(store, nullptr);
  // Each change of a key has a version of its own, whoever makes it.
  std::vector<std::vector<std::pair<int, uint64_t>>> versions(kWorkers);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      for (int i = 0; i < 5000; ++i) {
        const int key = (i * 7 + worker) % kKeys;
        const std::string name = absl::StrCat("key", key);
        if (i % 5 == 4) {
          ASSERT_TRUE(store->Delete(worker, name).ok());
          continue;
        }
        const std::string value(static_cast<size_t>(i % 3 * 100 + i % 11), 'v');
        const absl::StatusOr<PutResult> put = store->Put(worker, name, AsBytes(value));
        ASSERT_TRUE(put.ok());
        versions[static_cast<size_t>(worker)].emplace_back(key, put->version);
        // And keys of its own, so that segments are split meanwhile.
        ASSERT_TRUE(store->Put(worker, absl::StrCat(worker, "/", i), AsBytes("x")).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::pair<int, uint64_t>> all;
  size_t count = 0;
  for (const auto& mine : versions) {
    all.insert(mine.begin(), mine.end());
    count += mine.size();
  }
  EXPECT_EQ(all.size(), count);
  EXPECT_GT(store->Stats().splits, 0u);
  EXPECT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

}  // namespace
}  // namespace verbena::storage
