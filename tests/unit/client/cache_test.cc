// The parts that a lookup stands on: slot matching, bucket cache, segment map, slice shape, and the
// small containers of the client.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/src/bucket_cache.h"
#include "client/src/fixed_ring.h"
#include "client/src/segment_map.h"
#include "client/src/shared_cache.h"
#include "client/src/slice_shape.h"
#include "client/src/slot_marks.h"
#include "common/base/relaxed_copy.h"
#include "common/layout/item.h"
#include "common/layout/slot_match.h"
#include "verbena/callback.h"

namespace verbena::client {
namespace {

using layout::Bucket;
using layout::BucketHeader;
using layout::DirectoryEntry;
using layout::KeyHash;
using layout::RegionHeader;
using layout::Slot;

KeyHash HashWith(uint64_t prefix, uint32_t bucket) {
  return {(prefix << (64 - layout::kPrefixBits)) | bucket};
}

// --- Comparing keys ---

TEST(SameKeyTest, SeesEveryByte) {
  for (size_t size = 1; size <= 70; ++size) {
    const std::string key(size, 'k');
    EXPECT_TRUE(layout::SameKey(key.data(), std::string(key).data(), size));
    for (size_t i = 0; i < size; ++i) {
      std::string other = key;
      other[i] ^= 0x40;
      EXPECT_FALSE(layout::SameKey(key.data(), other.data(), size)) << size << " " << i;
    }
  }
}

// --- Bucket cache ---

Bucket BucketWith(uint64_t mark, uint32_t link = 0) {
  Bucket bucket;
  bucket.header = BucketHeader::Make(0, 0, link);
  bucket.slots[0] = Slot::Make(1, 0, mark * layout::kOffsetUnit);
  return bucket;
}

// A segment of depth 8 for each number below 256.
BucketHeader CoverOf(uint64_t segment) { return BucketHeader::Make(8, segment << 34, 0); }
KeyHash HashIn(uint64_t segment, uint32_t bucket) { return HashWith(segment << 34, bucket); }

TEST(BucketCacheTest, TooLittleMemoryHoldsNothing) {
  BucketCache cache(BucketCache::kFrameBytes - 1);
  EXPECT_FALSE(cache.enabled());
  EXPECT_EQ(cache.frames(), 0u);
  cache.Store(0, 0, HashIn(0, 0), CoverOf(0), BucketWith(1));  // no effect, no crash
}

TEST(BucketCacheTest, MirrorsAsManySegmentsAsItHasFrames) {
  BucketCache cache(64 * BucketCache::kFrameBytes);
  ASSERT_EQ(cache.frames(), 64u);
  for (uint64_t segment = 0; segment < 64; ++segment) {
    for (uint32_t index = 0; index < BucketCache::kFrameBuckets; ++index) {
      cache.Store(static_cast<uint32_t>(segment), index, HashIn(segment, index & 255),
                  CoverOf(segment), BucketWith(segment * 1000 + index));
    }
  }
  for (uint64_t segment = 0; segment < 64; ++segment) {
    for (uint32_t index = 0; index < BucketCache::kFrameBuckets; ++index) {
      const Bucket* copy =
          cache.Find(static_cast<uint32_t>(segment), index, HashIn(segment, index & 255));
      ASSERT_NE(copy, nullptr) << segment << " " << index;
      EXPECT_EQ(copy->slots[0].offset() / layout::kOffsetUnit, segment * 1000 + index);
    }
  }
}

TEST(BucketCacheTest, AFreshCopyReplacesTheOldOne) {
  BucketCache cache(8 * BucketCache::kFrameBytes);
  cache.Store(3, 7, HashIn(5, 7), CoverOf(5), BucketWith(1, 4));
  cache.Store(3, 7, HashIn(5, 7), CoverOf(5), BucketWith(2, 0));
  const Bucket* copy = cache.Find(3, 7, HashIn(5, 7));
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->slots[0].offset() / layout::kOffsetUnit, 2u);
  EXPECT_EQ(BucketCache::Link(*copy), 0u);
  // And it is the only one: another segment of the group takes a free place, not the old copy's.
  for (uint64_t other = 20; other < 23; ++other) {
    cache.Store(3, 7, HashIn(other, 7), CoverOf(other), BucketWith(other));
  }
  EXPECT_NE(cache.Find(3, 7, HashIn(5, 7)), nullptr);
}

TEST(BucketCacheTest, KeepsTheLink) {
  BucketCache cache(BucketCache::kFrameBytes);
  for (uint32_t link = 0; link <= layout::kOverflowBuckets; ++link) {
    cache.Store(0, 1, HashIn(9, 1), CoverOf(9), BucketWith(1, link));
    EXPECT_EQ(BucketCache::Link(*cache.Find(0, 1, HashIn(9, 1))), link);
  }
}

TEST(BucketCacheTest, ServesOnlyHashesOfItsSegment) {
  BucketCache cache(4 * BucketCache::kFrameBytes);
  cache.Store(0, 1, HashIn(9, 1), CoverOf(9), BucketWith(1));
  EXPECT_NE(cache.Find(0, 1, HashIn(9, 1)), nullptr);
  EXPECT_EQ(cache.Find(0, 1, HashIn(8, 1)), nullptr);
  EXPECT_EQ(cache.Find(0, 2, HashIn(9, 2)), nullptr);
  EXPECT_NE(cache.Find(2, 1, HashIn(9, 1)), nullptr) << "any frame of the group may hold it";
}

TEST(BucketCacheTest, ClockKeepsWhatIsUsed) {
  BucketCache cache(4 * BucketCache::kFrameBytes);  // one group: four places for each index
  for (uint64_t segment = 0; segment < 4; ++segment) {
    cache.Store(static_cast<uint32_t>(segment), 0, HashIn(segment, 0), CoverOf(segment),
                BucketWith(segment));
  }
  // Segment 2 is used before each newcomer, and survives although its place is their home.
  for (uint64_t newcomer = 10; newcomer < 40; ++newcomer) {
    ASSERT_NE(cache.Find(2, 0, HashIn(2, 0)), nullptr) << newcomer;
    cache.Store(2, 0, HashIn(newcomer, 0), CoverOf(newcomer), BucketWith(newcomer));
  }
  EXPECT_NE(cache.Find(2, 0, HashIn(39, 0)), nullptr);
  // Where all have been used, one goes all the same.
  for (uint64_t newcomer = 50; newcomer < 60; ++newcomer) {
    for (uint64_t segment = 0; segment < 60; ++segment) cache.Find(2, 0, HashIn(segment, 0));
    cache.Store(1, 0, HashIn(newcomer, 0), CoverOf(newcomer), BucketWith(newcomer));
    ASSERT_NE(cache.Find(2, 0, HashIn(newcomer, 0)), nullptr);
  }
}

TEST(BucketCacheTest, OverloadedNeverHoldsMoreThanItsPlaces) {
  BucketCache cache(5 * BucketCache::kFrameBytes);  // one frame is left over
  EXPECT_EQ(cache.frames(), 4u);
  for (uint64_t segment = 0; segment < 256; ++segment) {
    cache.Store(static_cast<uint32_t>(segment % 4), 3, HashIn(segment, 3), CoverOf(segment),
                BucketWith(segment));
  }
  int held = 0;
  for (uint64_t segment = 0; segment < 256; ++segment) {
    const Bucket* copy = cache.Find(static_cast<uint32_t>(segment % 4), 3, HashIn(segment, 3));
    if (copy == nullptr) continue;
    ++held;
    EXPECT_EQ(copy->slots[0].offset() / layout::kOffsetUnit, segment);
  }
  EXPECT_EQ(held, 4);
}

TEST(SlotMarksTest, TwoStaleUsesInARowWithholdASlot) {
  for (const uint32_t size_class : {0u, 5u, layout::kSizeClasses - 1, layout::kRunClass}) {
    const auto slot = [size_class](uint64_t block) {
      return Slot::Make(77, size_class, block * 16);
    };
    // Once: used again all the same. If it is right then, nothing is left of it.
    const Slot struck = SlotMarks::Update(slot(1), slot(2), true, false);
    EXPECT_TRUE(SlotMarks::IsStruck(struck));
    EXPECT_FALSE(SlotMarks::IsWithheld(struck));
    EXPECT_EQ(SlotMarks::Forgive(struck), slot(2));
    EXPECT_FALSE(layout::IsValidClass(struck.size_class()));
    // Twice.
    Slot withheld = SlotMarks::Update(slot(2), slot(3), true, /*struck=*/true);
    EXPECT_TRUE(SlotMarks::IsWithheld(withheld));
    EXPECT_FALSE(layout::IsValidClass(withheld.size_class()));
    EXPECT_EQ(withheld.offset(), slot(3).offset());
    // For as long as it changes; then the score falls until it is served.
    for (uint64_t block = 4; block < 50; ++block) {
      withheld = SlotMarks::Update(withheld, slot(block), true, false);
      ASSERT_TRUE(SlotMarks::IsWithheld(withheld));
    }
    int lookups = 0;
    for (; SlotMarks::IsWithheld(withheld) && lookups < 100; ++lookups) {
      withheld = SlotMarks::Update(withheld, slot(49), true, false);
    }
    EXPECT_EQ(lookups, 15);
    EXPECT_EQ(withheld, slot(49));
  }
}

TEST(SlotMarksTest, LookupsOfOtherKeysChangeNoMarks) {
  const Slot slot = Slot::Make(77, 3, 16);
  const Slot moved = Slot::Make(77, 4, 32);
  EXPECT_EQ(SlotMarks::Update(slot, moved, false, false), moved);
  const Slot struck = SlotMarks::Strike(slot);
  EXPECT_EQ(SlotMarks::Update(struck, moved, false, false), SlotMarks::Strike(moved));
  const Slot withheld = SlotMarks::Update(slot, moved, true, true);
  EXPECT_EQ(SlotMarks::Update(withheld, moved, false, false), withheld);
  // Another key's item in the slot has no history; nor has an empty one.
  const Slot other = Slot::Make(78, 3, 64);
  EXPECT_EQ(SlotMarks::Update(withheld, other, true, true), other);
  EXPECT_EQ(SlotMarks::Update(withheld, Slot{}, true, true), Slot{});
  EXPECT_EQ(SlotMarks::Update(Slot{}, slot, true, true), slot);
}

TEST(SlotMarksTest, WhatTheServerMayNotHaveIsNotTakenForAMark) {
  for (uint32_t size_class = 0; size_class < 256; ++size_class) {
    const Slot slot = Slot::Make(77, size_class, 16);
    EXPECT_EQ(SlotMarks::Update(slot, slot, true, false),
              layout::IsValidClass(size_class) ? slot : Slot{})
        << size_class;
  }
}

TEST(BucketCacheTest, KeepsMarksWithItsCopies) {
  BucketCache cache(BucketCache::kFrameBytes);
  const KeyHash hash = HashIn(9, 1);
  const auto store = [&](uint64_t block, bool struck) {
    Bucket bucket;
    bucket.slots[0] = Slot::Make(hash.fingerprint(), 3, block * 16);
    bucket.slots[1] = Slot::Make(hash.fingerprint() + 1, 3, block * 16);
    cache.Store(0, 1, hash, CoverOf(9), bucket, struck);
    return cache.Find(0, 1, hash);
  };
  store(1, false);
  Bucket* const copy = store(2, false);
  EXPECT_TRUE(SlotMarks::IsStruck(copy->slots[0]));
  EXPECT_EQ(copy->slots[1].bits, Slot::Make(hash.fingerprint() + 1, 3, 32).bits);
  BucketCache::Forgive(copy, copy->slots[0]);
  EXPECT_EQ(copy->slots[0], Slot::Make(hash.fingerprint(), 3, 32));
  EXPECT_TRUE(SlotMarks::IsWithheld(store(3, true)->slots[0]));
}

// Threads that store, find and forgive at once see words that somebody has stored, and no others.
TEST(BucketCacheTest, ThreadsSeeOnlyWordsThatWereStored) {
  constexpr uint64_t kSegments = 12;
  BucketCache cache(4 * BucketCache::kFrameBytes);  // a group: the segments compete for its places
  const auto slot_of = [](uint64_t segment, uint32_t i) {
    return Slot::Make(static_cast<uint32_t>(segment), 3, (segment * 64 + i) * 16);
  };
  std::atomic<uint64_t> found{0};
  const auto work = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    for (int round = 0; round < 20000; ++round) {
      const uint64_t segment = random() % kSegments;
      const auto frame = static_cast<uint32_t>(segment % 4);
      const uint32_t index = static_cast<uint32_t>(random() % 2);
      const KeyHash hash = HashIn(segment, index);
      Bucket* const copy = cache.Find(frame, index, hash);
      if (copy == nullptr || random() % 8 == 0) {
        Bucket bucket;
        for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
          bucket.slots[i] = slot_of(segment, i);
        }
        cache.Store(frame, index, hash, CoverOf(segment), bucket, random() % 2 == 0);
        continue;
      }
      for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
        const Slot slot{LoadRelaxed(&copy->slots[i].bits)};
        if (slot.empty()) continue;
        ASSERT_EQ(slot.offset() / 16 % 64, i) << "a slot of another place";
        ASSERT_EQ(slot.offset() / 16 / 64, slot.fingerprint()) << "a torn word";
      }
      ASSERT_LE(BucketCache::Link(*copy), layout::kOverflowBuckets);
      found.fetch_add(layout::MatchSlots(*copy, static_cast<uint32_t>(segment)) != 0 ? 1 : 0);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(found.load(), 0u);
}

