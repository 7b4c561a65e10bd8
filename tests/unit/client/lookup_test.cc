// The lookup against slices in this process's memory: real ones, filled by the server's store, and
// hostile ones. READs are copies; between any two of them a test may change the slice.
#include "client/src/lookup.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/relaxed_copy.h"
#include "tests/unit/client/lookup_testing.h"

namespace verbena::client {
namespace {

using layout::BucketHeader;
using layout::DirectoryEntry;
using layout::KeyHash;
using layout::RegionHeader;
using layout::Slot;

TEST_F(LookupTest, FindsEveryKeyAndThenWithOneRead) {
  Open(64 << 20);
  constexpr int kKeys = 100000;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  Reader reader = NewReader(64 << 20);
  for (int i = 0; i < kKeys; ++i) {
    const Outcome outcome = reader.Get(Key(i));
    ASSERT_EQ(outcome.action, Lookup::Action::kFound) << i;
    ASSERT_EQ(outcome.value, Value(i));
  }
  uint64_t reads = 0;
  uint64_t warm = 0;
  for (int i = 0; i < kKeys; ++i) {
    const Outcome outcome = reader.Get(Key(i));
    ASSERT_EQ(outcome.value, Value(i));
    ASSERT_GT(outcome.version, 0u);
    reads += outcome.reads.size();
    ASSERT_EQ(outcome.read_warm, outcome.started_warm && outcome.reads.size() == 1);
    if (outcome.started_warm) ++warm;
  }
  EXPECT_LE(static_cast<double>(reads) / kKeys, 1.02);
  // But for the first key of each bucket since it was copied.
  EXPECT_GE(static_cast<double>(warm) / kKeys, 0.8);
}

TEST_F(LookupTest, WithoutCacheTwoReadsPerKey) {
  Open(64 << 20);
  constexpr int kKeys = 50000;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  Reader reader = NewReader(0);
  uint64_t reads = 0;
  for (int round = 0; round < 2; ++round) {
    reads = 0;
    for (int i = 0; i < kKeys; ++i) {
      const Outcome outcome = reader.Get(Key(i));
      ASSERT_EQ(outcome.value, Value(i));
      reads += outcome.reads.size();
    }
  }
  EXPECT_LE(static_cast<double>(reads) / kKeys, 2.1);
  EXPECT_EQ(reader.context().counters.cache_hits, 0u);
}

TEST_F(LookupTest, ASmallCacheIsStillRight) {
  Open(64 << 20);
  constexpr int kKeys = 50000;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  Reader reader = NewReader(300 * 1024);
  std::mt19937 random(3);
  for (int i = 0; i < 3 * kKeys; ++i) {
    const int key = static_cast<int>(random() % kKeys);
    ASSERT_EQ(reader.Get(Key(key)).value, Value(key));
  }
  EXPECT_GT(reader.context().counters.cache_hits, 0u);
  EXPECT_GT(reader.context().counters.cache_misses, 0u);
}

TEST_F(LookupTest, KeysOfAllLengthsAndEmptyValues) {
  Open(128 << 20);
  std::map<std::string, std::string> model;
  std::mt19937_64 random(5);
  for (size_t length = 1; length <= layout::kMaxKeySize; length = length * 5 / 4 + 1) {
    std::string key(length, '\0');
    for (char& c : key) c = static_cast<char>(random());
    std::string value(random() % 5000, '\0');
    for (char& c : value) c = static_cast<char>(random());
    if (length % 3 == 0) value.clear();
    model[key] = value;
    ASSERT_NO_FATAL_FAILURE(Put(key, value));
  }
  ASSERT_NO_FATAL_FAILURE(Put(std::string(layout::kMaxKeySize, 'k'), "long"));
  Reader reader = NewReader(1 << 20);
  EXPECT_EQ(reader.Get(std::string(layout::kMaxKeySize, 'k')).value, "long");
  for (int round = 0; round < 2; ++round) {
    for (const auto& [key, value] : model) {
      const Outcome outcome = reader.Get(key);
      ASSERT_EQ(outcome.action, Lookup::Action::kFound);
      ASSERT_EQ(outcome.value, value);
    }
  }
}

TEST_F(LookupTest, LargeValues) {
  Open(64 << 20);
  std::mt19937_64 random(6);
  std::map<std::string, std::string> model;
  for (const size_t size : {size_t{4000}, size_t{4072}, size_t{4073}, size_t{5000}, size_t{100000},
                            size_t{512 * 1024 - 30}, size_t{512 * 1024}, size_t{1 << 20},
                            size_t{3 << 20}, size_t{kMaxValue}}) {
    std::string value(size, '\0');
    for (char& c : value) c = static_cast<char>(random());
    const std::string key = "large-" + std::to_string(size);
    model[key] = value;
    ASSERT_NO_FATAL_FAILURE(Put(key, value));
  }
  Reader reader = NewReader(1 << 20);
  for (int round = 0; round < 2; ++round) {
    for (const auto& [key, value] : model) {
      const Outcome outcome = reader.Get(key);
      ASSERT_EQ(outcome.action, Lookup::Action::kFound) << key;
      ASSERT_TRUE(outcome.value == value) << key;
      for (const Read& read : outcome.reads) EXPECT_LE(read.length, Lookup::kPieceBytes);
    }
  }
  // As the server names it.
  for (const auto& [key, value] : model) {
    const Outcome outcome = reader.GetAt(Locate(key), key);
    ASSERT_EQ(outcome.action, Lookup::Action::kFound);
    ASSERT_TRUE(outcome.value == value) << key;
  }
}

TEST_F(LookupTest, PiecesAreUnderWayTogether) {
  Open(64 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("run", std::string(3 << 20, 'a')));
  Reader reader = NewReader(0);
  const Outcome outcome = reader.Get("run");
  ASSERT_EQ(outcome.action, Lookup::Action::kFound);
  EXPECT_EQ(outcome.most_under_way, size_t{Lookup::kPiecesInFlight});
  // Each byte once, in order, but for the bucket's and the first 4 KiB, which tell the length.
  uint64_t end = 0;
  for (size_t i = outcome.reads.size() - 12; i < outcome.reads.size(); ++i) {
    if (end != 0) {
      EXPECT_EQ(outcome.reads[i].offset, end);
    }
    end = outcome.reads[i].offset + outcome.reads[i].length;
  }
  EXPECT_EQ(end, SlotOf("run").offset() + layout::ItemSize(3, 3 << 20));
}

// What the server has located is accepted by what it has said, not by what the block says now.
TEST_F(LookupTest, ALocatedItemIsReadAfterItsEnd) {
  Open(64 << 20);
  for (const size_t size : {size_t{10}, size_t{5000}, size_t{100'000}, size_t{3 << 20}}) {
    for (const bool deleted : {false, true}) {
      const std::string old(size, 'o');
      ASSERT_NO_FATAL_FAILURE(Put("key", old));
      const auto got = store_->GetOrPin(0, "key", {});
      ASSERT_TRUE(got.ok() && got->pin != 0);
      const LocatedItem item = ItemOf(*got, "key");
      if (deleted) {
        ASSERT_NO_FATAL_FAILURE(Delete("key"));
      } else {
        ASSERT_NO_FATAL_FAILURE(Put("key", std::string(size, 'n')));
      }
      Reader reader = NewReader(0);
      const Outcome outcome = reader.GetAt(item, "key");
      ASSERT_EQ(outcome.action, Lookup::Action::kFound) << size;
      EXPECT_TRUE(outcome.value == old);
      EXPECT_EQ(outcome.version, got->version);
      EXPECT_EQ(*WordAt(item.slot.offset()), 0u);
      ASSERT_TRUE(store_->Unpin(0, got->pin));
    }
  }
}

TEST_F(LookupTest, ALocatedItemThatIsOverwrittenIsAskedForAgain) {
  Open(64 << 20);
  for (const size_t size : {size_t{10}, size_t{3 << 20}}) {
    ASSERT_NO_FATAL_FAILURE(Put("key", std::string(size, 'o')));
    const LocatedItem item = Locate("key");
    uint8_t* const last =
        store_->region().At(item.slot.offset()) + sizeof(layout::ItemHeader) + 3 + size - 1;
    Reader reader = NewReader(0);
    *last = 'x';
    EXPECT_EQ(reader.GetAt(item, "key").action, Lookup::Action::kAskServer);
    *last = 'o';
    EXPECT_EQ(reader.GetAt(item, "key").action, Lookup::Action::kFound);
    // The key is of the body, but it is not taken for granted.
    EXPECT_EQ(reader.GetAt(item, "kex").action, Lookup::Action::kAskServer);
  }
}

TEST_F(LookupTest, LocationsThatCannotBeAreNotRead) {
  Open(64 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("key", "value"));
  const LocatedItem good = Locate("key");
  Reader reader = NewReader(0);
  ASSERT_EQ(reader.GetAt(good, "key").action, Lookup::Action::kFound);
  const auto expect_refused = [&](const LocatedItem& bad) {
    const Outcome outcome = reader.GetAt(bad, "key");
    EXPECT_EQ(outcome.action, Lookup::Action::kAskServer);
    EXPECT_TRUE(outcome.reads.empty());
  };
  const uint64_t heap_end = Shape().heap_end;
  LocatedItem bad = good;
  bad.header.value_len = UINT32_MAX;
  expect_refused(bad);
  bad = good;
  bad.header.check = 0;
  expect_refused(bad);
  bad = good;
  bad.header.key_len = 4;
  expect_refused(bad);
  for (const uint64_t offset : {uint64_t{0}, heap_end - 16, heap_end, uint64_t{1} << 47}) {
    bad = good;
    bad.slot = Slot::Make(1, good.slot.size_class(), offset);
    expect_refused(bad);
  }
  bad = good;
  bad.slot = Slot::Make(1, layout::kRunClass + 1, good.slot.offset());
  expect_refused(bad);
}

TEST_F(LookupTest, ARunThatChangesBetweenItsPiecesIsNotAccepted) {
  Open(64 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("run", std::string(3 << 20, 'a')));
  Reader reader = NewReader(0);
  bool changed = false;
  const Outcome outcome = reader.Get("run", [&](size_t, const Read& read) {
    if (read.length == Lookup::kPieceBytes && !changed) {
      // The old run's pages are given to another item.
      changed = true;
      Put("run", std::string(3 << 20, 'b'));
      Put("other", std::string(3 << 20, 'c'));
    }
  });
  EXPECT_TRUE(changed);
  ASSERT_EQ(outcome.action, Lookup::Action::kFound);
  EXPECT_TRUE(outcome.value == std::string(3 << 20, 'b'));
}

TEST_F(LookupTest, AbsentNeedsTheHeaderReadLast) {
  Open(16 << 20);
  for (int i = 0; i < 1000; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  Reader reader = NewReader(4 << 20);
  int absent = 0;
  for (int i = 100000; i < 101000; ++i) {
    const Outcome outcome = reader.Get(Key(i));
    // A fingerprint that happens to match leaves the answer to the server.
    if (outcome.action == Lookup::Action::kAskServer) continue;
    ASSERT_EQ(outcome.action, Lookup::Action::kAbsent);
    ++absent;
    ASSERT_GE(outcome.reads.size(), 2u);
    EXPECT_EQ(outcome.reads.back().offset, BucketOf(Key(i)));
    EXPECT_EQ(outcome.reads.back().length, sizeof(BucketHeader));
    EXPECT_EQ(outcome.reads.front().length,
              outcome.reads.size() == 2 ? layout::kBucketSize : layout::kDirectoryPageSize);
  }
  EXPECT_GT(absent, 950);
}

TEST_F(LookupTest, AbsenceIsNeverServedFromTheCache) {
  Open(16 << 20);
  Reader reader = NewReader(4 << 20);
  EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAbsent);
  ASSERT_NO_FATAL_FAILURE(Put("k", "1"));
  EXPECT_EQ(reader.Get("k").value, "1");
  ASSERT_NO_FATAL_FAILURE(Delete("k"));
  EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAbsent);
  ASSERT_NO_FATAL_FAILURE(Put("k", "2"));
  EXPECT_EQ(reader.Get("k").value, "2");
}

TEST_F(LookupTest, StaleSlotsCostRetriesOnly) {
  Open(64 << 20);
  constexpr int kKeys = 2000;
  for (int i = 0; i < kKeys; ++i) ASSERT_NO_FATAL_FAILURE(Put(Key(i), Value(i)));
  Reader reader = NewReader(8 << 20);
  std::mt19937 random(11);
  std::map<int, std::string> model;
  for (int i = 0; i < kKeys; ++i) model[i] = Value(i);
  for (int round = 0; round < 30000; ++round) {
    const int key = static_cast<int>(random() % kKeys);
    switch (random() % 4) {
      case 0: {  // another size: the item moves to another block
        model[key] = std::string(random() % 700, static_cast<char>('a' + round % 26));
        ASSERT_NO_FATAL_FAILURE(Put(Key(key), model[key]));
        break;
      }
      case 1:
        if (model.count(key) != 0) {
          ASSERT_NO_FATAL_FAILURE(Delete(Key(key)));
          model.erase(key);
        }
        break;
      default: {
        const Outcome outcome = reader.Get(Key(key));
        if (outcome.action == Lookup::Action::kAskServer) break;
        if (model.count(key) != 0) {
          ASSERT_EQ(outcome.action, Lookup::Action::kFound);
          ASSERT_EQ(outcome.value, model[key]);
        } else {
          ASSERT_EQ(outcome.action, Lookup::Action::kAbsent);
        }
      }
    }
  }
  EXPECT_GT(reader.context().counters.cache_stale, 0u);
}

TEST_F(LookupTest, SplitsBehindItsBackAreNoticed) {
  Open(128 << 20);
  Reader reader = NewReader(64 << 20);
  int keys = 0;
  for (int wave = 0; wave < 6; ++wave) {
    const uint64_t splits = store_->Stats().splits;
    for (const int end = keys * 2 + 2000; keys < end; ++keys) {
      ASSERT_NO_FATAL_FAILURE(Put(Key(keys), Value(keys)));
    }
    if (wave > 0) {
      EXPECT_GT(store_->Stats().splits, splits);
    }
    for (int i = 0; i < keys; ++i) {
      const Outcome outcome = reader.Get(Key(i));
      ASSERT_EQ(outcome.action, Lookup::Action::kFound) << i;
      ASSERT_EQ(outcome.value, Value(i));
    }
    for (int i = 0; i < 500; ++i) {
      ASSERT_NE(reader.Get("absent-" + std::to_string(i)).action, Lookup::Action::kFound);
    }
  }
  EXPECT_GT(store_->Stats().overflow_buckets + store_->Stats().splits, 0u);
}

// A split between the READ of the bucket and the READ of its header: the bucket had lost the key.
TEST_F(LookupTest, AHeaderThatNoLongerCoversIsNotAbsence) {
  Open(16 << 20);
  Reader reader = NewReader(0);
  const KeyHash hash = reader.HashOf("k");
  const uint64_t bucket = BucketOf("k");
  const uint64_t good = *WordAt(bucket);
  int headers = 0;
  const Outcome outcome = reader.Get("k", [&](size_t, const Read& read) {
    if (read.length != sizeof(BucketHeader)) return;
    // The first time the segment says that it has the other half of the hashes only.
    *WordAt(bucket) = ++headers == 1 ? BucketHeader::Make(1, ~hash.prefix(), 0).bits : good;
  });
  EXPECT_EQ(headers, 1) << "the bucket that is read after the refresh does not cover either";
  EXPECT_EQ(outcome.action, Lookup::Action::kAskServer);
  *WordAt(bucket) = good;
  EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAbsent);
}

TEST_F(LookupTest, AnInvalidBlockIsNeverAbsence) {
  Open(16 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("k", "value"));
  for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 20}) {
    Reader reader = NewReader(cache);
    ASSERT_EQ(reader.Get("k").value, "value");
    const uint64_t block = SlotOf("k").offset();
    const uint64_t check = *WordAt(block);
    *WordAt(block) = 0;
    const Outcome outcome = reader.Get("k");
    EXPECT_EQ(outcome.action, Lookup::Action::kAskServer);
    size_t buckets = 0;
    for (const Read& read : outcome.reads) buckets += read.length == layout::kBucketSize ? 1 : 0;
    EXPECT_EQ(buckets, 2u) << "two rounds without a verdict, then the server is asked";
    // Valid again between the rounds: found after all.
    int seen = 0;
    const Outcome second = reader.Get("k", [&](size_t, const Read& read) {
      if (read.length == layout::kBucketSize && ++seen == 2) *WordAt(block) = check;
    });
    EXPECT_EQ(second.action, Lookup::Action::kFound);
    *WordAt(block) = check;
  }
}

