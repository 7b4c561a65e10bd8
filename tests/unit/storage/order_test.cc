// The order of stores, checked on the code itself. The storage is compiled with a header that
// reports every store of a word (traced/). One thread makes changes, and a log of all stores makes
// each instant between two of them one that readers can be put into afterwards: a reader's READs
// get instants that only move forward, and the words of one READ a random instant each within it.
// Thousands of such readers, with caches from earlier instants, look for a history that is not
// linearizable. What is found can be repeated, unlike a race between threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/relaxed_copy.h"
#include "common/base/sizes.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

#if defined(VERBENA_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 6000;
#else
constexpr int kRounds = 40000;
#endif
constexpr int kLookups = 6;

// All stores to a slice from some point on. Instant t is after the first t stores.
class StoreLog {
 public:
  explicit StoreLog(std::span<const uint8_t> slice)
      : slice_(slice), start_(slice.begin(), slice.end()) {
    active_ = this;
    traced_store = [](const uint64_t* word) { active_->Add(word); };
  }
  ~StoreLog() { Stop(); }

  void Stop() { traced_store = nullptr; }
  uint64_t now() const { return count_; }

  // The word at `offset` (a multiple of 8) at instant t.
  uint64_t WordAt(uint64_t offset, uint64_t t) const {
    uint64_t word;
    std::memcpy(&word, start_.data() + offset, sizeof(word));
    const auto found = stores_.find(offset);
    if (found == stores_.end()) return word;
    const std::vector<Store>& stores = found->second;
    const auto after = std::upper_bound(stores.begin(), stores.end(), t,
                                        [](uint64_t at, const Store& s) { return at < s.instant; });
    return after == stores.begin() ? word : std::prev(after)->value;
  }

 private:
  struct Store {
    uint64_t instant;
    uint64_t value;
  };

  void Add(const uint64_t* word) {
    const auto* address = reinterpret_cast<const uint8_t*>(word);
    if (address < slice_.data() || address >= slice_.data() + slice_.size()) return;
    stores_[static_cast<uint64_t>(address - slice_.data())].push_back({++count_, *word});
  }

  static inline StoreLog* active_ = nullptr;

  const std::span<const uint8_t> slice_;
  const std::vector<uint8_t> start_;
  std::unordered_map<uint64_t, std::vector<Store>> stores_;  // by offset
  uint64_t count_ = 0;
};

// What happened to a key: change n took effect between the instants `begun` and `done`.
struct Change {
  uint64_t begun = 0;
  uint64_t done = 0;
  bool present = false;
  std::string value;     // "...:n" or "n", n being the position in the history
  uint64_t version = 0;  // a move keeps it
};

class OrderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(store_, nullptr);
    ChooseKeys();
    // Most of what it takes to a split, and then some changes and moves of everything.
    while (store_->Stats().mean_fill < 0.6) PutFiller();
    log_ = std::make_unique<StoreLog>(store_->region().bytes());
    for (const std::string& key : keys_) histories_[key].push_back({});
    for (int i = 0; store_->Stats().splits < 2; ++i) {
      ASSERT_LT(i, 100000);
      if (random_() % 4 == 0) {
        PutFiller();
      } else {
        ChangeOrMoveOne();
      }
    }
    for (int i = 0; i < 300; ++i) ChangeOrMoveOne();
    log_->Stop();
    ASSERT_GT(moves_, 100);
    ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  }

  // Two of one bucket and fingerprint, which only the items tell apart, and enough of another
  // bucket that it needs a chain of overflow buckets, which comes and goes.
  void ChooseKeys() {
    std::map<uint32_t, std::string> by_fingerprint;
    KeyFinder finder(*store_, 0, 9);
    while (keys_.empty()) {
      const std::string key = finder.Next();
      const uint32_t fingerprint = HashOf(key).fingerprint();
      const auto [twin, is_new] = by_fingerprint.emplace(fingerprint, key);
      if (!is_new) keys_ = {twin->second, key};
    }
    KeyFinder crowd(*store_, 0, 10);
    for (int i = 0; i < 36; ++i) keys_.push_back(crowd.Next());
  }

  layout::KeyHash HashOf(const std::string& key) const {
    return layout::KeyHash::Of(key, store_->region().hash_seed());
  }

  void PutFiller() {
    ASSERT_TRUE(store_->Put(0, absl::StrCat("filler", fillers_++), AsBytes("filler")).ok());
  }

  void ChangeOrMoveOne() {
    const std::string& key = keys_[random_() % keys_.size()];
    if (random_() % 3 == 0 && histories_[key].back().present) {
      MoveOne(key);
    } else {
      ChangeOne(key);
    }
  }

  // As compaction does: no change of the key's state, so nothing that readers may notice.
  void MoveOne(const std::string& key) {
    const uint64_t offset = store_->Get(0, key, std::span<uint8_t>())->slot.offset();
    ASSERT_TRUE(store_->MoveItem(store_->maintenance_worker(), HashOf(key), offset));
    ++moves_;
  }

  void ChangeOne(const std::string& key) {
    std::vector<Change>& history = histories_[key];
    Change change;
    change.begun = log_->now();
    if (random_() % 3 == 0 && history.back().present) {
      ASSERT_TRUE(store_->Delete(0, key)->existed);
    } else if (random_() % 4 == 0) {
      // A number, and another one made of it in place: two changes.
      const std::string number = absl::StrCat(history.size());
      change.version = store_->Put(0, key, AsBytes(number))->version;
      change.done = log_->now();
      change.present = true;
      change.value = number;
      history.push_back(change);
      change.begun = log_->now();
      change.value = absl::StrCat(history.size());
      const absl::StatusOr<AddResult> added = store_->Add(0, key, 1);
      ASSERT_EQ(absl::StrCat(added->number), change.value);
      change.version = added->version;
    } else if (random_() % 4 == 0 && history.back().present && history.back().value.size() < 100) {
      change.present = true;
      const std::string suffix =
          absl::StrCat(std::string(random_() % 12, '+'), ":", history.size());
      change.value = absl::StrCat(history.back().value, suffix);
      change.version = store_->Append(0, key, AsBytes(suffix))->version;
    } else {
      change.present = true;
      // Three sizes in two classes.
      change.value.resize(20 + random_() % 3 * 12, static_cast<char>('a' + history.size() % 26));
      absl::StrAppend(&change.value, ":", history.size());
      const absl::StatusOr<PutResult> put = store_->Put(0, key, AsBytes(change.value));
      ASSERT_TRUE(put.ok());
      ASSERT_EQ(put->existed, history.back().present);
      change.version = put->version;
    }
    change.done = log_->now();
    history.push_back(std::move(change));
  }

  // READs at instant `now_` and later; all at the same instant while `frozen_`.
  ReferenceReader::ReadFunction Reads() {
    return [this](uint64_t offset, void* target, uint64_t size) {
      // Steps from none at all to over several changes.
      const auto step = [this] {
        return frozen_ || random_() % 2 == 0 ? 0 : random_() % (uint64_t{1} << (random_() % 12));
      };
      const uint64_t from = now_ += step();
      const uint64_t span = step();
      now_ += span;
      ASSERT_EQ(offset % 8, 0u);
      ASSERT_EQ(size % 8, 0u);
      for (uint64_t at = 0; at < size; at += 8) {
        const uint64_t instant = span == 0 ? from : from + random_() % (span + 1);
        const uint64_t word = log_->WordAt(offset + at, instant);
        std::memcpy(static_cast<uint8_t*>(target) + at, &word, 8);
      }
    };
  }

  void LookupAndJudge(ReferenceReader& reader, const std::string& key) {
    const uint64_t begin = now_;
    const ReferenceReader::Outcome outcome = reader.Lookup(key);
    ++outcomes_[static_cast<size_t>(outcome)];
    Judge(key, reader, outcome, begin, now_, seen_[key]);
  }

  // Finds the number of the change that a lookup saw, and checks that it may have: not older than
  // what was complete when it began or than what an earlier lookup saw, not younger than what had
  // begun when it ended.
  void Judge(const std::string& key, const ReferenceReader& reader,
             ReferenceReader::Outcome outcome, uint64_t begin, uint64_t end, size_t& seen) {
    const std::vector<Change>& history = histories_[key];
    if (outcome == ReferenceReader::Outcome::kUndecided) return;
    size_t least = seen;
    while (least + 1 < history.size() && history[least + 1].done <= begin) ++least;
    if (outcome == ReferenceReader::Outcome::kAbsent) {
      size_t n = least;
      while (n < history.size() && history[n].present) ++n;
      ASSERT_TRUE(n < history.size() && history[n].begun <= end)
          << key << " was lost after change " << least << ", instants " << begin << " to " << end;
      seen = n;
      return;
    }
    size_t n = 0;
    ASSERT_TRUE(absl::SimpleAtoi(reader.value().substr(reader.value().rfind(':') + 1), &n));
    ASSERT_LT(n, history.size());
    ASSERT_EQ(reader.value(), history[n].value) << "torn";
    ASSERT_EQ(reader.version(), history[n].version) << "torn";
    ASSERT_GE(n, least) << key << " is stale, instants " << begin << " to " << end;
    ASSERT_LE(history[n].begun, end) << key << " is from the future";
    seen = n;
  }

  std::mt19937_64 random_{20231};
  std::unique_ptr<Store> store_ = MakeStore(8 * kMiB);
  std::vector<std::string> keys_;
  std::map<std::string, std::vector<Change>> histories_;
  std::unique_ptr<StoreLog> log_;
  int fillers_ = 0;
  int moves_ = 0;
  // Of the readers.
  uint64_t now_ = 0;
  bool frozen_ = false;
  std::map<std::string, size_t> seen_;  // the change that the last lookup of a key saw
  std::array<uint64_t, 3> outcomes_{};
};

