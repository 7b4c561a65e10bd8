// Changes that depend on what is there: conditions, Add, Append, Take.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

using absl::StatusCode;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr Condition kIfAbsent = {Require::kAbsent, 0};
constexpr Condition kIfPresent = {Require::kPresent, 0};
Condition IfVersion(uint64_t version) { return {Require::kVersion, version}; }

class StoreChangesTest : public RecordedStoreTest {
 protected:
  uint64_t MustPut(std::string_view key, std::string_view value, uint16_t flags = 0) {
    const absl::StatusOr<PutResult> put = store_->Put(0, key, AsBytes(value), {.flags = flags});
    EXPECT_TRUE(put.ok()) << put.status();
    return put.ok() ? put->version : 0;
  }
  uint64_t VersionOf(std::string_view key) {
    return store_->Get(0, key, std::span<uint8_t>())->version;
  }
  uint16_t FlagsOf(std::string_view key) {
    return store_->Get(0, key, std::span<uint8_t>())->flags;
  }
  // One that no reader accepts any more.
  bool IsInvalid(layout::Slot slot) const {
    return *reinterpret_cast<const uint64_t*>(store_->region().At(slot.offset())) == 0;
  }
};

// All ways to put a value: at once and in halves; small, staged or not, a run.
using PutFunction =
    std::function<absl::StatusOr<PutResult>(Store&, std::string_view, std::string_view, Condition)>;

absl::StatusOr<PutResult> PutAtOnce(Store& store, std::string_view key, std::string_view value,
                                    Condition condition) {
  return store.Put(0, key, AsBytes(value), {.flags = 3, .condition = condition});
}

absl::StatusOr<PutResult> PutInHalves(Store& store, std::string_view key, std::string_view value,
                                      Condition condition) {
  absl::StatusOr<PreparedPut> put =
      store.PreparePut(0, key, AsBytes(value), {.flags = 3, .condition = condition});
  if (!put.ok()) return put.status();
  return store.Publish(*std::move(put));
}