TEST_F(LookupTest, AnotherKeysValidBlockIsNeverAbsence) {
  Open(16 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("k", "value"));
  ASSERT_NO_FATAL_FAILURE(Put("other", "stranger"));
  const Slot other = SlotOf("other");
  Reader reader = NewReader(0);
  const KeyHash hash = reader.HashOf("k");
  // The slot of "k" leads to the block of the other key.
  const Slot mine = SlotOf("k");
  uint64_t* slot_word = nullptr;
  for (uint32_t i = 1; i <= layout::kSlotsPerBucket; ++i) {
    uint64_t* word = WordAt(BucketOf("k") + 8 * i);
    if (*word == mine.bits) slot_word = word;
  }
  ASSERT_NE(slot_word, nullptr);
  *slot_word = Slot::Make(hash.fingerprint(), other.size_class(), other.offset()).bits;
  EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAskServer);
  *slot_word = mine.bits;
  EXPECT_EQ(reader.Get("k").value, "value");
}

TEST_F(LookupTest, AllSlotsWithTheFingerprintAreTried) {
  Open(16 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("k", "value"));
  ASSERT_NO_FATAL_FAILURE(Put("other", "stranger"));
  const Slot other = SlotOf("other");
  const Slot mine = SlotOf("k");
  // Every other slot of the bucket has the fingerprint, too, and leads to a stranger.
  for (uint32_t i = 1; i <= layout::kSlotsPerBucket; ++i) {
    uint64_t* word = WordAt(BucketOf("k") + 8 * i);
    *word = Slot::Make(mine.fingerprint(), other.size_class(), other.offset()).bits;
  }
  *WordAt(BucketOf("k") + 8 * layout::kSlotsPerBucket) = mine.bits;
  Reader reader = NewReader(1 << 20);
  for (int round = 0; round < 2; ++round) {
    const Outcome outcome = reader.Get("k");
    EXPECT_EQ(outcome.action, Lookup::Action::kFound);
    EXPECT_EQ(outcome.value, "value");
  }
}

