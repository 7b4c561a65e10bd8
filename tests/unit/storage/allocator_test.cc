#include "server/storage/allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "common/base/sizes.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

// A region that is only addresses: the allocator must never touch its bytes.
Region MakeRegion(uint64_t size) {
  RegionOptions options;
  options.size = size;
  options.want_huge_pages = false;
  options.pre_touch = false;
  absl::StatusOr<Region> region = Region::Create(options);
  EXPECT_TRUE(region.ok()) << region.status();
  return *std::move(region);
}

uint64_t Room(Block block, uint64_t bytes) {
  return block.size_class == layout::kRunClass ? PageHeap::RunBytes(bytes)
                                               : layout::BlockSize(block.size_class);
}

// Blocks in use: offset -> size. Adding one that overlaps another fails the test.
class Model {
 public:
  void Add(uint64_t offset, uint64_t size) {
    const auto after = blocks_.lower_bound(offset);
    if (after != blocks_.end()) {
      EXPECT_LE(offset + size, after->first);
    }
    if (after != blocks_.begin()) {
      const auto before = std::prev(after);
      EXPECT_LE(before->first + before->second, offset);
    }
    blocks_[offset] = size;
    bytes_ += size;
  }
  void Remove(uint64_t offset) {
    bytes_ -= blocks_.at(offset);
    blocks_.erase(offset);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::map<uint64_t, uint64_t> blocks_;
  uint64_t bytes_ = 0;
};

TEST(AllocatorTest, GivesTheClassThatFits) {
  const Region region = MakeRegion(16 * kMiB);
  Allocator allocator(region, 1);
  for (const uint64_t bytes : {1u, 16u, 17u, 256u, 257u, 4096u, 4097u, 512u * 1024}) {
    const Block block = allocator.Allocate(0, bytes);
    ASSERT_TRUE(block);
    EXPECT_EQ(block.size_class, layout::SizeClassFor(bytes));
    EXPECT_EQ(block.offset % 16, 0u);
    EXPECT_GE(block.offset, region.heap_begin());
    EXPECT_LE(block.offset + bytes, region.heap_end());
  }
  EXPECT_EQ(allocator.Allocate(0, 512 * 1024 + 1).size_class, layout::kRunClass);
}

// Every class: a page of it is used to the last block, and comes back.
TEST(AllocatorTest, FillsAndEmptiesTheHeapInEveryClass) {
  const Region region = MakeRegion(8 * kMiB);
  Allocator allocator(region, 2);
  const uint64_t heap = region.heap_pages() * layout::kPageSize;
  for (uint32_t size_class = 0; size_class < layout::kSizeClasses; ++size_class) {
    const uint64_t size = layout::BlockSize(size_class);
    std::vector<Block> blocks;
    Model model;
    while (const Block block = allocator.Allocate(static_cast<int>(blocks.size() % 2), size)) {
      if (size > 1024) model.Add(block.offset, size);
      blocks.push_back(block);
    }
    // Slabs are smaller than a page at first, and each may waste something.
    EXPECT_GE(blocks.size() * 100, layout::kPageSize / size * region.heap_pages() * 97) << size;
    EXPECT_EQ(allocator.UsedBytes(), blocks.size() * size);
    EXPECT_EQ(allocator.BlocksInUse()[size_class], blocks.size());
    EXPECT_EQ(allocator.Usage().free_pages, 0u);
    ASSERT_TRUE(allocator.Validate().ok()) << allocator.Validate();
    const absl::Status error = allocator.OutOfMemory("an item", 12345);
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(error.message().find(FormatSize(12345)), absl::string_view::npos) << error;
    EXPECT_NE(error.message().find(FormatSize(heap - allocator.UsedBytes())),
              absl::string_view::npos)
        << error;
    for (const Block block : blocks) allocator.Free(0, block);
    EXPECT_EQ(allocator.UsedBytes(), 0u);
    EXPECT_EQ(allocator.BlocksInUse()[size_class], 0u);
    allocator.FlushCaches();
    EXPECT_EQ(allocator.Usage().free_pages, region.heap_pages());
    ASSERT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  }
}

TEST(AllocatorTest, RunsTakeTheFirstFit) {
  const Region region = MakeRegion(17 * kMiB);
  ASSERT_EQ(region.heap_pages(), 16u);
  Allocator allocator(region, 1);
  std::vector<Block> runs;
  for (int i = 0; i < 16; ++i) runs.push_back(allocator.Allocate(0, kMiB));
  EXPECT_FALSE(allocator.Allocate(0, kMiB));
  EXPECT_EQ(allocator.Usage().run_pages, 16u);
  // Holes of 1, 2 and 3 pages.
  for (const int page : {1, 4, 5, 9, 10, 11}) {
    allocator.Free(0, runs[static_cast<size_t>(page)]);
  }
  const auto at_page = [&](uint64_t page) { return region.heap_begin() + page * kMiB; };
  EXPECT_FALSE(allocator.Allocate(0, 3 * kMiB + 1));
  EXPECT_EQ(allocator.Allocate(0, 3 * kMiB).offset, at_page(9));
  EXPECT_EQ(allocator.Allocate(0, kMiB + 1).offset, at_page(4));
  EXPECT_EQ(allocator.Allocate(0, 600 * kKiB).offset, at_page(1));
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
}

TEST(AllocatorTest, WhatARunLeavesIsUsed) {
  const Region region = MakeRegion(kMinSliceSize);
  Allocator allocator(region, 1);
  // All pages have runs that leave 400 KiB and more.
  std::vector<Block> runs;
  while (const Block run = allocator.Allocate(0, 600 * kKiB)) runs.push_back(run);
  ASSERT_EQ(runs.size(), region.heap_pages());
  std::vector<Block> blocks;
  while (const Block block = allocator.Allocate(0, kKiB)) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), region.heap_pages() * 424);
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  // The fronts can be used again while the tails are in use...
  for (const Block run : runs) allocator.Free(0, run);
  EXPECT_EQ(allocator.Usage().free_pages, 0u);
  EXPECT_EQ(allocator.Usage().run_pages, 0u);
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  const Block front = allocator.Allocate(0, 512 * kKiB);
  EXPECT_EQ(front.offset, runs[runs.size() - 1].offset);
  // ... and are whole pages when all is gone.
  allocator.Free(0, front);
  for (const Block block : blocks) allocator.Free(0, block);
  allocator.FlushCaches();
  EXPECT_EQ(allocator.Usage().free_pages, region.heap_pages());
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
}

