// Random operations on a small store, compared with a map: also with the keys kept in order, with
// items that end by themselves, by a clock of the test's, and with items that are evicted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/compactor.h"
#include "server/storage/eviction.h"
#include "server/storage/expiry.h"
#include "server/storage/ordered_index.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

struct Entry {
  std::string value;
  uint16_t flags = 0;
  uint64_t version = 0;
  int64_t due = kNever;
};

struct ModelCase {
  uint64_t seed = 0;
  bool ordered = false;
  bool times = false;
  bool evict = false;
  bool roomy = false;  // memory never runs out
};

std::ostream& operator<<(std::ostream& out, const ModelCase& model) {
  return out << "seed " << model.seed << (model.ordered ? ", ordered" : "")
             << (model.times ? ", times" : "") << (model.evict ? ", evicts" : "")
             << (model.roomy ? ", roomy" : "");
}

// The keys that have gone, for whatever reason.
class Departures : public ItemListener {
 public:
  void OnInserted(layout::KeyHash, std::string_view, layout::Slot) override {}
  void OnMoved(layout::KeyHash, std::string_view, layout::Slot, layout::Slot, bool) override {}
  void OnRemoved(layout::KeyHash, std::string_view key, layout::Slot) override {
    keys.emplace_back(key);
  }
  std::vector<std::string> keys;
};

class ModelTest : public testing::TestWithParam<ModelCase> {
 protected:
  ModelTest() : random_(GetParam().seed) { store_->AddListener(&departures_); }