TEST_F(LookupTest, OverflowChainsAreFollowedAndCached) {
  Open(16 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("k", "value"));
  const Slot mine = SlotOf("k");
  const uint64_t bucket = BucketOf("k");
  const uint64_t segment =
      bucket - layout::BucketOffset(KeyHash::Of("k", store_->region().hash_seed()).bucket());
  // bucket -> 5 -> 2 -> 9, where the key is.
  for (uint32_t i = 1; i <= layout::kSlotsPerBucket; ++i) *WordAt(bucket + 8 * i) = 0;
  *WordAt(bucket) = BucketHeader{*WordAt(bucket)}.WithLink(5).bits;
  *WordAt(segment + layout::OverflowOffset(5)) = 2;
  *WordAt(segment + layout::OverflowOffset(2)) = 9;
  *WordAt(segment + layout::OverflowOffset(9) + 8 * 4) = mine.bits;
  Reader reader = NewReader(1 << 20);
  EXPECT_EQ(reader.Get("k").value, "value");
  const Outcome second = reader.Get("k");
  EXPECT_EQ(second.value, "value");
  EXPECT_EQ(second.reads.size(), 1u);
  *WordAt(mine.offset()) = 0;
  *WordAt(segment + layout::OverflowOffset(9) + 8 * 4) = 0;
  const Outcome third = reader.Get("k");
  EXPECT_EQ(third.action, Lookup::Action::kAbsent);
}

