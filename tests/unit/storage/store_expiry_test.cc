#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/expiry.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class StoreExpiryTest : public CheckedStoreTest {
 protected:
  StoreExpiryTest() : CheckedStoreTest(MakeStore(32 * kMiB, 2)) {}
  PutResult Put(std::string_view key, std::string_view value, int64_t due_ns = kNever) {
    PutOptions options;
    options.due_ns = due_ns;
    return *store_->Put(0, key, AsBytes(value), options);
  }
  bool Has(std::string_view key) { return store_->Get(0, key, std::span<uint8_t>())->found; }
  int64_t DueOf(std::string_view key) { return store_->Due(0, key)->due_ns; }

  const int64_t now_ = MonotonicNanos();
};

TEST_F(StoreExpiryTest, RemovesWhatIsDueAndNothingElse) {
  Put("short", "1", now_ + 3600 * kSecond);
  Put("long", "2", now_ + 7200 * kSecond);
  Put("for ever", "3");
  EXPECT_EQ(store_->RemoveDue(1, now_ + 3599 * kSecond, 100), 0u);
  EXPECT_EQ(store_->RemoveDue(1, now_ + 3601 * kSecond, 100), 1u);
  EXPECT_FALSE(Has("short"));
  EXPECT_TRUE(Has("long"));
  EXPECT_TRUE(Has("for ever"));
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.expired, 1u);
  EXPECT_EQ(stats.timers, 1u);
  EXPECT_EQ(stats.items, 2u);
}

TEST_F(StoreExpiryTest, TellsHowLateRemovalIs) {
  EXPECT_EQ(store_->Stats().expiry_lateness, 0);
  Put("ahead", "1", now_ + 3600 * kSecond);
  EXPECT_EQ(store_->Stats().expiry_lateness, 0);
  Put("late", "2", now_ - 5 * kSecond);
  EXPECT_GE(store_->Stats().expiry_lateness, 5 * kSecond);
  EXPECT_EQ(store_->RemoveDue(1, MonotonicNanos(), 100), 1u);
  EXPECT_EQ(store_->Stats().expiry_lateness, 0);
}

TEST_F(StoreExpiryTest, AnOperationThatComesUponAnItemWhoseTimeIsOverRemovesIt) {
  for (const char* key : {"get", "put", "delete", "add", "append", "ttl", "absent"}) {
    Put(key, "7", now_ - 1);
  }
  EXPECT_FALSE(Has("get"));
  EXPECT_FALSE(Put("put", "8").existed);
  EXPECT_FALSE(store_->Delete(0, "delete")->existed);
  EXPECT_EQ(store_->Add(0, "add", 1)->number, 1);
  ASSERT_TRUE(store_->Append(0, "append", AsBytes("x")).ok());
  std::string value;
  EXPECT_TRUE(store_->Get(0, "append", &value)->found);
  EXPECT_EQ(value, "x");
  EXPECT_FALSE(store_->Due(0, "ttl")->found);
  PutOptions if_absent;
  if_absent.condition.require = Require::kAbsent;
  EXPECT_EQ(store_->Put(0, "absent", AsBytes("9"), if_absent)->outcome, Outcome::kDone);
  EXPECT_EQ(store_->Stats().expired, 7u);
  EXPECT_EQ(store_->Stats().timers, 0u);
  EXPECT_EQ(store_->Stats().items, 4u);
}

TEST_F(StoreExpiryTest, APutSetsOrTakesTheTimeAwayAndAnEditKeepsIt) {
  const int64_t due = now_ + 100 * kSecond;
  Put("key", "1", due);
  EXPECT_EQ(DueOf("key"), due);
  ASSERT_TRUE(store_->Add(0, "key", 5).ok());                                  // in place
  ASSERT_TRUE(store_->Append(0, "key", AsBytes(std::string(500, '0'))).ok());  // elsewhere
  EXPECT_EQ(DueOf("key"), due);
  Put("key", "2");  // elsewhere
  EXPECT_EQ(DueOf("key"), kNever);
  Put("key", "3", due);  // in place
  EXPECT_EQ(DueOf("key"), due);
  Put("key", "4");  // in place
  EXPECT_EQ(DueOf("key"), kNever);
  Put("key", std::string(5000, 'x'), due);
  Put("key", std::string(5000, 'y'), due + 1);
  EXPECT_EQ(DueOf("key"), due + 1);
  ASSERT_TRUE(store_->Delete(0, "key")->existed);
  EXPECT_EQ(store_->Stats().timers, 0u);
  Put("key", "5");
  EXPECT_EQ(DueOf("key"), kNever);
}