// --- Segment map ---

SliceShape Shape(unsigned depth) {
  SliceShape shape;
  shape.size = uint64_t{1} << 30;
  shape.directory_offset = 4096;
  shape.directory_depth = depth;
  shape.heap_begin = uint64_t{1} << 20;
  shape.heap_end = shape.size;
  return shape;
}

uint64_t SegmentAt(uint64_t number) { return (uint64_t{1} << 20) + number * layout::kSegmentSize; }

TEST(SegmentMapTest, KnowsNothingAtFirst) {
  SegmentMap map(Shape(9), 16);
  EXPECT_EQ(map.Get(HashWith(0, 0)).offset, 0u);
  EXPECT_EQ(map.Get({~uint64_t{0}}).offset, 0u);
  EXPECT_TRUE(map.Segments(10).empty());
}

TEST(SegmentMapTest, AgreesWithTheDirectoryThroughSplits) {
  constexpr unsigned kDepth = 12;
  std::mt19937_64 random(7);
  // The directory as a server keeps it: random splits from one segment on.
  std::vector<uint64_t> directory(1u << kDepth, DirectoryEntry::Make(SegmentAt(0), 0).bits);
  SegmentMap map(Shape(kDepth), 1000);
  uint64_t segments = 1;
  for (int round = 0; round < 300; ++round) {
    map.Learn(0, directory);
    std::set<uint32_t> frames;
    uint64_t last = 0;
    for (uint64_t index = 0; index < directory.size(); ++index) {
      const DirectoryEntry entry{directory[index]};
      const SegmentRef ref = map.Get({index << (64 - kDepth)});
      ASSERT_EQ(ref.offset, entry.segment_offset());
      if (ref.offset != last) {
        ASSERT_TRUE(frames.insert(ref.frame).second) << "two segments with one frame";
      }
      last = ref.offset;
    }
    ASSERT_EQ(map.Segments(directory.size()).size(), segments);
    ASSERT_EQ(map.Segments(3).size(), std::min<uint64_t>(segments, 3));
    const uint64_t index = random() % directory.size();
    const DirectoryEntry entry{directory[index]};
    if (entry.depth() == kDepth) continue;
    const uint64_t count = uint64_t{1} << (kDepth - entry.depth());
    const uint64_t begin = index / count * count;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t offset = i < count / 2 ? entry.segment_offset() : SegmentAt(segments);
      directory[begin + i] = DirectoryEntry::Make(offset, entry.depth() + 1).bits;
    }
    ++segments;
  }
  EXPECT_GT(segments, 100u);
}