TEST_F(LookupTest, LoopsAndWildLinksEndWithTheServer) {
  Open(16 << 20);
  const uint64_t bucket = BucketOf("k");
  const uint64_t segment =
      bucket - layout::BucketOffset(KeyHash::Of("k", store_->region().hash_seed()).bucket());
  const BucketHeader header{*WordAt(bucket)};
  for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 20}) {
    Reader reader = NewReader(cache);
    *WordAt(bucket) = header.WithLink(3).bits;
    *WordAt(segment + layout::OverflowOffset(3)) = 3;  // to itself
    EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAskServer);
    EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAskServer);
    *WordAt(segment + layout::OverflowOffset(3)) = 7;
    *WordAt(segment + layout::OverflowOffset(7)) = 3;
    EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAskServer);
    *WordAt(segment + layout::OverflowOffset(7)) = 0;
    EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAbsent);
    for (const uint32_t wild : {layout::kOverflowBuckets + 1, 255u, 256u, 65535u}) {
      *WordAt(bucket) = header.WithLink(wild).bits;
      EXPECT_EQ(reader.Get("k").action, Lookup::Action::kAskServer) << wild;
    }
    *WordAt(bucket) = header.bits;
    *WordAt(segment + layout::OverflowOffset(3)) = 0;
  }
}