TEST_F(StoreChangesTest, EachConditionOfAPut) {
  for (const PutFunction& put : {PutFunction(PutAtOnce), PutFunction(PutInHalves)}) {
    for (const size_t size : {size_t{10}, size_t{5000}, size_t{700'000}}) {
      // In place where that is possible, and to a block of another class.
      for (const size_t new_size : {size, size * 2}) {
        SCOPED_TRACE(absl::StrCat(size, " to ", new_size));
        const std::string old(size, 'o');
        const std::string value(new_size, 'n');
        // Absent.
        for (const Condition& condition : {kIfPresent, IfVersion(0), IfVersion(1)}) {
          const absl::StatusOr<PutResult> refused = put(*store_, "key", value, condition);
          ASSERT_TRUE(refused.ok()) << refused.status();
          EXPECT_EQ(refused->outcome, Outcome::kAbsent);
          EXPECT_FALSE(refused->existed);
          EXPECT_EQ(refused->version, 0u);
          EXPECT_FALSE(Has(*store_, "key"));
        }
        const absl::StatusOr<PutResult> created = put(*store_, "key", old, kIfAbsent);
        ASSERT_TRUE(created.ok());
        EXPECT_EQ(created->outcome, Outcome::kDone);
        EXPECT_FALSE(created->existed);
        // Present.
        const layout::Slot slot = SlotOf(*store_, "key");
        const uint64_t used = store_->Stats().used_bytes;
        const std::pair<Condition, Outcome> refusals[] = {
            {kIfAbsent, Outcome::kExists},
            {IfVersion(created->version - 1), Outcome::kOtherVersion},
            {IfVersion(created->version + 1), Outcome::kOtherVersion},
            {IfVersion(0), Outcome::kOtherVersion}};
        for (const auto& [condition, outcome] : refusals) {
          const absl::StatusOr<PutResult> refused = put(*store_, "key", value, condition);
          ASSERT_TRUE(refused.ok()) << refused.status();
          EXPECT_EQ(refused->outcome, outcome);
          EXPECT_TRUE(refused->existed);
          EXPECT_EQ(refused->version, created->version);
          EXPECT_EQ(VersionOf("key"), created->version);
          EXPECT_EQ(SlotOf(*store_, "key"), slot);
          EXPECT_EQ(MustGet(*store_, "key"), old);
        }
        EXPECT_EQ(store_->Stats().used_bytes, used);
        const absl::StatusOr<PutResult> swapped =
            put(*store_, "key", value, IfVersion(created->version));
        ASSERT_TRUE(swapped.ok());
        EXPECT_EQ(swapped->outcome, Outcome::kDone);
        EXPECT_TRUE(swapped->existed);
        EXPECT_GT(swapped->version, created->version);
        EXPECT_EQ(MustGet(*store_, "key"), value);
        const absl::StatusOr<PutResult> replaced = put(*store_, "key", old, kIfPresent);
        ASSERT_TRUE(replaced.ok());
        EXPECT_EQ(replaced->outcome, Outcome::kDone);
        EXPECT_EQ(MustGet(*store_, "key"), old);
        EXPECT_EQ(FlagsOf("key"), 3);
        ASSERT_TRUE(store_->Delete(0, "key")->existed);
      }
    }
  }
}

// What a condition was true of when the change was prepared does not count.
TEST_F(StoreChangesTest, AConditionIsJudgedAtPublish) {
  const auto prepare = [&](Condition condition) {
    return *store_->PreparePut(0, "key", AsBytes("prepared"), {.condition = condition});
  };
  PreparedPut if_absent = prepare(kIfAbsent);
  const uint64_t version = MustPut("key", "other");
  PreparedPut if_version = prepare(IfVersion(version));
  PreparedPut if_present = prepare(kIfPresent);
  EXPECT_EQ(store_->Publish(std::move(if_absent))->outcome, Outcome::kExists);
  EXPECT_EQ(MustGet(*store_, "key"), "other");
  const uint64_t newer = MustPut("key", "newer");
  const absl::StatusOr<PutResult> refused = store_->Publish(std::move(if_version));
  EXPECT_EQ(refused->outcome, Outcome::kOtherVersion);
  EXPECT_EQ(refused->version, newer);
  ASSERT_TRUE(store_->Delete(0, "key")->existed);
  EXPECT_EQ(store_->Publish(std::move(if_present))->outcome, Outcome::kAbsent);
  EXPECT_FALSE(Has(*store_, "key"));
  EXPECT_EQ(store_->Stats().block_bytes, 0u);
}

TEST_F(StoreChangesTest, DeleteIfVersion) {
  EXPECT_EQ(store_->Delete(0, "key", IfVersion(5))->outcome, Outcome::kAbsent);
  const uint64_t version = MustPut("key", "value");
  const absl::StatusOr<DeleteResult> refused = store_->Delete(0, "key", IfVersion(version - 1));
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(refused->outcome, Outcome::kOtherVersion);
  EXPECT_TRUE(refused->existed);
  EXPECT_EQ(refused->version, version);
  EXPECT_EQ(MustGet(*store_, "key"), "value");
  const absl::StatusOr<DeleteResult> deleted = store_->Delete(0, "key", IfVersion(version));
  ASSERT_TRUE(deleted.ok());
  EXPECT_EQ(deleted->outcome, Outcome::kDone);
  EXPECT_EQ(deleted->version, version);
  EXPECT_FALSE(Has(*store_, "key"));
  EXPECT_TRUE(recorder_.items().empty());
}

TEST_F(StoreChangesTest, TakeDeletesWhatItGives) {
  std::vector<uint8_t> room(10, 0xaa);
  EXPECT_EQ(store_->Take(0, "key", room)->outcome, Outcome::kAbsent);
  const uint64_t version = MustPut("key", "0123456789");
  // Nothing is lost where it does not fit.
  const absl::StatusOr<DeleteResult> refused = store_->Take(0, "key", std::span(room).first(9));
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(refused->outcome, Outcome::kTooLong);
  EXPECT_EQ(refused->value_len, 10u);
  EXPECT_EQ(refused->version, version);
  EXPECT_EQ(MustGet(*store_, "key"), "0123456789");
  EXPECT_EQ(store_->Take(0, "key", room, IfVersion(version + 1))->outcome, Outcome::kOtherVersion);
  EXPECT_EQ(room, std::vector<uint8_t>(10, 0xaa));
  const absl::StatusOr<DeleteResult> taken = store_->Take(0, "key", room, IfVersion(version));
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken->outcome, Outcome::kDone);
  EXPECT_EQ(taken->value_len, 10u);
  EXPECT_EQ(taken->version, version);
  EXPECT_EQ(std::string(room.begin(), room.end()), "0123456789");
  EXPECT_FALSE(Has(*store_, "key"));
  EXPECT_TRUE(recorder_.items().empty());
  MustPut("empty", "");
  EXPECT_EQ(store_->Take(0, "empty", {})->outcome, Outcome::kDone);
}

TEST_F(StoreChangesTest, AddCounts) {
  const absl::StatusOr<AddResult> first = store_->Add(0, "n", 5);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->outcome, Outcome::kDone);
  EXPECT_FALSE(first->existed);
  EXPECT_EQ(first->number, 5);
  EXPECT_EQ(MustGet(*store_, "n"), "5");
  EXPECT_EQ(VersionOf("n"), first->version);
  const absl::StatusOr<AddResult> second = store_->Add(1, "n", -15);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->existed);
  EXPECT_EQ(second->number, -10);
  EXPECT_GT(second->version, first->version);
  EXPECT_EQ(MustGet(*store_, "n"), "-10");
  EXPECT_EQ(store_->Add(0, "n", 10)->number, 0);
  EXPECT_EQ(MustGet(*store_, "n"), "0");
  // What was put as text, and its flags stay.
  MustPut("n", "41", 9);
  EXPECT_EQ(store_->Add(0, "n", 1)->number, 42);
  EXPECT_EQ(FlagsOf("n"), 9);
}

