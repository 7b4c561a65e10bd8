#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

class StoreMaintenanceTest : public RecordedStoreTest {
 protected:
  layout::KeyHash HashOf(std::string_view key) const { return store_->index().Hash(key); }
  GetResult Find(std::string_view key, std::string* value = nullptr) {
    std::string ignored;
    return *store_->Get(0, key, value != nullptr ? value : &ignored);
  }
};

TEST_F(StoreMaintenanceTest, TheMoveOfALargeItemCanBeStopped) {
  const std::string value(3'000'000, 'v');
  ASSERT_TRUE(store_->Put(0, "key", AsBytes(value)).ok());
  const GetResult before = Find("key");
  const uint64_t used = store_->Stats().block_bytes;
  const auto move = [&](int after) {
    return store_->TryMoveItem(0, HashOf("key"), before.slot.offset(),
                               [&after] { return --after < 0; });
  };
  for (const int after : {0, 1, 2}) {
    EXPECT_EQ(move(after), MoveResult::kStopped);
    std::string found;
    EXPECT_EQ(Find("key", &found).slot, before.slot);
    EXPECT_EQ(found, value);
    EXPECT_EQ(store_->Stats().block_bytes, used);
  }
  EXPECT_EQ(move(100), MoveResult::kMoved);
  EXPECT_NE(Find("key").slot, before.slot);
}

TEST_F(StoreMaintenanceTest, MovesItemsOfAllSizes) {
  for (const uint64_t size : {0u, 1u, 100u, 4000u, 4096u, 20'000u, 500'000u, 2'000'000u}) {
    const std::string key = absl::StrCat("key-", size);
    const std::string value(size, static_cast<char>('a' + size % 26));
    ASSERT_TRUE(store_->Put(0, key, AsBytes(value), {.flags = 7}).ok());
    const GetResult before = Find(key);
    ASSERT_TRUE(store_->MoveItem(store_->maintenance_worker(), HashOf(key), before.slot.offset()));
    std::string moved;
    const GetResult after = Find(key, &moved);
    EXPECT_NE(after.slot.offset(), before.slot.offset());
    EXPECT_EQ(after.version, before.version);
    EXPECT_EQ(after.flags, 7);
    EXPECT_EQ(moved, value);
    EXPECT_EQ(recorder_.items().at(key), after.slot.offset());
    // The old place names nothing any more.
    EXPECT_FALSE(store_->MoveItem(0, HashOf(key), before.slot.offset()));
  }
  EXPECT_EQ(recorder_.moves(), 8);
}

// Where a block was found in a list, it may be another key's of the bucket by now.
TEST_F(StoreMaintenanceTest, TouchesNoItemOfAnotherKeyOfTheBucket) {
  ASSERT_TRUE(store_->Put(0, "key", AsBytes("value")).ok());
  const uint64_t offset = Find("key").slot.offset();
  int i = 0;
  while (HashOf(absl::StrCat("other-", i)).bucket() != HashOf("key").bucket()) ++i;
  const layout::KeyHash other = HashOf(absl::StrCat("other-", i));
  EXPECT_FALSE(store_->RemoveItemIf(0, other, offset, [] { return true; }));
  EXPECT_FALSE(store_->MoveItem(0, other, offset));
  EXPECT_EQ(Find("key").slot.offset(), offset);
}

TEST_F(StoreMaintenanceTest, RemovesAnItemOnlyIfAgreed) {
  ASSERT_TRUE(store_->Put(0, "key", AsBytes("value")).ok());
  const uint64_t offset = Find("key").slot.offset();
  EXPECT_FALSE(store_->RemoveItemIf(0, HashOf("key"), offset, [] { return false; }));
  EXPECT_TRUE(Find("key").found);
  EXPECT_FALSE(store_->RemoveItemIf(0, HashOf("key"), offset + 16, [] { return true; }));
  EXPECT_TRUE(store_->RemoveItemIf(0, HashOf("key"), offset, [] { return true; }));
  EXPECT_FALSE(Find("key").found);
  EXPECT_FALSE(store_->RemoveItemIf(0, HashOf("key"), offset, [] { return true; }));
  EXPECT_EQ(store_->Stats().items, 0u);
  EXPECT_EQ(store_->Stats().live_bytes, 0u);
  EXPECT_TRUE(recorder_.items().empty());
}

TEST_F(StoreMaintenanceTest, ListenersAreToldOfEveryChangeButThoseInPlace) {
  ASSERT_TRUE(store_->Put(0, "a", AsBytes("1")).ok());
  ASSERT_TRUE(store_->Put(0, "a", AsBytes("2")).ok());
  EXPECT_EQ(recorder_.changes(), 0);
  ASSERT_TRUE(store_->Put(0, "a", AsBytes(std::string(200, 'x'))).ok());
  EXPECT_EQ(recorder_.changes(), 1);
  ASSERT_TRUE(store_->Delete(0, "a").ok());
  EXPECT_TRUE(recorder_.items().empty());
}

// Writers and deleters of a few keys, while one thread moves whatever it finds.
TEST(StoreMovesTest, GoOnBesideChanges) {
  const std::unique_ptr<Store> store = MakeStore(32 * kMiB, 2);
  ASSERT_NE(store, nullptr);
  constexpr int kKeys = 16;
  constexpr int kRounds = 20'000;
  std::atomic<int> running{2};
  std::vector<std::thread> writers;
  for (int worker = 0; worker < 2; ++worker) {
    writers.emplace_back([&, worker] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string key = absl::StrCat("key-", worker, "-", round % kKeys);
        const std::string value =
            absl::StrCat(key, std::string(static_cast<size_t>(round % 7 * 900), 'v'), round);
        ASSERT_TRUE(store->Put(worker, key, AsBytes(value)).ok());
        std::string read;
        ASSERT_TRUE(store->Get(worker, key, &read)->found);
        ASSERT_EQ(read, value);
        if (round % 5 == 0) {
          ASSERT_TRUE(store->Delete(worker, key)->existed);
        }
      }
      --running;
    });
  }
  int moved = 0;
  for (int i = 0; running > 0; ++i) {
    const std::string key = absl::StrCat("key-", i % 2, "-", i / 2 % kKeys);
    const GetResult found = *store->Get(2, key, std::span<uint8_t>());
    if (!found.found) continue;
    moved += store->MoveItem(2, store->index().Hash(key), found.slot.offset()) ? 1 : 0;
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(moved, 0);
  EXPECT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

}  // namespace
}  // namespace verbena::storage