// A thread learns ever deeper segments while others look up: what they get is the segment of that
// part of the hashes at some depth, and its frame one that there is.
TEST(SegmentMapTest, GrowsWhileOthersRead) {
  constexpr unsigned kDepth = 13;
  SegmentMap map(Shape(kDepth), 16);
  std::atomic<bool> done{false};
  const auto read = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    uint64_t known = 0;
    while (!done.load() || known == 0) {
      const uint64_t index = random() % (1u << kDepth);
      const SegmentRef ref = map.Get({index << (64 - kDepth)});
      if (ref.offset == 0) continue;
      ++known;
      const uint64_t number = (ref.offset - SegmentAt(0)) / layout::kSegmentSize;
      const unsigned depth = static_cast<unsigned>(std::bit_width(number)) - 1;
      ASSERT_EQ(number - (uint64_t{1} << depth), index >> (kDepth - depth));
      ASSERT_LT(ref.frame, 16u);
    }
  };
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 3; ++i) readers.emplace_back(read, i);
  std::vector<uint64_t> directory(1u << kDepth);
  for (unsigned depth = 0; depth <= kDepth; ++depth) {
    // Segment number 2^depth + prefix.
    for (uint64_t index = 0; index < directory.size(); ++index) {
      const uint64_t number = (uint64_t{1} << depth) + (index >> (kDepth - depth));
      directory[index] = DirectoryEntry::Make(SegmentAt(number), depth).bits;
    }
    map.Learn(0, directory);
  }
  done = true;
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(map.Segments(1u << kDepth).size(), 1u << kDepth);
}

