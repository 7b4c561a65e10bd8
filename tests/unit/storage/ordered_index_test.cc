#include "server/storage/ordered_index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

class OrderedIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(store_, nullptr);
    index_ = std::make_unique<OrderedIndex>(store_->region());
    store_->AddListener(index_.get());
  }
  void Put(std::string_view key, std::string_view value = "value") {
    ASSERT_TRUE(store_->Put(0, key, AsBytes(value)).ok());
  }
  std::vector<std::string> Scan(const OrderedIndex::Range& range, size_t limit = SIZE_MAX) {
    std::vector<std::string> keys;
    index_->Scan(range, [&](const OrderedIndex::Found& found) {
      // The slot leads to the item.
      const GetResult got = *store_->Get(0, found.key, std::span<uint8_t>());
      EXPECT_TRUE(got.found && got.slot == found.slot) << found.key;
      keys.push_back(found.key);
      return keys.size() < limit;
    });
    return keys;
  }

  std::unique_ptr<Store> store_ = MakeStore(32 * kMiB, 2);
  std::unique_ptr<OrderedIndex> index_;
};

using Keys = std::vector<std::string>;

TEST_F(OrderedIndexTest, OrdersByBytesAndLength) {
  const Keys keys = {std::string("\0", 1),
                     std::string("\0\0", 2),
                     "a",
                     std::string("a\0", 2),
                     std::string("a\0b", 3),
                     "aa",
                     "abcdefgh",
                     "abcdefgh0",
                     "abcdefghi",
                     "abcdefghij",
                     "b",
                     "\x7f",
                     "\x80",
                     "\xff",
                     "\xff\xff"};
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) Put(*key);
  EXPECT_EQ(Scan({}), keys);
  EXPECT_EQ(index_->size(), keys.size());
  EXPECT_GT(index_->memory(), keys.size() * 16);
}

TEST_F(OrderedIndexTest, StartsWhereItIsTold) {
  for (const char* key : {"b", "d", "f"}) Put(key);
  EXPECT_EQ(Scan({.start = "d"}), (Keys{"d", "f"}));
  EXPECT_EQ(Scan({.start = "d", .after = true}), (Keys{"f"}));
  EXPECT_EQ(Scan({.start = "c"}), (Keys{"d", "f"}));  // a key that does not exist
  EXPECT_EQ(Scan({.start = "c", .after = true}), (Keys{"d", "f"}));
  EXPECT_EQ(Scan({.start = "g"}), Keys{});
  EXPECT_EQ(Scan({}, 2), (Keys{"b", "d"}));
}

TEST_F(OrderedIndexTest, KeepsToThePrefix) {
  for (const char* key : {"user", "user:1", "user:10", "user:2", "usher", "use"}) Put(key);
  EXPECT_EQ(Scan({.prefix = "user:"}), (Keys{"user:1", "user:10", "user:2"}));
  EXPECT_EQ(Scan({.start = "user:1", .after = true, .prefix = "user:"}),
            (Keys{"user:10", "user:2"}));
  EXPECT_EQ(Scan({.start = "z", .prefix = "user:"}), Keys{});
  EXPECT_EQ(Scan({.start = "a", .after = true, .prefix = "user:"}),
            (Keys{"user:1", "user:10", "user:2"}));
  EXPECT_EQ(Scan({.prefix = "x"}), Keys{});
}

TEST_F(OrderedIndexTest, FollowsItemsThatMoveAndGo) {
  Put("key");
  Put("key", std::string(1000, 'x'));
  EXPECT_EQ(Scan({}), Keys{"key"});
  const uint64_t offset = store_->Get(0, "key", std::span<uint8_t>())->slot.offset();
  ASSERT_TRUE(store_->MoveItem(0, store_->index().Hash("key"), offset));
  EXPECT_EQ(Scan({}), Keys{"key"});
  ASSERT_TRUE(store_->Delete(0, "key").ok());
  EXPECT_EQ(Scan({}), Keys{});
  EXPECT_EQ(index_->size(), 0u);
}

TEST_F(OrderedIndexTest, AgreesWithAMap) {
  std::mt19937_64 random(11);
  std::map<std::string, bool> model;
  const auto random_key = [&] {
    std::string key(1 + random() % 12, 'a');
    for (char& c : key) c = static_cast<char>('a' + random() % 3);
    return key;
  };
  for (int step = 0; step < 20'000; ++step) {
    const std::string key = random_key();
    if (random() % 3 != 0) {
      Put(key, std::string(random() % 300, 'v'));
      model[key] = true;
    } else {
      ASSERT_TRUE(store_->Delete(1, key).ok());
      model.erase(key);
    }
    if (step % 500 != 0) continue;
    const std::string start = random_key();
    const std::string prefix = random() % 2 == 0 ? "" : random_key().substr(0, 2);
    const size_t limit = 1 + random() % 1000;
    Keys expected;
    for (auto at = model.lower_bound(start); at != model.end() && expected.size() < limit; ++at) {
      if (at->first.starts_with(prefix)) expected.push_back(at->first);
    }
    ASSERT_EQ(Scan({.start = start, .prefix = prefix}, limit), expected);
  }
}

// Keys that stay are found by every scan, in order, whatever happens to others beside them.
TEST_F(OrderedIndexTest, ScansBesideChanges) {
  constexpr int kKeys = 500;
  const auto name = [](int i) { return absl::StrCat("key-", 1000 + i); };
  for (int i = 0; i < kKeys; i += 2) Put(name(i));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::mt19937_64 random(5);
    while (!stop) {
      const int i = static_cast<int>(random() % kKeys);
      const std::string value(random() % 400, 'v');
      if (i % 2 == 1 && random() % 2 == 0) {
        EXPECT_TRUE(store_->Delete(1, name(i)).ok());
      } else {
        EXPECT_TRUE(store_->Put(1, name(i), AsBytes(value)).ok());
      }
    }
  });
  for (int round = 0; round < 200; ++round) {
    int staying = 0;
    std::string last;
    index_->Scan({}, [&](const OrderedIndex::Found& found) {
      EXPECT_LT(last, found.key);
      last = found.key;
      staying += (found.key.back() - '0') % 2 == 0;
      return true;
    });
    ASSERT_EQ(staying, kKeys / 2);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace verbena::storage
