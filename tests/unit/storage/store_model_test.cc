// Random operations on a small store, compared with a map.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/compactor.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

struct Entry {
  std::string value;
  uint16_t flags = 0;
  uint64_t version = 0;
};

class ModelTest : public testing::TestWithParam<uint64_t> {
 protected:
  ModelTest() : random_(GetParam()) {}

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  std::string RandomKey() {
    std::string key = absl::StrCat("key", Below(kKeys));
    // Some keys are long, always the same ones.
    if (key.back() == '7') key.resize(key.size() + 300, '.');
    return key;
  }

  std::string RandomValue() {
    if (Below(4) == 0) return RandomNumber();
    // Mostly small, now and then a run; the store is too small for many of those.
    const uint64_t kind = Below(1000);
    const uint64_t size = kind < 970   ? Below(150)
                          : kind < 990 ? Below(20000)
                          : kind < 997 ? Below(512 * kKiB)
                                       : Below(3 * kMiB);
    std::string value(size, static_cast<char>('a' + Below(26)));
    if (size > 0) value[Below(size)] = static_cast<char>(Below(256));
    return value;
  }

  // Mostly one that is a number; of all lengths.
  std::string RandomNumber() {
    const int64_t number = static_cast<int64_t>(random_()) >> Below(64);
    return absl::StrCat(Below(20) == 0 ? "0" : "", number);
  }

  // With the version that the key has, or another one.
  Condition RandomCondition(const std::string& key) {
    const uint64_t last = last_version_.count(key) > 0 ? last_version_[key] : 1;
    switch (Below(8)) {
      case 0:
        return {Require::kAbsent, 0};
      case 1:
        return {Require::kPresent, 0};
      case 2:
        return {Require::kVersion, last};
      case 3:
        return {Require::kVersion, last - Below(2)};
      default:
        return {};
    }
  }

  // Whether a condition holds of the model, and if it does not, that a result says so.
  bool Holds(const std::string& key, const Condition& condition, Outcome outcome,
             uint64_t version) {
    const auto old = model_.find(key);
    const bool found = old != model_.end();
    Outcome expected = Outcome::kDone;
    if (condition.require == Require::kAbsent && found) expected = Outcome::kExists;
    if (condition.require == Require::kPresent && !found) expected = Outcome::kAbsent;
    if (condition.require == Require::kVersion && !found) expected = Outcome::kAbsent;
    if (condition.require == Require::kVersion && found &&
        old->second.version != condition.version) {
      expected = Outcome::kOtherVersion;
    }
    if (expected == Outcome::kDone) return true;
    EXPECT_EQ(outcome, expected);
    EXPECT_EQ(version, found ? old->second.version : 0);
    ++unmet_;
    return false;
  }

  void CheckPut(const std::string& key, std::string value, const PutOptions& options,
                const absl::StatusOr<PutResult>& put) {
    if (!put.ok()) {
      ASSERT_EQ(put.status().code(), absl::StatusCode::kResourceExhausted) << put.status();
      ++refused_;
      return;
    }
    ASSERT_EQ(put->existed, model_.count(key) > 0);
    if (!Holds(key, options.condition, put->outcome, put->version)) return;
    ASSERT_EQ(put->outcome, Outcome::kDone);
    uint64_t& last = last_version_[key];
    ASSERT_GT(put->version, last);
    last = put->version;
    model_[key] = {std::move(value), options.flags, put->version};
  }

  void PutOnce(int worker) {
    const std::string key = RandomKey();
    const PutOptions options = {static_cast<uint16_t>(Below(65536)), RandomCondition(key)};
    std::string value = RandomValue();
    // A good part of the changes keeps the size class.
    if (const auto old = model_.find(key); old != model_.end() && Below(2) == 0) {
      value = old->second.value;
      if (!value.empty()) value[Below(value.size())] = static_cast<char>(Below(256));
    }
    const absl::StatusOr<PutResult> put = store_->Put(worker, key, AsBytes(value), options);
    CheckPut(key, std::move(value), options, put);
  }

  void PutInHalves(int worker) {
    const std::string key = RandomKey();
    const PutOptions options = {static_cast<uint16_t>(Below(65536)), RandomCondition(key)};
    std::string value = RandomValue();
    const bool into = Below(2) == 0;
    absl::StatusOr<PreparedPut> put =
        into ? store_->PreparePutInto(worker, key, value.size(), options)
             : store_->PreparePut(worker, key, AsBytes(value), options);
    if (!put.ok()) return CheckPut(key, {}, {}, put.status());
    if (into) std::copy(value.begin(), value.end(), put->value().begin());
    if (Below(4) == 0) return;  // dropped
    // Something else happens in between.
    if (Below(2) == 0) DeleteOnce(worker);
    if (Below(2) == 0) PutOnce(worker);
    CheckPut(key, std::move(value), options, store_->Publish(*std::move(put)));
  }

  void AddOnce(int worker) {
    const std::string key = RandomKey();
    const Condition condition = RandomCondition(key);
    const int64_t summand = static_cast<int64_t>(random_()) >> Below(64);
    const absl::StatusOr<AddResult> added = store_->Add(worker, key, summand, condition);
    const auto old = model_.find(key);
    const PutOptions options = {old != model_.end() ? old->second.flags : uint16_t{0}, condition};
    if (!added.ok()) return CheckPut(key, {}, options, added.status());
    if (!Holds(key, condition, added->outcome, added->version)) return;
    int64_t number = 0;
    if (old != model_.end()) {
      // A number has one form.
      if (!absl::SimpleAtoi(old->second.value, &number) ||
          absl::StrCat(number) != old->second.value) {
        ASSERT_EQ(added->outcome, Outcome::kNotANumber) << old->second.value.substr(0, 40);
        return;
      }
    }
    int64_t sum = 0;
    if (__builtin_add_overflow(number, summand, &sum)) {
      ASSERT_EQ(added->outcome, Outcome::kOverflow);
      return;
    }
    ASSERT_EQ(added->number, sum);
    ++added_;
    CheckPut(key, absl::StrCat(sum), options, PutResult(*added));
  }