TEST_F(StoreChangesTest, AddGoesOverAllLengthsInPlaceAndElsewhere) {
  // With a key of 5 the number of 3 digits is in the last bytes of its class.
  const std::string key = "count";
  ASSERT_EQ(layout::SizeClassFor(layout::ItemSize(5, 3)) + 1,
            layout::SizeClassFor(layout::ItemSize(5, 4)));
  MustPut(key, "998", 7);
  const layout::Slot slot = SlotOf(*store_, key);
  EXPECT_EQ(store_->Add(0, key, 1)->number, 999);
  EXPECT_EQ(SlotOf(*store_, key), slot);
  EXPECT_EQ(recorder_.changes(), 0);
  EXPECT_EQ(store_->Add(0, key, 1)->number, 1000);
  EXPECT_NE(SlotOf(*store_, key), slot);
  EXPECT_TRUE(IsInvalid(slot));
  EXPECT_EQ(recorder_.changes(), 1);
  EXPECT_EQ(recorder_.items().at(key), SlotOf(*store_, key).offset());
  EXPECT_EQ(MustGet(*store_, key), "1000");
  EXPECT_EQ(FlagsOf(key), 7);
  EXPECT_EQ(store_->Add(0, key, -1)->number, 999);
  EXPECT_EQ(recorder_.changes(), 2);
  // Every length of a number, up and down, also with a key too long to be put together in one
  // piece.
  for (const std::string& name : {std::string("n"), std::string(layout::kMaxKeySize, 'k')}) {
    int64_t number = 0;
    for (int64_t summand = 1; summand < kMost / 20; summand *= 10) {
      number += summand;
      ASSERT_EQ(store_->Add(0, name, summand)->number, number);
      ASSERT_EQ(MustGet(*store_, name), absl::StrCat(number));
    }
    ASSERT_EQ(store_->Add(0, name, -2 * number)->number, -number);
    ASSERT_EQ(MustGet(*store_, name), absl::StrCat(-number));
  }
}