// Two readers take turns, so that one sees a change of which the other's cache does not know.
TEST_F(OrderTest, InterleavingsAreLinearizable) {
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    const std::string& main_key = keys_[random_() % keys_.size()];
    const std::vector<Change>& history = histories_[main_key];
    const Change& change = history[random_() % history.size()];
    // Fills the caches some time ahead of a change, a few stores or many changes.
    now_ = change.begun - std::min(change.begun, random_() % (uint64_t{1} << (random_() % 14)));
    frozen_ = false;
    seen_.clear();
    ReferenceReader one(Reads(), random_());
    ReferenceReader two(Reads(), random_());
    for (ReferenceReader* reader : {&one, &two}) {
      LookupAndJudge(*reader, keys_[random_() % keys_.size()]);
      LookupAndJudge(*reader, main_key);
    }
    // Then in the midst of it.
    now_ = std::max(now_, change.begun + random_() % (change.done - change.begun + 2));
    for (int j = 0; j < kLookups && !HasFatalFailure(); ++j) {
      frozen_ = random_() % 2 == 0;
      const bool other_key = random_() % 8 == 0;
      LookupAndJudge(random_() % 2 == 0 ? one : two,
                     other_key ? keys_[random_() % keys_.size()] : main_key);
    }
  }
  for (const uint64_t count : outcomes_) EXPECT_GT(count, 0u);
}

// Keys that nobody changes, while their segment is split.
TEST_F(OrderTest, SplitsLoseNothing) {
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    now_ = random_() % log_->now();
    ReferenceReader reader(Reads(), random_());
    for (int j = 0; j < kLookups && now_ < log_->now(); ++j) {
      const std::string key = absl::StrCat("filler", random_() % 2000);
      ASSERT_NE(reader.Lookup(key), ReferenceReader::Outcome::kAbsent)
          << key << " was lost at instant " << now_;
    }
  }
}

// The middle of a chain becomes empty while its end is in use.
class OrderChainTest : public OrderTest {
 protected:
  void SetUp() override {
    ASSERT_NE(store_, nullptr);
    KeyFinder finder(*store_, 0, 33);
    while (keys_.size() < 3 * layout::kSlotsPerBucket) {
      keys_.push_back(finder.Next());
      ASSERT_TRUE(store_->Put(0, keys_.back(), AsBytes("value")).ok());
    }
    ASSERT_EQ(store_->Stats().overflow_buckets, 2u);
    log_ = std::make_unique<StoreLog>(store_->region().bytes());
    for (size_t i = 0; i < 2 * layout::kSlotsPerBucket; ++i) {
      ASSERT_TRUE(store_->Delete(0, keys_[i])->existed);
    }
    // Another bucket would take what was given back.
    KeyFinder other(*store_, 0, 34);
    for (size_t i = 0; i < 2 * layout::kSlotsPerBucket; ++i) {
      ASSERT_TRUE(store_->Put(0, other.Next(), AsBytes("value")).ok());
    }
    log_->Stop();
    ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  }
};

TEST_F(OrderChainTest, ItsEndIsNotLost) {
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    now_ = random_() % log_->now();
    ReferenceReader reader(Reads(), random_());
    for (int j = 0; j < kLookups && now_ < log_->now(); ++j) {
      const std::string& key = keys_[keys_.size() - 1 - random_() % layout::kSlotsPerBucket];
      ASSERT_NE(reader.Lookup(key), ReferenceReader::Outcome::kAbsent)
          << key << " was lost at instant " << now_;
    }
  }
}

}  // namespace
}  // namespace verbena::storage