  void AppendOnce(int worker) {
    const std::string key = RandomKey();
    const auto old = model_.find(key);
    const PutOptions options = {old != model_.end() ? old->second.flags : uint16_t{0},
                                RandomCondition(key)};
    std::string value = old != model_.end() ? old->second.value : std::string();
    const std::string suffix = RandomValue();
    value += suffix;
    const absl::StatusOr<PutResult> put =
        store_->Append(worker, key, AsBytes(suffix), options.condition);
    if (value.size() > store_->max_value_size() && !put.ok()) {
      ASSERT_EQ(put.status().code(), absl::StatusCode::kInvalidArgument);
      return;
    }
    CheckPut(key, std::move(value), options, put);
  }

  // Delete, or Take with some room.
  void DeleteOnce(int worker) {
    const std::string key = RandomKey();
    const Condition condition = RandomCondition(key);
    std::string room(Below(3) == 0 ? Below(200) : 0, '\0');
    const bool take = !room.empty();
    const absl::StatusOr<DeleteResult> deleted =
        take ? store_->Take(worker, key, {reinterpret_cast<uint8_t*>(room.data()), room.size()},
                            condition)
             : store_->Delete(worker, key, condition);
    ASSERT_TRUE(deleted.ok());
    const auto old = model_.find(key);
    ASSERT_EQ(deleted->existed, old != model_.end());
    if (old == model_.end()) {
      ASSERT_EQ(deleted->outcome, Outcome::kAbsent);
      return;
    }
    if (!Holds(key, condition, deleted->outcome, deleted->version)) return;
    ASSERT_EQ(deleted->version, old->second.version);
    ASSERT_EQ(deleted->value_len, old->second.value.size());
    if (take && deleted->value_len > room.size()) {
      ASSERT_EQ(deleted->outcome, Outcome::kTooLong);
      return;
    }
    ASSERT_EQ(deleted->outcome, Outcome::kDone);
    if (take) {
      ASSERT_EQ(room.substr(0, deleted->value_len), old->second.value);
    }
    model_.erase(old);
  }

  void GetOnce(int worker, const std::string& key) {
    std::string value;
    const absl::StatusOr<GetResult> got = store_->Get(worker, key, &value);
    ASSERT_TRUE(got.ok());
    const auto expected = model_.find(key);
    ASSERT_EQ(got->found, expected != model_.end()) << key;
    if (!got->found) return;
    ASSERT_EQ(value, expected->second.value);
    ASSERT_EQ(got->flags, expected->second.flags);
    ASSERT_EQ(got->version, expected->second.version);
  }

  // The remote reader's view, with nothing going on, agrees as well.
  void CheckAll() {
    ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
    ASSERT_EQ(store_->Stats().items, model_.size());
    for (const auto& [key, entry] : model_) {
      GetOnce(0, key);
      const ReferenceReader::Outcome outcome = reader_.Lookup(key);
      ASSERT_EQ(outcome, ReferenceReader::Outcome::kFound) << key;
      ASSERT_EQ(reader_.value(), entry.value);
      ASSERT_EQ(reader_.version(), entry.version);
      ASSERT_EQ(reader_.flags(), entry.flags);
    }
  }

  static constexpr uint64_t kKeys = 12000;

  std::mt19937_64 random_;
  std::unique_ptr<Store> store_ = MakeStore(6 * kMiB, 3);
  ReferenceReader reader_{ShuffledReads(store_->region().bytes(), GetParam()), GetParam()};
  std::map<std::string, Entry> model_;
  std::map<std::string, uint64_t> last_version_;
  int refused_ = 0;
  int unmet_ = 0;  // conditions
  int added_ = 0;
};

TEST_P(ModelTest, AgreesWithAMap) {
  for (int step = 0; step < 60000 && !HasFatalFailure(); ++step) {
    // Waves of growing and shrinking.
    const bool grow = step / 20000 % 2 == 0;
    const auto worker = static_cast<int>(Below(3));
    const uint64_t kind = Below(100);
    if (kind < (grow ? 35u : 5u)) {
      PutOnce(worker);
    } else if (kind < (grow ? 45u : 10u)) {
      AddOnce(worker);
    } else if (kind < (grow ? 55u : 15u)) {
      AppendOnce(worker);
    } else if (kind < (grow ? 75u : 25u)) {
      PutInHalves(worker);
    } else if (kind < (grow ? 80u : 75u)) {
      DeleteOnce(worker);
    } else {
      GetOnce(worker, RandomKey());
    }
    if (step % 200 == 0) {
      store_->compactor().EmptyPage(worker, Below(store_->region().heap_pages()));
    }
    if (step % 1000 == 999) CheckAll();
  }
  EXPECT_GT(refused_, 0) << "memory never ran out";
  EXPECT_GT(unmet_, 0);
  EXPECT_GT(added_, 0);
  EXPECT_GT(store_->Stats().splits, 0u);
  EXPECT_GT(store_->Stats().compaction.items_moved, 0u);
  while (!model_.empty() && !HasFatalFailure()) {
    ASSERT_TRUE(store_->Delete(1, model_.begin()->first)->existed);
    model_.erase(model_.begin());
  }
  store_->allocator().FlushCaches();
  ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.block_bytes, 0u);
  EXPECT_EQ(stats.free_pages, stats.heap_pages - stats.segment_pages);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace verbena::storage