TEST(SegmentMapTest, ASplitSegmentKeepsItsFrame) {
  SegmentMap map(Shape(9), 16);
  std::vector<uint64_t> words(512, DirectoryEntry::Make(SegmentAt(1), 0).bits);
  map.Learn(0, words);
  const uint32_t frame = map.Get(HashWith(0, 0)).frame;
  for (size_t i = 0; i < 512; ++i) {
    words[i] = DirectoryEntry::Make(SegmentAt(i < 256 ? 1 : 2), 1).bits;
  }
  map.Learn(0, words);
  EXPECT_EQ(map.Get(HashWith(0, 0)).frame, frame);
  EXPECT_NE(map.Get({~uint64_t{0}}).frame, frame);
}

TEST(SegmentMapTest, SkipsEntriesThatMakeNoSense) {
  SegmentMap map(Shape(9), 16);
  const SliceShape shape = Shape(9);
  const uint64_t bad[] = {
      0,                                                                         // empty
      DirectoryEntry::Make(4096, 3).bits,                                        // before the heap
      DirectoryEntry::Make(shape.heap_end - layout::kSegmentSize + 16, 3).bits,  // over its end
      DirectoryEntry::Make((uint64_t{1} << 48) - 16, 3).bits,                    // far beyond
      DirectoryEntry::Make(SegmentAt(1), 10).bits,                               // deeper than D
      DirectoryEntry::Make(SegmentAt(1), 63).bits,
  };
  for (const uint64_t word : bad) {
    map.Learn(5, {&word, 1});
    EXPECT_EQ(map.Get({uint64_t{5} << 55}).offset, 0u);
    EXPECT_EQ(map.Resolve({uint64_t{5} << 55}, DirectoryEntry{word}).offset, 0u);
  }
}