TEST(AllocatorTest, SegmentsShareAPageWithSmallBlocks) {
  const Region region = MakeRegion(kMinSliceSize);
  Allocator allocator(region, 1);
  std::set<uint64_t> segments;
  for (uint64_t i = 0; i < kSegmentsPerPage + 1; ++i) {
    const uint64_t offset = allocator.AllocateSegment();
    ASSERT_NE(offset, 0u);
    EXPECT_EQ(offset % layout::kBucketSize, 0u);
    EXPECT_TRUE(segments.insert(offset).second);
  }
  EXPECT_EQ(allocator.Usage().segments, kSegmentsPerPage + 1);
  EXPECT_EQ(allocator.Usage().segment_pages, 2u);
  const uint64_t free = allocator.Usage().free_pages;
  const Block small = allocator.Allocate(0, 100);
  ASSERT_TRUE(small);
  EXPECT_EQ(allocator.Usage().free_pages, free) << "the tail of a segment page was not used";
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  allocator.Free(0, small);
  while (allocator.Allocate(0, kMiB)) {
  }
  for (uint64_t i = 1; i < kSegmentsPerPage; ++i) ASSERT_NE(allocator.AllocateSegment(), 0u);
  EXPECT_EQ(allocator.AllocateSegment(), 0u);
}