TEST_F(LookupTest, WildSlotsAreNotFollowed) {
  Open(16 << 20);
  Reader reader = NewReader(0);
  const uint32_t fingerprint = reader.HashOf("k").fingerprint();
  const SliceShape shape = Shape();
  for (const Slot slot : {
           Slot::Make(fingerprint, 3, (uint64_t{1} << 48) - 16),  // far beyond the end
           Slot::Make(fingerprint, 3, shape.heap_end - 16),       // over the end
           Slot::Make(fingerprint, 3, shape.heap_begin - 16),     // before the heap
           Slot::Make(fingerprint, 200, shape.heap_begin),        // no such class
           Slot::Make(fingerprint, 255, shape.heap_begin),
           Slot::Make(fingerprint, layout::kRunClass, shape.heap_end - 4080),
       }) {
    *WordAt(BucketOf("k") + 8) = slot.bits;
    const Outcome outcome = reader.Get("k");
    EXPECT_EQ(outcome.action, Lookup::Action::kAskServer);
    for (const Read& read : outcome.reads) EXPECT_LT(read.offset, shape.heap_end);
    const LocatedItem item = {
        .slot = slot,
        .header = {.check = 1, .version = 1, .value_len = 5000, .key_len = 1, .flags = 0}};
    EXPECT_EQ(reader.GetAt(item, "k").action, Lookup::Action::kAskServer);
    EXPECT_TRUE(reader.GetAt(item, "k").reads.empty());
  }
}

