#include "server/storage/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <unordered_set>
#include <vector>

#include "common/base/sizes.h"
#include "tests/unit/storage/zipfian_trace.h"

namespace verbena::storage {
namespace {

constexpr layout::Slot kSlot{16};

layout::KeyHash HashOf(uint64_t key) {
  return layout::KeyHash::Of({reinterpret_cast<const char*>(&key), sizeof(key)}, uint64_t{1});
}

std::unique_ptr<Eviction> MakeEviction(uint64_t region_bytes) {
  absl::StatusOr<std::unique_ptr<Eviction>> eviction = Eviction::Create(region_bytes);
  EXPECT_TRUE(eviction.ok()) << eviction.status();
  return eviction.ok() ? *std::move(eviction) : nullptr;
}

// The table of touches of such a region is larger than any address space.
TEST(EvictionTest, WithoutMemoryItSaysWhatItWanted) {
  const absl::Status status = Eviction::Create(uint64_t{1} << 62).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("cannot get 65536TiB"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("--eviction=none"), absl::string_view::npos) << status;
}

TEST(EvictionTest, WhatWasNeverTouchedGoesInItsOrder) {
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  EXPECT_FALSE(eviction.NextVictim().has_value());
  for (uint64_t key = 0; key < 10; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  for (uint64_t key = 0; key < 10; ++key) EXPECT_EQ(eviction.NextVictim(), HashOf(key));
  EXPECT_FALSE(eviction.NextVictim().has_value());
}

TEST(EvictionTest, WhatWasTouchedStaysLonger) {
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  for (uint64_t key = 0; key < 10; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  eviction.Touch(HashOf(0));
  eviction.Touch(HashOf(3));
  std::vector<layout::KeyHash> victims;
  while (const auto victim = eviction.NextVictim()) victims.push_back(*victim);
  ASSERT_EQ(victims.size(), 10u);
  const auto place = [&](uint64_t key) {
    return std::find(victims.begin(), victims.end(), HashOf(key)) - victims.begin();
  };
  EXPECT_GE(place(0), 8);
  EXPECT_GE(place(3), 8);
  EXPECT_EQ(eviction.Stats().promoted, 2u);
  EXPECT_EQ(eviction.Stats().touches, 2u);
}

// What two keys have been touched goes to one counter, if their hashes begin alike. Neither a third
// one that comes nor the first that is looked at takes it from them.
TEST(EvictionTest, KeysThatShareACounterAreKept) {
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  const auto alike = [](uint64_t number) {
    return layout::KeyHash{uint64_t{0x1234} << 48 | number};
  };
  eviction.OnInserted(alike(0), "", kSlot);
  eviction.OnInserted(alike(1), "", kSlot);
  for (uint64_t key = 0; key < 10; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  for (int i = 0; i < 2; ++i) {
    eviction.Touch(alike(0));
    eviction.Touch(alike(1));
  }
  eviction.OnInserted(alike(2), "", kSlot);
  EXPECT_EQ(eviction.NextVictim(), HashOf(0));
  EXPECT_EQ(eviction.Stats().promoted, 2u);
}

// One that was deleted has been touched for nothing.
TEST(EvictionTest, AKeyThatIsPutAnewBeginsAnew) {
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  eviction.OnInserted(HashOf(0), "", kSlot);
  eviction.Touch(HashOf(0));
  eviction.OnRemoved(HashOf(0), "", kSlot);
  eviction.OnInserted(HashOf(0), "", kSlot);
  eviction.OnInserted(HashOf(1), "", kSlot);
  EXPECT_EQ(eviction.NextVictim(), HashOf(0));
}

TEST(EvictionTest, AKeyThatComesBackSoonIsKept) {
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  for (uint64_t key = 0; key < 100; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  EXPECT_EQ(eviction.NextVictim(), HashOf(0));
  eviction.OnRemoved(HashOf(0), "", kSlot);
  eviction.OnInserted(HashOf(0), "", kSlot);
  EXPECT_EQ(eviction.Stats().main, 1u);
  EXPECT_EQ(eviction.Stats().revived, 1u);
}

// Keys that are deleted before they are evicted must not fill the queues for ever.
TEST(EvictionTest, ForgetsKeysThatWereDeleted) {
  std::unordered_set<uint64_t> there;
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  const auto insert = [&](uint64_t key) {
    there.insert(HashOf(key).bits);
    eviction.OnInserted(HashOf(key), "", kSlot);
  };
  for (uint64_t key = 0; key < 1000; ++key) insert(key);
  for (uint64_t key = 1000; key < 200'000; ++key) {
    insert(key);
    there.erase(HashOf(key).bits);
    eviction.OnRemoved(HashOf(key), "", kSlot);
  }
  EXPECT_LE(eviction.Stats().small + eviction.Stats().main, 5000u);
  std::unordered_set<uint64_t> victims;
  while (const auto victim = eviction.NextVictim()) victims.insert(victim->bits);
  for (const uint64_t hash : there) EXPECT_TRUE(victims.contains(hash));
}

// Nor may those that come back each time: each has one place, from which it can be evicted.
TEST(EvictionTest, KeysThatComeAndGoHaveOnePlaceEach) {
  constexpr uint64_t kKeys = 1000;
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  for (uint64_t key = 0; key < kKeys; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  const uint64_t memory = eviction.Stats().memory;
  for (uint64_t i = 0; i < 200 * kKeys; ++i) {
    eviction.Touch(HashOf(i % 7));
    eviction.OnRemoved(HashOf(i % kKeys), "", kSlot);
    eviction.OnInserted(HashOf(i % kKeys), "", kSlot);
  }
  EXPECT_LE(eviction.Stats().small + eviction.Stats().main, 5 * kKeys);
  EXPECT_LE(eviction.Stats().memory, memory + 200 * kKeys);
  std::vector<uint64_t> victims;
  while (const auto victim = eviction.NextVictim()) victims.push_back(victim->bits);
  EXPECT_EQ(victims.size(), kKeys);
  EXPECT_EQ(std::unordered_set<uint64_t>(victims.begin(), victims.end()).size(), kKeys);
}

// When all keys go, in whatever order, their entries do too.
TEST(EvictionTest, NothingIsKeptOfKeysThatHaveAllGone) {
  const std::unique_ptr<Eviction> owned = MakeEviction(kMiB);
  Eviction& eviction = *owned;
  for (uint64_t key = 0; key < 100'000; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  for (uint64_t i = 0; i < 100'000; ++i) {
    eviction.OnRemoved(HashOf(i * 7919 % 100'000), "", kSlot);
  }
  EXPECT_LE(eviction.Stats().small + eviction.Stats().main, 10'000u);
  EXPECT_FALSE(eviction.NextVictim().has_value());
  EXPECT_EQ(eviction.Stats().small + eviction.Stats().main, 0u);
}

// The lock is not held for a walk over all keys.
TEST(EvictionTest, AVictimIsFoundSoonWhereAllWereTouched) {
  const std::unique_ptr<Eviction> owned = MakeEviction(64 * kMiB);
  Eviction& eviction = *owned;
  for (uint64_t key = 0; key < 100'000; ++key) eviction.OnInserted(HashOf(key), "", kSlot);
  for (uint64_t key = 0; key < 100'000; ++key) eviction.Touch(HashOf(key));
  EXPECT_TRUE(eviction.NextVictim().has_value());
  EXPECT_LE(eviction.Stats().promoted, 2000u);
}

// Room for a tenth of the keys.
constexpr uint64_t kTraceKeys = 100'000;
constexpr uint64_t kRoom = kTraceKeys / 10;

// `one_in`: how many GETs there are for one that is reported, in batches of `batch`.
double Ours(ZipfianTrace& trace, uint64_t one_in, size_t batch) {
  std::unordered_set<uint64_t> cache;
  const std::unique_ptr<Eviction> owned = MakeEviction(kRoom * 144);
  Eviction& eviction = *owned;
  std::mt19937_64 sample(7);
  std::vector<layout::KeyHash> reports;
  return trace.HitRate([&](uint64_t key) {
    const layout::KeyHash hash = HashOf(key);
    if (cache.contains(hash.bits)) {
      if (sample() % one_in == 0) reports.push_back(hash);
      if (reports.size() == batch) {
        for (const layout::KeyHash reported : reports) eviction.Touch(reported);
        reports.clear();
      }
      return true;
    }
    while (cache.size() >= kRoom) {
      const layout::KeyHash victim = *eviction.NextVictim();
      if (cache.erase(victim.bits) > 0) eviction.OnRemoved(victim, "", kSlot);
    }
    cache.insert(hash.bits);
    eviction.OnInserted(hash, "", kSlot);
    return false;
  });
}

class EvictionTraceTest : public testing::TestWithParam<double> {};

TEST_P(EvictionTraceTest, RecoversMostOfTheGapBetweenFifoAndLru) {
  ZipfianTrace trace(GetParam(), kTraceKeys, /*requests=*/500'000);
  const double fifo = HitRateOfFifo(trace, kRoom);
  const double lru = HitRateOfLru(trace, kRoom);
  ASSERT_GT(lru, fifo);
  for (const uint64_t one_in : {1u, 8u, 16u}) {
    const double ours = Ours(trace, one_in, 64);
    std::cout << "zipf " << GetParam() << ": FIFO " << fifo << ", LRU " << lru << ", 1 GET in "
              << one_in << " reported: " << ours << "\n";
    EXPECT_GE(ours, fifo + (lru - fifo) / 2) << "1 in " << one_in;
  }
}

INSTANTIATE_TEST_SUITE_P(Thetas, EvictionTraceTest, testing::Values(0.8, 0.99, 1.2));

}  // namespace
}  // namespace verbena::storage
