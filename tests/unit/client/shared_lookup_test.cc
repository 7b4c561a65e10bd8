// What lookups share: an index cache that several threads use, and slots that keep going stale.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/src/lookup.h"
#include "client/src/shared_cache.h"
#include "tests/unit/client/lookup_testing.h"

namespace verbena::client {
namespace {

using SharedLookupTest = LookupTest;

#ifdef VERBENA_TSAN
constexpr int kWorkDivisor = 10;
#else
constexpr int kWorkDivisor = 1;
#endif

TEST_F(SharedLookupTest, WhatOneHasReadServesTheOthers) {
  Open(64 << 20);
  constexpr int kKeys = 20000 / kWorkDivisor;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  const auto index = std::make_shared<IndexCache>(Shape(), 16 << 20);
  Reader first = NewReader(index);
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(first.Get(Key(i)).value, Value(i));
  Reader second = NewReader(index);
  uint64_t reads = 0;
  for (int i = 0; i < kKeys; ++i) {
    const Outcome outcome = second.Get(Key(i));
    ASSERT_EQ(outcome.value, Value(i));
    reads += outcome.reads.size();
  }
  EXPECT_LE(static_cast<double>(reads) / kKeys, 1.02);
  EXPECT_GT(second.context().counters.cache_hits, 0u);
  EXPECT_EQ(second.context().counters.directory_reads, 0u);
}

// Readers of one cache that is too small, while keys are inserted, deleted, moved to other blocks,
// and segments split: a key that is never touched is always found with its value, one that comes
// and goes is found as something that it has had, or absent.
TEST_F(SharedLookupTest, ThreadsShareACacheWhileTheStoreChanges) {
  Open(64 << 20);
  constexpr int kStable = 4000 / kWorkDivisor;
  for (int i = 0; i < kStable; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  const auto index = std::make_shared<IndexCache>(Shape(), 5 * BucketCache::kFrameBytes);
  std::atomic<bool> done{false};
  std::atomic<uint64_t> found{0};
  const auto changing = [](int i) { return "changing-" + std::to_string(i); };
  const auto read = [&](unsigned seed) {
    Reader reader = NewReader(index);
    std::mt19937 random(seed);
    while (!done.load()) {
      const int i = static_cast<int>(random() % kStable);
      const bool stable = random() % 2 == 0;
      const std::string key = stable ? Key(i) : changing(i);
      const Outcome outcome = reader.Get(key);
      if (outcome.action == Lookup::Action::kFound) {
        found.fetch_add(1);
        if (stable) {
          ASSERT_EQ(outcome.value, Value(i));
        } else {
          ASSERT_EQ(outcome.value, key + std::string(outcome.value.size() - key.size(), 'x'));
        }
      } else {
        ASSERT_FALSE(stable && outcome.action == Lookup::Action::kAbsent);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) threads.emplace_back(read, i);
  std::mt19937 random(77);
  for (int round = 0; round < 60000 / kWorkDivisor; ++round) {
    const std::string key = changing(static_cast<int>(random() % kStable));
    if (random() % 3 == 0) {
      EXPECT_TRUE(store_->Delete(0, key).ok());
    } else {
      Put(key, key + std::string(random() % 300, 'x'));
    }
  }
  while (found.load() < 1000) std::this_thread::yield();
  done = true;
  for (std::thread& thread : threads) thread.join();
}

// Reading whole segments in gives the same as reading their buckets one by one.
TEST_F(SharedLookupTest, WholeSegmentsServeAllTheirKeys) {
  Open(64 << 20);
  constexpr int kKeys = 40000 / kWorkDivisor;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  const auto index = std::make_shared<IndexCache>(Shape(), 16 << 20);
  const SliceShape shape = Shape();
  const auto* const words = WordAt(shape.directory_offset);
  index->segments.Learn(0, {words, shape.directory_size() / sizeof(uint64_t)});
  for (const SegmentRef segment : index->segments.Segments(index->buckets.frames())) {
    index->StoreSegment(segment,
                        store_->region().bytes().subspan(segment.offset, layout::kSegmentSize));
  }
  Reader reader = NewReader(index);
  uint64_t reads = 0;
  for (int i = 0; i < kKeys; ++i) {
    const Outcome outcome = reader.Get(Key(i));
    ASSERT_EQ(outcome.value, Value(i));
    reads += outcome.reads.size();
  }
  EXPECT_LE(static_cast<double>(reads) / kKeys, 1.005);
  EXPECT_EQ(reader.context().counters.cache_misses, 0u);
}

// Nothing in a segment is trusted: of whatever bytes, no more than absent or doubtful copies come.
TEST_F(SharedLookupTest, SegmentsThatMakeNoSenseDoNoHarm) {
  Open(64 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("key", "value"));
  const auto index = std::make_shared<IndexCache>(Shape(), 1 << 20);
  std::mt19937_64 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> words(layout::kSegmentSize / sizeof(uint64_t));
    for (uint64_t& word : words) word = random() >> (random() % 64);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(words.data());
    index->StoreSegment({.offset = Shape().heap_begin, .frame = 0}, {bytes, layout::kSegmentSize});
    Reader reader = NewReader(index);
    EXPECT_EQ(reader.Get("key").value, "value");
    EXPECT_EQ(reader.Get("absent").action, Lookup::Action::kAbsent);
  }
}

// A key that is replaced by another size before each GET, and others of its bucket that are not.
TEST_F(SharedLookupTest, ASlotThatKeepsGoingStaleCostsNoReadInVain) {
  Open(64 << 20);
  constexpr int kKeys = 3000;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  Reader reader = NewReader(16 << 20);
  const std::string hot = Key(0);
  std::vector<int> neighbours;
  for (int i = 1; i < kKeys; ++i) {
    const bool same_bucket = BucketOf(Key(i)) == BucketOf(hot);
    const bool same_fingerprint =
        reader.HashOf(Key(i)).fingerprint() == reader.HashOf(hot).fingerprint();
    if (same_bucket && !same_fingerprint) neighbours.push_back(i);
    ASSERT_EQ(reader.Get(Key(i)).value, Value(i));
  }
  ASSERT_GE(neighbours.size(), 2u);
  const auto change = [&](int round) {
    const std::string value(static_cast<size_t>(300 + round % 7 * 60), 'h');
    Put(hot, value);
    return value;
  };
  uint64_t hot_reads = 0;
  uint64_t neighbour_reads = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const std::string value = change(round);
    const Outcome outcome = reader.Get(hot);
    ASSERT_EQ(outcome.value, value);
    hot_reads += outcome.reads.size();
    const int neighbour = neighbours[static_cast<size_t>(round) % neighbours.size()];
    const Outcome other = reader.Get(Key(neighbour));
    ASSERT_EQ(other.value, Value(neighbour));
    neighbour_reads += other.reads.size();
  }
  EXPECT_LE(static_cast<double>(hot_reads) / kRounds, 2.05);
  EXPECT_EQ(neighbour_reads, static_cast<uint64_t>(kRounds));
  EXPECT_LE(reader.context().counters.cache_stale, 3u);
  // When it rests it is served from the cache again.
  for (int i = 0; i < 20; ++i) reader.Get(hot);
  EXPECT_EQ(reader.Get(hot).reads.size(), 1u);
}

// What changes seldom stays cached: a stale hit costs two READs more, each other GET takes one.
TEST_F(SharedLookupTest, ASlotThatIsSeldomStaleStaysCached) {
  Open(64 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("key", std::string(100, 'v')));
  Reader reader = NewReader(16 << 20);
  reader.Get("key");
  uint64_t reads = 0;
  constexpr int kChanges = 50;
  constexpr int kGetsPerChange = 5;
  for (int change = 0; change < kChanges; ++change) {
    Put("key", std::string(static_cast<size_t>(200 + change % 7 * 60), 'v'));
    for (int i = 0; i < kGetsPerChange; ++i) reads += reader.Get("key").reads.size();
  }
  EXPECT_EQ(reads, uint64_t{kChanges} * (kGetsPerChange + 2));
}

}  // namespace
}  // namespace verbena::client