TEST_F(StoreChangesTest, AddAtTheLimits) {
  EXPECT_EQ(store_->Add(0, "most", kMost)->number, kMost);
  EXPECT_EQ(store_->Add(0, "least", kLeast)->number, kLeast);
  EXPECT_EQ(MustGet(*store_, "most"), "9223372036854775807");
  EXPECT_EQ(MustGet(*store_, "least"), "-9223372036854775808");
  const uint64_t versions[] = {VersionOf("most"), VersionOf("least")};
  const absl::StatusOr<AddResult> over = store_->Add(0, "most", 1);
  const absl::StatusOr<AddResult> under = store_->Add(0, "least", -1);
  ASSERT_TRUE(over.ok() && under.ok());
  EXPECT_EQ(over->outcome, Outcome::kOverflow);
  EXPECT_EQ(under->outcome, Outcome::kOverflow);
  EXPECT_TRUE(over->existed);
  EXPECT_EQ(over->version, versions[0]);
  EXPECT_EQ(store_->Add(0, "most", kMost)->outcome, Outcome::kOverflow);
  EXPECT_EQ(store_->Add(0, "least", kLeast)->outcome, Outcome::kOverflow);
  EXPECT_EQ(MustGet(*store_, "most"), "9223372036854775807");
  EXPECT_EQ(MustGet(*store_, "least"), "-9223372036854775808");
  EXPECT_EQ(VersionOf("most"), versions[0]);
  EXPECT_EQ(VersionOf("least"), versions[1]);
  EXPECT_EQ(store_->Add(0, "most", kLeast)->number, -1);
  EXPECT_EQ(store_->Add(0, "least", kMost)->number, -1);
}