// The last free blocks lie in another worker's cache.
TEST(AllocatorTest, TakesFromOtherCachesWhenMemoryIsShort) {
  const Region region = MakeRegion(kMinSliceSize);
  Allocator allocator(region, 2);
  std::vector<Block> blocks;
  while (const Block block = allocator.Allocate(0, 16 * kKiB)) blocks.push_back(block);
  allocator.Free(1, blocks.back());
  EXPECT_TRUE(allocator.Allocate(0, 16 * kKiB));
  EXPECT_FALSE(allocator.Allocate(0, 16 * kKiB));
  // A whole page, of another class, is made up of blocks in caches.
  for (size_t i = 0; i < 64; ++i) allocator.Free(static_cast<int>(i % 2), blocks[i]);
  EXPECT_TRUE(allocator.Allocate(0, 512 * kKiB));
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
}

TEST(AllocatorTest, RandomUseAgreesWithAModel) {
  const Region region = MakeRegion(24 * kMiB);
  Allocator allocator(region, 3);
  std::mt19937_64 random(7);
  struct Held {
    Block block;
    uint64_t bytes;
  };
  std::vector<Held> held;
  Model model;
  int failures = 0;
  for (int step = 0; step < 60000; ++step) {
    // Waves: the heap fills, then nearly empties.
    const bool grow = step / 5000 % 2 == 0;
    if (held.empty() || random() % 10 < (grow ? 7u : 3u)) {
      // Sizes from 1 byte to 2 MiB, each doubling equally often.
      const uint64_t bytes = 1 + random() % (uint64_t{2} << (random() % 21));
      const Block block = allocator.Allocate(static_cast<int>(random() % 3), bytes);
      if (!block) {
        ++failures;
        continue;
      }
      model.Add(block.offset, Room(block, bytes));
      held.push_back({block, bytes});
    } else {
      const size_t i = random() % held.size();
      allocator.Free(static_cast<int>(random() % 3), held[i].block);
      model.Remove(held[i].block.offset);
      held[i] = held.back();
      held.pop_back();
    }
    ASSERT_EQ(allocator.UsedBytes(), model.bytes());
    if (step % 1000 == 0) {
      ASSERT_TRUE(allocator.Validate().ok()) << allocator.Validate();
    }
  }
  EXPECT_GT(failures, 0) << "the heap was never full";
  for (const Held& h : held) allocator.Free(0, h.block);
  allocator.FlushCaches();
  EXPECT_EQ(allocator.UsedBytes(), 0u);
  EXPECT_EQ(allocator.Usage().free_pages, region.heap_pages());
  EXPECT_TRUE(allocator.Validate().ok()) << allocator.Validate();
}

TEST(AllocatorTest, WorkersAllocateAtTheSameTime) {
  constexpr int kWorkers = 4;
  const Region region = MakeRegion(16 * kMiB);
  Allocator allocator(region, kWorkers);
  std::vector<std::vector<Block>> held(kWorkers);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      std::mt19937_64 random(static_cast<uint64_t>(worker));
      std::vector<Block>& mine = held[static_cast<size_t>(worker)];
      for (int step = 0; step < 20000; ++step) {
        if (mine.size() < 100 || random() % 2 == 0) {
          const uint64_t bytes = 1 + random() % (uint64_t{16} << (random() % 16));
          if (const Block block = allocator.Allocate(worker, bytes)) mine.push_back(block);
        } else {
          std::swap(mine[random() % mine.size()], mine.back());
          allocator.Free(worker, mine.back());
          mine.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(allocator.Validate().ok()) << allocator.Validate();
  Model model;
  for (const std::vector<Block>& mine : held) {
    for (const Block block : mine) {
      model.Add(block.offset,
                block.size_class == layout::kRunClass ? 1 : layout::BlockSize(block.size_class));
    }
  }
  for (const std::vector<Block>& mine : held) {
    for (const Block block : mine) allocator.Free(0, block);
  }
  allocator.FlushCaches();
  EXPECT_EQ(allocator.Usage().free_pages, region.heap_pages());
}

}  // namespace
}  // namespace verbena::storage