TEST_F(StoreExpiryTest, ExpireAndPersistChangeTheTimeOnly) {
  const uint64_t version = Put("key", "value").version;
  ExpireResult result = *store_->Expire(0, "key", now_ + kSecond * 50);
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.version, version);
  EXPECT_EQ(result.due_ns, kNever);
  result = *store_->Expire(0, "key", kNever);
  EXPECT_EQ(result.due_ns, now_ + kSecond * 50);
  EXPECT_EQ(DueOf("key"), kNever);
  EXPECT_FALSE(store_->Expire(0, "other", now_ + kSecond)->found);
  EXPECT_EQ(store_->Get(0, "key", std::span<uint8_t>())->version, version);
}

TEST_F(StoreExpiryTest, TheTimeFollowsAnItemThatIsMoved) {
  Put("key", "value", now_ + 100 * kSecond);
  const uint64_t offset = store_->Get(0, "key", std::span<uint8_t>())->slot.offset();
  ASSERT_TRUE(store_->MoveItem(0, store_->index().Hash("key"), offset));
  EXPECT_EQ(DueOf("key"), now_ + 100 * kSecond);
  EXPECT_EQ(store_->RemoveDue(0, now_ + 101 * kSecond, 10), 1u);
  EXPECT_FALSE(Has("key"));
}

TEST_F(StoreExpiryTest, APreparedPutKeepsItsTime) {
  PutOptions options;
  options.due_ns = now_ + 100 * kSecond;
  PreparedPut put = *store_->PreparePut(0, "key", AsBytes("value"), options);
  EXPECT_EQ(store_->Stats().timers, 0u);
  ASSERT_TRUE(store_->Publish(std::move(put)).ok());
  EXPECT_EQ(DueOf("key"), options.due_ns);
}

// Short times under changes, moves and reads: what was put last without a time is there in the end.
TEST_F(StoreExpiryTest, GoesOnBesideChanges) {
  constexpr int kKeys = 64;
  std::atomic<int> running{2};
  std::vector<std::thread> writers;
  for (int worker = 0; worker < 2; ++worker) {
    writers.emplace_back([&, worker] {
      for (int round = 0; round < 20'000; ++round) {
        const std::string key = absl::StrCat("key-", worker, "-", round % kKeys);
        PutOptions options;
        options.due_ns = MonotonicNanos() + round % 3 * 20'000;
        const std::string value(static_cast<size_t>(round % 5 * 300), 'v');
        ASSERT_TRUE(store_->Put(worker, key, AsBytes(value), options).ok());
      }
      for (int i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(store_->Put(worker, absl::StrCat("key-", worker, "-", i), AsBytes("end")).ok());
      }
      --running;
    });
  }
  while (running > 0) store_->RemoveDue(store_->maintenance_worker(), MonotonicNanos(), 16);
  for (std::thread& writer : writers) writer.join();
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.items, 2u * kKeys);
  EXPECT_EQ(stats.timers, 0u);
  EXPECT_GT(stats.expired, 0u);
}

// Each change that sets an earlier time wakes once, and holds no lock then: the lookup of the same
// key would wait for its bucket for ever.
TEST(StoreExpiryWakeTest, WakesWithNoLockHeld) {
  std::unique_ptr<Store> store;
  int wakes = 0;
  StoreOptions options;
  options.wake_for_expiry = [&] {
    ++wakes;
    EXPECT_TRUE(Has(*store, "key"));
  };
  store = MakeStore(16 * kMiB, options);
  ASSERT_NE(store, nullptr);
  // The time set must be before what the last look said.
  const auto put = [&](size_t size, int64_t seconds) {
    store->expiry().NextLook(MonotonicNanos());
    PutOptions put_options;
    put_options.due_ns = MonotonicNanos() + seconds * kSecond;
    return store->Put(0, "key", AsBytes(std::string(size, 'v')), put_options).ok();
  };
  EXPECT_TRUE(put(100, 36'000));  // a new key
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(put(101, 9000));  // in place
  EXPECT_EQ(wakes, 2);
  EXPECT_TRUE(put(5000, 2000));  // elsewhere
  EXPECT_EQ(wakes, 3);
  store->expiry().NextLook(MonotonicNanos());
  EXPECT_TRUE(store->Expire(0, "key", MonotonicNanos() + 200 * kSecond)->found);
  EXPECT_EQ(wakes, 4);
  // A later time wakes nobody.
  EXPECT_TRUE(put(100, 36'000));
  EXPECT_EQ(wakes, 4);
}

}  // namespace
}  // namespace verbena::storage
