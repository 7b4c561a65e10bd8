// Remote readers, local writers and compaction at the same time: no torn, stale or lost value.
//
// Every key has one writer, which numbers the key's changes. Ahead of change n it stores n in
// `begun`, after it in `done`. What a reader finds tells its number, and must lie between `done` as
// read before the lookup and `begun` as read after it. What change n does follows from n alone, so
// that "absent" can be judged in the same way, and every byte of a value.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "server/storage/compactor.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

#if defined(VERBENA_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kScale = 8;  // the same work would take that much longer
#else
constexpr uint64_t kScale = 1;
#endif

// How changes to a key go.
struct Pattern {
  const char* name;
  // Length of the value that change n writes, and whether it deletes instead.
  uint64_t (*value_size)(uint64_t n);
  bool (*deletes)(uint64_t n);
  int keys;
  uint64_t changes;  // at least, in all
  uint64_t lookups;  // at least, in all
};

bool Never(uint64_t) { return false; }
bool EveryThird(uint64_t n) { return n % 3 == 0; }

constexpr Pattern kPatterns[] = {
    // One size class: always in place.
    {"InPlace", [](uint64_t n) { return 100 + n % 5; }, Never, 8, 400000, 20000},
    // From one class to another and back.
    {"Elsewhere", [](uint64_t n) { return 40 + n % 7 * 40; }, Never, 8, 400000, 20000},
    {"Deleted", [](uint64_t n) { return 90 + n % 4 * 30; }, EveryThird, 8, 400000, 20000},
    // Several lines, written elsewhere in the same class.
    {"Large", [](uint64_t n) { return 6000 + n % 2 * 3000; }, EveryThird, 4, 40000, 10000},
    {"Runs", [](uint64_t n) { return 530000 + n % 3 * 400000; }, EveryThird, 2, 300, 300},
};

struct alignas(64) KeyState {
  std::string name;
  std::atomic<uint64_t> begun{0};
  std::atomic<uint64_t> done{0};
};

// What change n writes: "n:" and then bytes that follow from key and n.
std::string ValueOf(const KeyState& key, uint64_t n, uint64_t size) {
  std::string value = absl::StrCat(n, ":");
  uint64_t x = n * 0x9e3779b97f4a7c15 + std::hash<std::string>()(key.name);
  value.reserve(size + 8);
  while (value.size() < size) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    value.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }
  value.resize(size);
  return value;
}

class ReadersTest : public testing::TestWithParam<Pattern> {
 protected:
  static constexpr int kWriters = 2;
  static constexpr int kReaders = 2;

  void SetUp() override {
    ASSERT_NE(store_, nullptr);
    for (int i = 0; i < GetParam().keys; ++i) {
      keys_.push_back(std::make_unique<KeyState>());
      keys_.back()->name = absl::StrCat("hot", i);
    }
  }

  static bool Deletes(uint64_t n) { return n == 0 || GetParam().deletes(n); }

  void Change(int worker, KeyState& key) {
    const uint64_t n = key.begun.load(std::memory_order_relaxed) + 1;
    key.begun.store(n, std::memory_order_release);
    if (Deletes(n)) {
      ASSERT_TRUE(store_->Delete(worker, key.name)->existed);
    } else {
      const std::string value = ValueOf(key, n, GetParam().value_size(n));
      const absl::StatusOr<PutResult> put = store_->Put(worker, key.name, AsBytes(value));
      ASSERT_TRUE(put.ok()) << put.status();
      ASSERT_EQ(put->existed, !Deletes(n - 1));
    }
    key.done.store(n, std::memory_order_release);
  }

  void Write(int worker) {
    const uint64_t changes = GetParam().changes / kWriters / kScale;
    std::mt19937_64 random(static_cast<uint64_t>(worker));
    const auto own = static_cast<uint64_t>(GetParam().keys / kWriters);
    const uint64_t lookups = GetParam().lookups / kScale;
    for (uint64_t i = 0; !HasFatalFailure(); ++i) {
      // Readers that get little of the processor are waited for.
      if (i >= changes && lookups_.load(std::memory_order_relaxed) >= lookups) break;

      Change(worker, *keys_[random() % own * kWriters + static_cast<uint64_t>(worker)]);
      // Fillers, which stay: segments are split, and their blocks lie between the others.
      if (i < changes && i % 8 == 0) {
        const uint64_t filler =
            fillers_[static_cast<size_t>(worker)].load(std::memory_order_relaxed);
        ASSERT_TRUE(store_->Put(worker, FillerName(worker, filler), AsBytes("filler")).ok());
        fillers_[static_cast<size_t>(worker)].store(filler + 1, std::memory_order_release);
      }
    }
    writing_.fetch_sub(1, std::memory_order_release);
  }