  static std::unique_ptr<Store> MakeStoreOfCase() {
    StoreOptions options;
    options.workers = 3;
    options.max_value_size = 8 * kMiB;
    options.ordered_index = GetParam().ordered;
    options.evict = GetParam().evict;
    options.expiry_tick_ns = kMillisecond;
    // Times to live take away so much that the same region would not always be too small.
    const uint64_t tight = GetParam().times && GetParam().evict ? 4 : 6;
    return MakeStore((GetParam().roomy ? 128 : tight) * kMiB, options);
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  std::string RandomKey() {
    std::string key = absl::StrCat("key", Below(kKeys));
    // Some keys are long, always the same ones.
    if (key.back() == '7') key.resize(key.size() + 300, '.');
    return key;
  }

  std::string RandomValue() {
    if (Below(4) == 0) return RandomNumber();
    // Mostly small, now and then a run; the store is too small for many of those. Fewer where they
    // would only push everything else out.
    const uint64_t kind = Below(GetParam().roomy ? 990 : GetParam().evict ? 992 : 1000);
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

  // Of the items that end: far ahead of the real clock, and half a step off what the test's clock
  // shows. A few are over at once.
  int64_t RandomDue() {
    if (!GetParam().times || Below(2) == 0) return kNever;
    if (Below(16) == 0) return start_ - 1;
    return start_ + kHour +
           static_cast<int64_t>(clock_ + 1 + Below(uint64_t{1} << Below(12))) * kStep;
  }

  // Evictions take effect ahead of the change that they make room for.
  void TakeInEvictions() {
    const uint64_t evicted = store_->Stats().evicted;
    for (const std::string& key : departures_.keys) gone_ += model_.erase(key);
    departures_.keys.clear();
    ASSERT_EQ(gone_, evicted);
  }

  // An item whose time is over is not there for whoever asks.
  void RemoveIfOver(int worker, const std::string& key) {
    const auto entry = model_.find(key);
    if (entry == model_.end() || entry->second.due > start_) return;
    model_.erase(entry);
    GetOnce(worker, key);
    departures_.keys.clear();
    ++expired_;
  }

  void CheckPut(const std::string& key, std::string value, const PutOptions& options,
                const absl::StatusOr<PutResult>& put) {
    ASSERT_NO_FATAL_FAILURE(TakeInEvictions());
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
    Entry& entry = model_[key];
    const int64_t due = options.keep_due ? entry.due : options.due_ns;
    entry = {std::move(value), options.flags, put->version, due};
    RemoveIfOver(0, key);
  }

  void PutOnce(int worker) {
    const std::string key = RandomKey();
    const PutOptions options = {static_cast<uint16_t>(Below(65536)), RandomCondition(key),
                                RandomDue()};
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
    const PutOptions options = {static_cast<uint16_t>(Below(65536)), RandomCondition(key),
                                RandomDue()};
    std::string value = RandomValue();
    const bool into = Below(2) == 0;
    absl::StatusOr<PreparedPut> put =
        into ? store_->PreparePutInto(worker, key, value.size(), options)
             : store_->PreparePut(worker, key, AsBytes(value), options);
    if (!put.ok()) return CheckPut(key, {}, {}, put.status());
    ASSERT_NO_FATAL_FAILURE(TakeInEvictions());
    if (into) std::copy(value.begin(), value.end(), put->value().begin());
    if (Below(4) == 0) return;  // dropped
    // Something else happens in between.
    if (Below(2) == 0) DeleteOnce(worker);
    if (Below(2) == 0) PutOnce(worker);
    CheckPut(key, std::move(value), options, store_->Publish(*std::move(put)));
  }

  // An addition or an appendix keeps flags and time.
  PutOptions EditOptions(std::map<std::string, Entry>::const_iterator old,
                         const Condition& condition) const {
    return {old != model_.end() ? old->second.flags : uint16_t{0}, condition, kNever,
            /*keep_due=*/true};
  }

  void AddOnce(int worker) {
    const std::string key = RandomKey();
    const Condition condition = RandomCondition(key);
    const int64_t summand = static_cast<int64_t>(random_()) >> Below(64);
    const absl::StatusOr<AddResult> added = store_->Add(worker, key, summand, condition);
    ASSERT_NO_FATAL_FAILURE(TakeInEvictions());
    const auto old = model_.find(key);
    const PutOptions options = EditOptions(old, condition);
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
    const Condition condition = RandomCondition(key);
    const std::string suffix = RandomValue();
    const absl::StatusOr<PutResult> put = store_->Append(worker, key, AsBytes(suffix), condition);
    ASSERT_NO_FATAL_FAILURE(TakeInEvictions());
    const auto old = model_.find(key);
    const PutOptions options = EditOptions(old, condition);
    std::string value = old != model_.end() ? old->second.value : std::string();
    value += suffix;
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
    departures_.keys.clear();
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

  void ExpireOnce(int worker) {
    const std::string key = RandomKey();
    const int64_t due = Below(4) == 0 ? kNever : RandomDue();
    const absl::StatusOr<ExpireResult> result = store_->Expire(worker, key, due);
    ASSERT_TRUE(result.ok());
    const auto entry = model_.find(key);
    ASSERT_EQ(result->found, entry != model_.end());
    if (!result->found) return;
    ASSERT_EQ(result->version, entry->second.version);
    ASSERT_EQ(result->due_ns, entry->second.due);
    entry->second.due = due;
    RemoveIfOver(worker, key);
  }

  // What is due goes, and nothing else.
  void AdvanceClock(int worker) {
    clock_ += Below(uint64_t{1} << Below(8));
    const int64_t now = start_ + kHour + static_cast<int64_t>(clock_) * kStep + kStep / 2;
    int looks = 0;
    while (store_->expiry().NextLook(now) <= now) {
      store_->RemoveDue(worker, now, 1 + Below(100));
      ASSERT_LT(++looks, 1'000'000);
    }
    departures_.keys.clear();
    expired_ += std::erase_if(model_, [&](const auto& item) { return item.second.due <= now; });
  }

  // Some keys in their order, from anywhere on.
  void ScanOnce() {
    const std::string start = RandomKey().substr(0, Below(12));
    const std::string prefix = RandomKey().substr(0, Below(7));
    const OrderedIndex::Range range = {.start = start, .after = Below(2) == 0, .prefix = prefix};
    const size_t most = 1 + Below(50);
    std::vector<std::string> found;
    store_->ordered_index()->Scan(range, [&](const OrderedIndex::Found& item) {
      found.push_back(item.key);
      return found.size() < most;
    });
    std::vector<std::string> expected;
    auto at = model_.lower_bound(std::max(start, prefix));
    if (range.after && at != model_.end() && at->first == start) ++at;
    for (; at != model_.end() && at->first.starts_with(prefix) && expected.size() < most; ++at) {
      expected.push_back(at->first);
    }
    ASSERT_EQ(found, expected) << "from " << start << " with " << prefix;
    scanned_ += found.size();
  }

  // The parts beside the slice know what is in it.
  void CheckParts() {
    const StoreStats stats = store_->Stats();
    std::vector<layout::KeyHash> hashes;
    uint64_t timers = 0;
    for (const auto& [key, entry] : model_) {
      hashes.push_back(store_->index().Hash(key));
      timers += entry.due != kNever;
      ASSERT_EQ(store_->Due(0, key)->due_ns, entry.due) << key;
    }
    ASSERT_EQ(stats.timers, timers);
    ASSERT_EQ(stats.expired, expired_);
    if (store_->eviction() != nullptr) {
      const absl::Status status = store_->eviction()->Validate(hashes);
      ASSERT_TRUE(status.ok()) << status;
    }
    if (store_->ordered_index() == nullptr) return;
    ASSERT_EQ(stats.ordered_keys, model_.size());
    auto expected = model_.begin();
    store_->ordered_index()->Scan({}, [&](const OrderedIndex::Found& item) {
      EXPECT_TRUE(expected != model_.end() && item.key == expected->first) << item.key;
      if (HasFailure()) return false;
      EXPECT_EQ(item.slot, SlotOf(*store_, item.key)) << item.key;
      ++expected;
      return true;
    });
    ASSERT_TRUE(expected == model_.end());
  }

  // The remote reader's view, with nothing going on, agrees as well.
  void CheckAll() {
    ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
    ASSERT_EQ(store_->Stats().items, model_.size());
    ASSERT_NO_FATAL_FAILURE(CheckParts());
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
  static constexpr int64_t kMillisecond = 1'000'000;
  static constexpr int64_t kHour = int64_t{3600'000} * kMillisecond;
  // Of the test's clock; longer than the wheel's tick.
  static constexpr int64_t kStep = 10 * kMillisecond;

  std::mt19937_64 random_;
  const int64_t start_ = MonotonicNanos();
  uint64_t clock_ = 0;     // steps since an hour after the start
  Departures departures_;  // of what has been done last
  std::unique_ptr<Store> store_ = MakeStoreOfCase();
  ReferenceReader reader_{ShuffledReads(store_->region().bytes(), GetParam().seed),
                          GetParam().seed};
  std::map<std::string, Entry> model_;
  std::map<std::string, uint64_t> last_version_;
  int refused_ = 0;
  int unmet_ = 0;  // conditions
  int added_ = 0;
  uint64_t gone_ = 0;  // evicted
  uint64_t expired_ = 0;
  uint64_t scanned_ = 0;  // keys
};

TEST_P(ModelTest, AgreesWithAMap) {
  for (int step = 0; step < 60000 && !HasFatalFailure(); ++step) {
    // Waves of growing and shrinking.
    const bool grow = step / 20000 % 2 == 0;
    const auto worker = static_cast<int>(Below(3));
    const ModelCase& model = GetParam();
    const uint64_t kind = Below(100);
    if (model.times && Below(10) == 0) ExpireOnce(worker);
    if (model.times && Below(200) == 0) AdvanceClock(worker);
    if (model.ordered && Below(20) == 0) ScanOnce();
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
  const ModelCase& model = GetParam();
  if (model.roomy) {
    EXPECT_EQ(gone_, 0u) << "evicted though there was room";
    EXPECT_EQ(refused_, 0);
  } else if (model.evict) {
    EXPECT_GT(gone_, 500u) << "memory never ran out";
  } else {
    EXPECT_GT(refused_, 0) << "memory never ran out";
  }
  EXPECT_EQ(expired_ > 1000, model.times);
  EXPECT_EQ(scanned_ > 1000, model.ordered);
  EXPECT_GT(unmet_, 0);
  EXPECT_GT(added_, 0);
  EXPECT_GT(store_->Stats().splits, 0u);
  EXPECT_GT(store_->Stats().compaction.items_moved, 0u);
  while (!model_.empty() && !HasFatalFailure()) {
    ASSERT_TRUE(store_->Delete(1, model_.begin()->first)->existed);
    model_.erase(model_.begin());
  }
  CheckParts();
  store_->allocator().FlushCaches();
  ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.block_bytes, 0u);
  EXPECT_EQ(stats.free_pages, stats.heap_pages - stats.segment_pages);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, ModelTest,
    testing::Values(ModelCase{.seed = 1}, ModelCase{.seed = 2},
                    ModelCase{.seed = 3, .ordered = true, .times = true},
                    ModelCase{.seed = 4, .evict = true},
                    ModelCase{.seed = 5, .ordered = true, .times = true, .evict = true},
                    ModelCase{
                        .seed = 6, .ordered = true, .times = true, .evict = true, .roomy = true}));

}  // namespace
}  // namespace verbena::storage