// A run whose header claims more than there is.
TEST_F(LookupTest, ARunIsBoundedByHeapAndLimit) {
  Open(16 << 20);
  ASSERT_NO_FATAL_FAILURE(Put("run", std::string(1 << 20, 'r')));
  const uint64_t block = SlotOf("run").offset();
  for (const uint32_t length : {uint32_t{kMaxValue} + 5000, uint32_t{1} << 29, ~uint32_t{0}}) {
    std::memcpy(store_->region().At(block + 16), &length, sizeof(length));
    Reader reader = NewReader(0);
    const Outcome outcome = reader.Get("run");
    EXPECT_EQ(outcome.action, Lookup::Action::kAskServer);
    for (const Read& read : outcome.reads) EXPECT_LE(read.length, 4096u);
  }
}

// Whatever the bytes are: no READ outside the slice, no write outside the sink, an end, and no
// value, since nothing verifies itself by chance.
TEST_F(LookupTest, HostileBytes) {
  constexpr uint64_t kSize = 4 << 20;
  Open(kSize);
  const SliceShape shape = Shape();
  std::mt19937_64 random(99);
  std::vector<uint8_t> bytes(kSize + 128);
  const auto base =
      static_cast<size_t>((128 - reinterpret_cast<uintptr_t>(bytes.data()) % 128) % 128);
  const std::span<uint8_t> slice(bytes.data() + base, kSize);
  for (uint64_t at = 0; at < kSize; at += 8) {
    const uint64_t word = random();
    std::memcpy(slice.data() + at, &word, 8);
  }
  const auto set = [&](uint64_t offset, uint64_t word) {
    std::memcpy(slice.data() + offset, &word, 8);
  };
  std::set<Lookup::Action> seen;
  for (int round = 0; round < 400; ++round) {
    // Structure with a random share of nonsense, so that every depth of the search is reached.
    const uint64_t pages = (shape.heap_end - shape.heap_begin) / layout::kSegmentSize;
    for (uint64_t i = 0; i < uint64_t{1} << shape.directory_depth; ++i) {
      const uint64_t segment = shape.heap_begin + random() % pages * layout::kSegmentSize;
      const bool sane = random() % 16 != 0;
      set(shape.directory_offset + 8 * i,
          sane ? DirectoryEntry::Make(segment, static_cast<unsigned>(random() % 4)).bits
               : random());
    }
    Reader reader(slice, shape, round % 2 == 0 ? 0 : 200 * 1024);
    for (int i = 0; i < 20; ++i) {
      const std::string key = "hostile-" + std::to_string(round) + "-" + std::to_string(i);
      const KeyHash hash = reader.HashOf(key);
      const Outcome outcome = reader.Get(key, [&](size_t, const Read& read) {
        if (read.length != layout::kBucketSize || random() % 8 == 0) return;
        const uint32_t link = static_cast<uint32_t>(random() % 4 == 0 ? random() % 40 : 0);
        set(read.offset,
            BucketHeader::Make(static_cast<unsigned>(random() % 3), hash.prefix(), link).bits);
        for (uint64_t slot = 1; slot <= layout::kSlotsPerBucket; ++slot) {
          const uint64_t offset = random() % 8 == 0 ? random() % (uint64_t{1} << 48)
                                                    : shape.heap_begin + random() % (3 << 20);
          const uint32_t fingerprint = random() % 2 == 0 ? hash.fingerprint() : 1;
          const uint32_t size_class =
              random() % 3 == 0 ? layout::kRunClass : static_cast<uint32_t>(random() % 256);
          const uint64_t word =
              random() % 2 == 0 ? 0 : Slot::Make(fingerprint, size_class, offset / 16 * 16).bits;
          set(read.offset + 8 * slot, word);
          // Now and then an item header that looks right, with the key behind it.
          if (word != 0 && random() % 4 == 0 && shape.InHeap(offset / 16 * 16, 4096)) {
            const uint64_t block = offset / 16 * 16;
            set(block + 16, (random() % (6 << 20)) | uint64_t{key.size()} << 32);
            std::memcpy(slice.data() + block + 24, key.data(), key.size());
          }
        }
      });
      seen.insert(outcome.action);
      ASSERT_NE(outcome.action, Lookup::Action::kFound);
    }
  }
  EXPECT_EQ(seen.count(Lookup::Action::kAskServer), 1u);
  EXPECT_EQ(seen.count(Lookup::Action::kAbsent), 1u);
}

}  // namespace
}  // namespace verbena::client