  // Empties one page after the other, all the time.
  void Compact() {
    const int worker = store_->maintenance_worker();
    const uint64_t pages = store_->region().heap_pages();
    for (uint64_t i = 0; writing_.load(std::memory_order_acquire) > 0; ++i) {
      store_->compactor().EmptyPage(worker, i % pages);
    }
  }

  static std::string FillerName(int worker, uint64_t n) {
    return absl::StrCat("f", worker, "/", n);
  }

  // The number of the change whose effect was found; nothing if it makes no sense.
  void Judge(KeyState& key, ReferenceReader& reader, ReferenceReader::Outcome outcome,
             uint64_t done, uint64_t begun, uint64_t& seen) {
    if (outcome == ReferenceReader::Outcome::kUndecided) return;
    const uint64_t least = std::max(done, seen);
    if (outcome == ReferenceReader::Outcome::kAbsent) {
      uint64_t n = least;
      while (n <= begun && !Deletes(n)) ++n;
      ASSERT_LE(n, begun) << key.name << " was lost: absent, after change " << least;
      seen = n;
      return;
    }
    uint64_t n = 0;
    const std::string& value = reader.value();
    ASSERT_TRUE(absl::SimpleAtoi(value.substr(0, value.find(':')), &n)) << "torn";
    ASSERT_EQ(value, ValueOf(key, n, GetParam().value_size(n))) << "torn, or of another key";
    ASSERT_FALSE(Deletes(n));
    ASSERT_GE(n, least) << key.name << " is stale";
    ASSERT_LE(n, begun) << key.name << " is from the future";
    seen = n;
  }

  void Read(int index) {
    const auto seed = static_cast<uint64_t>(index) + 100;
    ReferenceReader reader(ShuffledReads(store_->region().bytes(), seed), seed);
    std::mt19937_64 random(static_cast<uint64_t>(index) + 200);
    std::vector<uint64_t> seen(keys_.size(), 0);
    while (writing_.load(std::memory_order_acquire) > 0 && !HasFatalFailure()) {
      const size_t i = random() % keys_.size();
      KeyState& key = *keys_[i];
      const uint64_t done = key.done.load(std::memory_order_acquire);
      const ReferenceReader::Outcome outcome = reader.Lookup(key.name);
      const uint64_t begun = key.begun.load(std::memory_order_acquire);
      lookups_.fetch_add(1, std::memory_order_relaxed);
      Judge(key, reader, outcome, done, begun, seen[i]);
      found_.fetch_add(outcome == ReferenceReader::Outcome::kFound ? 1 : 0,
                       std::memory_order_relaxed);
      // A key that was put once and never changed is always there.
      const auto writer = static_cast<int>(random() % kWriters);
      const uint64_t fillers =
          fillers_[static_cast<size_t>(writer)].load(std::memory_order_acquire);
      if (fillers == 0) continue;
      const std::string filler = FillerName(writer, random() % fillers);
      ASSERT_NE(reader.Lookup(filler), ReferenceReader::Outcome::kAbsent) << filler << " was lost";
    }
    not_accepted_.fetch_add(reader.counts().not_accepted, std::memory_order_relaxed);
    stale_entries_.fetch_add(reader.counts().stale_entries, std::memory_order_relaxed);
    from_cache_.fetch_add(reader.counts().from_cache, std::memory_order_relaxed);
  }

  std::unique_ptr<Store> store_ = MakeStore(64 * kMiB, kWriters);
  std::vector<std::unique_ptr<KeyState>> keys_;
  std::array<std::atomic<uint64_t>, kWriters> fillers_{};
  std::atomic<int> writing_{kWriters};
  std::atomic<uint64_t> lookups_{0};
  std::atomic<uint64_t> found_{0};
  std::atomic<uint64_t> not_accepted_{0};
  std::atomic<uint64_t> stale_entries_{0};
  std::atomic<uint64_t> from_cache_{0};
};