TEST_F(StoreChangesTest, AddRefusesWhatIsNoNumber) {
  const std::string values[] = {"",
                                " 1",
                                "1 ",
                                "+1",
                                "-",
                                "--1",
                                "-0",
                                "00",
                                "01",
                                "-01",
                                "0x10",
                                "1.0",
                                "1e3",
                                "1\n",
                                std::string("1\0", 2),
                                "9223372036854775808",
                                "-9223372036854775809",
                                "18446744073709551616",
                                "99999999999999999999",
                                "000000000000000000001",
                                "number",
                                std::string(100'000, '1')};
  for (const std::string& value : values) {
    const uint64_t version = MustPut("n", value);
    const absl::StatusOr<AddResult> refused = store_->Add(0, "n", 0);
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_EQ(refused->outcome, Outcome::kNotANumber) << value.substr(0, 40);
    EXPECT_EQ(refused->version, version);
    EXPECT_EQ(MustGet(*store_, "n"), value);
    EXPECT_EQ(VersionOf("n"), version);
  }
}

TEST_F(StoreChangesTest, ConditionsOfAddAndAppend) {
  EXPECT_EQ(store_->Add(0, "n", 1, kIfPresent)->outcome, Outcome::kAbsent);
  EXPECT_EQ(store_->Append(0, "n", AsBytes("1"), kIfPresent)->outcome, Outcome::kAbsent);
  EXPECT_EQ(store_->Add(0, "n", 1, IfVersion(3))->outcome, Outcome::kAbsent);
  EXPECT_EQ(store_->Append(0, "n", AsBytes("1"), IfVersion(3))->outcome, Outcome::kAbsent);
  EXPECT_FALSE(Has(*store_, "n"));
  const uint64_t version = MustPut("n", "1");
  EXPECT_EQ(store_->Add(0, "n", 1, IfVersion(version + 1))->outcome, Outcome::kOtherVersion);
  EXPECT_EQ(store_->Append(0, "n", AsBytes("1"), IfVersion(version - 1))->version, version);
  // The condition comes before what the value is.
  EXPECT_EQ(store_->Add(0, "n", kMost, IfVersion(version + 1))->outcome, Outcome::kOtherVersion);
  const absl::StatusOr<AddResult> added = store_->Add(0, "n", 1, IfVersion(version));
  EXPECT_EQ(added->number, 2);
  EXPECT_EQ(store_->Append(0, "n", AsBytes("0"), IfVersion(added->version))->outcome,
            Outcome::kDone);
  EXPECT_EQ(store_->Add(0, "n", 1, kIfPresent)->number, 21);
}

TEST_F(StoreChangesTest, AppendInPlaceAndElsewhere) {
  // Pieces of these lengths one behind the other: within a class, to the next ones, over what is
  // staged, to runs.
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100}, size_t{3000}, size_t{200'000}}) {
    const std::string key = absl::StrCat("key", piece);
    std::string expected;
    uint64_t last = 0;
    for (int i = 0; i < 40 && expected.size() < 5'000'000; ++i) {
      const std::string suffix(piece, static_cast<char>('a' + i % 26));
      const absl::StatusOr<PutResult> put = store_->Append(i % 2, key, AsBytes(suffix));
      ASSERT_TRUE(put.ok()) << put.status();
      EXPECT_EQ(put->outcome, Outcome::kDone);
      EXPECT_EQ(put->existed, i > 0);
      EXPECT_GT(put->version, last);
      last = put->version;
      expected += suffix;
      ASSERT_EQ(MustGet(*store_, key), expected);
      ASSERT_EQ(VersionOf(key), last);
      ASSERT_EQ(recorder_.items().at(key), SlotOf(*store_, key).offset());
    }
  }
  EXPECT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
}

TEST_F(StoreChangesTest, AppendKeepsTheBlockWhereItCan) {
  MustPut("key", "0123456789", 5);
  const layout::Slot slot = SlotOf(*store_, "key");
  ASSERT_TRUE(store_->Append(0, "key", AsBytes("abcdefghij")).ok());
  EXPECT_EQ(SlotOf(*store_, "key"), slot);
  EXPECT_EQ(recorder_.changes(), 0);
  EXPECT_EQ(FlagsOf("key"), 5);
  ASSERT_TRUE(store_->Append(0, "key", AsBytes("kl")).ok());
  EXPECT_EQ(recorder_.changes(), 1);
  EXPECT_TRUE(IsInvalid(slot));
  EXPECT_EQ(MustGet(*store_, "key"), "0123456789abcdefghijkl");
  EXPECT_EQ(FlagsOf("key"), 5);
  // Nothing behind it is a change as well.
  const uint64_t version = VersionOf("key");
  EXPECT_GT(store_->Append(0, "key", {})->version, version);
  EXPECT_EQ(MustGet(*store_, "key"), "0123456789abcdefghijkl");
  EXPECT_FALSE(store_->Append(0, "new", {})->existed);
  EXPECT_EQ(MustGet(*store_, "new"), "");
}

TEST_F(StoreChangesTest, SizesOutOfRangeAreNamed) {
  const std::string long_key(layout::kMaxKeySize + 1, 'k');
  std::vector<uint8_t> room(10);
  for (const std::string& key : {std::string(), long_key}) {
    for (const absl::Status& error :
         {store_->Add(0, key, 1).status(), store_->Append(0, key, AsBytes("v")).status(),
          store_->Take(0, key, room).status(), store_->Delete(0, key, IfVersion(1)).status()}) {
      EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(error.message().find(absl::StrCat(key.size())), absl::string_view::npos) << error;
    }
  }
  // The largest value takes nothing more, and stays.
  const std::string largest(8 * kMiB - 1, 'v');
  const uint64_t version = MustPut("key", largest);
  const absl::Status error = store_->Append(0, "key", AsBytes("vv")).status();
  EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(error.message().find(absl::StrCat(8 * kMiB + 1)), absl::string_view::npos) << error;
  EXPECT_EQ(store_->Append(0, "new", AsBytes(largest + "vv")).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(VersionOf("key"), version);
  EXPECT_TRUE(store_->Append(0, "key", AsBytes("v")).ok());
  EXPECT_EQ(MustGet(*store_, "key"), largest + "v");
  EXPECT_FALSE(Has(*store_, "new"));
}

// What a full store refuses it leaves as it was, and what needs no memory goes through.
TEST(StoreChangesOutOfMemoryTest, NothingIsLost) {
  const std::unique_ptr<Store> store = MakeStore(8 * kMiB);
  ASSERT_NE(store, nullptr);
  const std::string large(7000, 'm');
  const std::string kNew = "another key";  // of a class that the fillers use up
  ASSERT_TRUE(store->Put(0, "count", AsBytes("998")).ok());
  ASSERT_TRUE(store->Put(0, "small", AsBytes("0123456789")).ok());
  ASSERT_TRUE(store->Put(0, "large", AsBytes(large)).ok());
  ASSERT_TRUE(store->Put(0, "run", AsBytes(std::string(kMiB, 'r'))).ok());
  const std::vector<std::string> fillers = FillUp(*store, {7000, 2000, 300, 100, 20, 10, 0});
  const StoreStats full = store->Stats();

  // In place, the large one too.
  EXPECT_EQ(store->Add(0, "count", 1)->number, 999);
  EXPECT_TRUE(store->Append(0, "small", AsBytes("a"))->existed);
  EXPECT_TRUE(store->Append(0, "large", AsBytes("n"))->existed);
  EXPECT_EQ(MustGet(*store, "count"), "999");
  EXPECT_EQ(MustGet(*store, "small"), "0123456789a");
  EXPECT_EQ(MustGet(*store, "large"), large + "n");

  const uint64_t version = store->Get(0, "large", std::span<uint8_t>())->version;
  const absl::Status refused[] = {
      store->Add(0, "count", 1).status(),
      store->Add(0, kNew, 1).status(),
      store->Append(0, kNew, AsBytes("1")).status(),
      store->Append(0, "small", AsBytes(std::string(100, 'b'))).status(),
      store->Append(0, "large", AsBytes(large)).status(),
      store->Append(0, "large", AsBytes(large), IfVersion(version)).status(),
      store->Append(0, "run", AsBytes("r")).status(),
      store->Put(0, kNew, AsBytes("v"), {.condition = kIfAbsent}).status(),
      store->Put(0, "small", AsBytes(large), {.condition = kIfPresent}).status(),
  };
  for (const absl::Status& error : refused) {
    EXPECT_EQ(error.code(), StatusCode::kResourceExhausted) << error;
  }
  EXPECT_EQ(MustGet(*store, "count"), "999");
  EXPECT_EQ(MustGet(*store, "small"), "0123456789a");
  EXPECT_EQ(MustGet(*store, "large"), large + "n");
  EXPECT_EQ(MustGet(*store, "run"), std::string(kMiB, 'r'));
  EXPECT_FALSE(Has(*store, kNew));
  EXPECT_EQ(store->Stats().items, full.items);
  EXPECT_EQ(store->Stats().used_bytes, full.used_bytes);

  // A condition is judged where a large value can only go over the old one.
  const std::string other(7001, 'o');
  const absl::StatusOr<PutResult> kept =
      store->Put(0, "large", AsBytes(other), {.condition = IfVersion(version + 1)});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->outcome, Outcome::kOtherVersion);
  EXPECT_EQ(kept->version, version);
  EXPECT_EQ(MustGet(*store, "large"), large + "n");
  EXPECT_EQ(store->Put(0, "large", AsBytes(other), {.condition = IfVersion(version)})->outcome,
            Outcome::kDone);
  // And where it cannot.
  const std::string pages(2 * kMiB, 'p');
  const uint64_t of_run = store->Get(0, "run", std::span<uint8_t>())->version;
  const absl::StatusOr<PutResult> refused_run =
      store->Put(0, "run", AsBytes(pages), {.condition = IfVersion(of_run + 1)});
  ASSERT_TRUE(refused_run.ok()) << refused_run.status();
  EXPECT_EQ(refused_run->outcome, Outcome::kOtherVersion);
  EXPECT_EQ(refused_run->version, of_run);
  EXPECT_EQ(MustGet(*store, "large"), other);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);

  for (const std::string& key : fillers) ASSERT_TRUE(store->Delete(0, key)->existed);
  EXPECT_EQ(store->Add(0, "count", 1)->number, 1000);
  EXPECT_EQ(store->Add(0, kNew, 1)->number, 1);
  ASSERT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

// Several threads count, append, take turns by compare-and-swap and hand a key on by taking it,
// while one more moves all of these items: not one change is lost or made twice.
TEST(StoreChangesThreadsTest, NoChangeIsLost) {
  constexpr int kWorkers = 4;
  constexpr int kRounds = 3000;
  const std::unique_ptr<Store> store = MakeStore(32 * kMiB, kWorkers);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->Put(0, "swapped", AsBytes("0")).ok());
  std::atomic<int> running{kWorkers};
  std::atomic<int64_t> taken{0};
  std::vector<std::thread> threads;
  const auto swap_once = [&](int worker) {
    for (;;) {
      std::string value;
      const GetResult got = *store->Get(worker, "swapped", &value);
      value = absl::StrCat(std::stoi(value) + 1);
      const absl::StatusOr<PutResult> put =
          store->Put(worker, "swapped", AsBytes(value), {.condition = IfVersion(got.version)});
      ASSERT_TRUE(put.ok());
      if (put->outcome == Outcome::kDone) return;
      ASSERT_EQ(put->outcome, Outcome::kOtherVersion);
    }
  };
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      const std::string letter(1, static_cast<char>('a' + worker));
      for (int i = 0; i < kRounds; ++i) {
        ASSERT_EQ(store->Add(worker, "count", i % 2 == 0 ? 3 : -1)->outcome, Outcome::kDone);
        ASSERT_TRUE(store->Append(worker, "log", AsBytes(letter)).ok());
        swap_once(worker);
        ASSERT_EQ(store->Add(worker, "purse", 1)->outcome, Outcome::kDone);
        std::array<uint8_t, 20> room;
        const DeleteResult emptied = *store->Take(worker, "purse", room);
        if (emptied.outcome == Outcome::kDone) {
          taken += std::stoi(std::string(room.begin(), room.begin() + emptied.value_len));
        }
      }
      --running;
    });
  }
  const char* const keys[] = {"count", "log", "swapped", "purse"};
  int moved = 0;
  for (size_t i = 0; running > 0; ++i) {
    const char* const key = keys[i % 4];
    const GetResult found = *store->Get(kWorkers, key, std::span<uint8_t>());
    if (!found.found) continue;
    moved += store->MoveItem(kWorkers, store->index().Hash(key), found.slot.offset()) ? 1 : 0;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(MustGet(*store, "count"), absl::StrCat(kWorkers * kRounds));
  EXPECT_EQ(MustGet(*store, "swapped"), absl::StrCat(kWorkers * kRounds));
  if (Has(*store, "purse")) taken += std::stoi(MustGet(*store, "purse"));
  EXPECT_EQ(taken, kWorkers * kRounds);
  const std::string log = MustGet(*store, "log");
  EXPECT_EQ(log.size(), size_t{kWorkers} * kRounds);
  for (int worker = 0; worker < kWorkers; ++worker) {
    EXPECT_EQ(std::count(log.begin(), log.end(), 'a' + worker), kRounds);
  }
  EXPECT_GT(moved, 0);
  EXPECT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

}  // namespace
}  // namespace verbena::storage