TEST(SegmentMapTest, SegmentsTooDeepToKeepAreStillResolved) {
  SegmentMap map(Shape(30), 16);
  const KeyHash hash{0x123456789abcdef0};
  const auto entry = DirectoryEntry::Make(SegmentAt(3), 30);
  EXPECT_EQ(map.Resolve(hash, entry).offset, SegmentAt(3));
  EXPECT_LT(map.Resolve(hash, entry).frame, 16u);
  EXPECT_EQ(map.Get(hash).offset, 0u);
}

// --- What connections share ---

TEST(SharedCacheTest, OneCacheForEachIncarnation) {
  SharedCache shared(4 * BucketCache::kFrameBytes);
  SliceShape shape = Shape(9);
  shape.epoch = 1;
  const auto first = shared.For(shape);
  EXPECT_EQ(first->buckets.frames(), 4u);
  EXPECT_EQ(shared.For(shape), first);
  SliceShape restarted = shape;
  restarted.epoch = 2;
  const auto second = shared.For(restarted);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->shape, restarted);
  EXPECT_EQ(shared.For(restarted), second);
  shared.Clear();
  EXPECT_NE(shared.For(restarted), second);
}

// --- Slice shape ---

RegionHeader GoodHeader() {
  RegionHeader header{};
  header.magic = layout::kRegionMagic;
  header.layout_version = layout::kLayoutVersion;
  header.epoch = 77;
  header.hash_seed = 5;
  header.slice_size = 64 << 20;
  header.directory_offset = 4096;
  header.directory_depth = 12;
  header.heap_begin = 1 << 20;
  header.heap_end = 64 << 20;
  return header;
}