TEST_P(ReadersTest, SeeNothingTornStaleOrLost) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kReaders; ++i) threads.emplace_back([this, i] { Read(i); });
  for (int i = 0; i < kWriters; ++i) threads.emplace_back([this, i] { Write(i); });
  threads.emplace_back([this] { Compact(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(store_->compactor().counters().items_moved, 0u);
  ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  EXPECT_GT(found_.load(), 0u);
  EXPECT_GT(not_accepted_.load(), 0u) << "readers and writers never met";
  EXPECT_GT(from_cache_.load(), 0u);
  RecordProperty("found", absl::StrCat(found_.load()));
  RecordProperty("not_accepted", absl::StrCat(not_accepted_.load()));
  RecordProperty("stale_entries", absl::StrCat(stale_entries_.load()));
}

INSTANTIATE_TEST_SUITE_P(Patterns, ReadersTest, testing::ValuesIn(kPatterns),
                         [](const auto& test) { return std::string(test.param.name); });

// Deletions and insertions in two buckets that take turns with one overflow bucket, and splits,
// while readers look for keys that are always there and for keys that never are.
TEST(ReadersOverflowTest, ChainsThatComeAndGo) {
  const std::unique_ptr<Store> store = MakeStore(32 * kMiB, 2);
  ASSERT_NE(store, nullptr);
  constexpr int kBuckets[] = {3, 4};
  std::vector<std::string> lasting;
  std::array<std::vector<std::string>, 2> changing;
  std::vector<std::string> never;
  for (size_t b = 0; b < 2; ++b) {
    // Together through the first four splits.
    KeyFinder finder(*store, 4, kBuckets[b]);
    // Fewer than a bucket has slots, so that the overflow buckets become empty again.
    for (int i = 0; i < 10; ++i) lasting.push_back(finder.Next());
    for (int i = 0; i < 12; ++i) changing[b].push_back(finder.Next());
    for (int i = 0; i < 10; ++i) never.push_back(finder.Next());
  }
  for (const std::string& key : lasting) ASSERT_TRUE(store->Put(0, key, AsBytes("here")).ok());
  std::atomic<int> writing{2};
  std::atomic<uint64_t> absent{0};
  const auto write = [&](int worker) {
    const std::vector<std::string>& keys = changing[static_cast<size_t>(worker)];
    std::mt19937_64 random(static_cast<uint64_t>(worker));
    // Until enough has happened; the filler grows each round, so a split comes.
    const auto enough = [&](uint64_t round) {
      return round >= 8000 / kScale && absent.load() >= 20000 / kScale && store->Stats().splits > 0;
    };
    for (uint64_t round = 0; !enough(round); ++round) {
      if (testing::Test::HasFatalFailure()) break;
      for (const std::string& key : keys) {
        EXPECT_TRUE(store->Put(worker, key, AsBytes("now and then")).ok());
      }
      // Grows slowly, so that there are splits all along.
      const uint64_t filler = std::min<uint64_t>(round, 8000);
      EXPECT_TRUE(store->Put(worker, absl::StrCat(worker, "/", filler), AsBytes("")).ok());
      // In another order than they came, with holes that outlast a round.
      for (const std::string& key : keys) {
        if (random() % 8 == 0) continue;
        EXPECT_TRUE(store->Delete(worker, key).ok());
      }
    }
    writing.fetch_sub(1, std::memory_order_release);
  };
  const auto read = [&](uint64_t seed) {
    ReferenceReader reader(ShuffledReads(store->region().bytes(), seed), seed);
    std::mt19937_64 random(seed);
    while (writing.load(std::memory_order_acquire) > 0) {
      const std::string& here = lasting[random() % lasting.size()];
      ASSERT_NE(reader.Lookup(here), ReferenceReader::Outcome::kAbsent) << here << " was lost";
      const std::string& missing = never[random() % never.size()];
      const ReferenceReader::Outcome outcome = reader.Lookup(missing);
      ASSERT_NE(outcome, ReferenceReader::Outcome::kFound) << missing;
      absent.fetch_add(outcome == ReferenceReader::Outcome::kAbsent ? 1 : 0,
                       std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(read, 1);
  threads.emplace_back(read, 2);
  threads.emplace_back(write, 0);
  threads.emplace_back(write, 1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(store->Stats().splits, 0u);
  EXPECT_TRUE(CheckInvariants(*store).ok()) << CheckInvariants(*store);
}

}  // namespace
}  // namespace verbena::storage