TEST(SliceShapeTest, TakesAGoodHeader) {
  const auto shape = SliceShape::FromHeader(GoodHeader(), 64 << 20, 77, 1000);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->hash_seed, 5u);
  EXPECT_EQ(shape->directory_size(), 8u << 12);
  EXPECT_TRUE(shape->InHeap(1 << 20, 63 << 20));
  EXPECT_FALSE(shape->InHeap(1 << 20, (63 << 20) + 1));
  EXPECT_FALSE(shape->InHeap((1 << 20) - 16, 16));
  EXPECT_FALSE(shape->InHeap(~uint64_t{0}, 16));
  EXPECT_FALSE(shape->InHeap(64 << 20, 1));
}

TEST(SliceShapeTest, RefusesContradictions) {
  const auto refused = [](auto change) {
    RegionHeader header = GoodHeader();
    change(header);
    return !SliceShape::FromHeader(header, 64 << 20, 77, 1000).ok();
  };
  EXPECT_TRUE(refused([](RegionHeader& h) { h.magic ^= 1; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.layout_version = 2; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.epoch = 78; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.slice_size += 1; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.directory_depth = 18; }));  // runs into the heap
  EXPECT_TRUE(refused([](RegionHeader& h) { h.directory_depth = 3; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.directory_depth = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.directory_offset = 0; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.directory_offset = 4100; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.directory_offset = ~uint64_t{0} - 4095; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.heap_begin = h.heap_end; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.heap_begin += 16; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.heap_end += layout::kPageSize; }));
  EXPECT_TRUE(refused([](RegionHeader& h) { h.heap_end = ~uint64_t{0}; }));
}

// --- Containers ---

TEST(FixedRingTest, FirstInFirstOutAroundTheEnd) {
  FixedRing<int> ring(5);
  int in = 0;
  int out = 0;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < round % 6; ++i) ring.Push(in++);
    while (!ring.empty()) EXPECT_EQ(ring.Pop(), out++);
  }
  EXPECT_EQ(in, out);
}

TEST(CallbackTest, MovesAndDestroysWhatItHolds) {
  auto counter = std::make_shared<int>(0);
  {
    Callback<void(int)> callback = [counter](int by) { *counter += by; };
    callback(2);
    Callback<void(int)> moved = std::move(callback);
    EXPECT_FALSE(static_cast<bool>(callback));
    moved(3);
    EXPECT_EQ(counter.use_count(), 2);
    moved = [](int) {};
    EXPECT_EQ(counter.use_count(), 1);
  }
  EXPECT_EQ(*counter, 5);
}

}  // namespace
}  // namespace verbena::client
