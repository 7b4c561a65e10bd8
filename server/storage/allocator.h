// Blocks for items and segments, from a slice's heap.
//
// Each worker has a cache of free blocks for every class up to 32 KiB, which it fills from and
// empties to the PageHeap in batches; larger blocks and runs come from there directly. When memory
// is short all caches are emptied first, so that a block held back by one worker is not missed by
// another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/layout/size_class.h"
#include "server/storage/page_heap.h"
#include "server/storage/region.h"

namespace verbena::storage {

// Room for an item. `offset` is from the slice's base, 0 for none.
struct Block {
  uint64_t offset = 0;
  uint32_t size_class = 0;  // or layout::kRunClass

  explicit operator bool() const { return offset != 0; }
};

// Thread-safe. A worker's index may be used by one thread at a time.
class Allocator {
 public:
  Allocator(const Region& region, int workers);
  ~Allocator();

  // A block for an item of `bytes` (1 or more). Its bytes are whatever they were; the first word
  // must be 0 before a slot names it. No block if there is no memory: see OutOfMemory.
  Block Allocate(int worker, uint64_t bytes);
  // The block's `check` must be 0, and no slot may name it.
  void Free(int worker, Block block);

  // Offset of room for a segment, 0 if there is no memory.
  uint64_t AllocateSegment();

  // The error for an allocation that failed: names `what`, the size and the space left.
  absl::Status OutOfMemory(absl::string_view what, uint64_t bytes) const;

  // Gives the blocks in all workers' caches back to the heap.
  void FlushCaches();

  // Bytes of blocks in use, with their rounding: neither free nor in a worker's cache.
  uint64_t UsedBytes() const;
  HeapUsage Usage() const { return heap_.Usage(); }

  // Checks all bookkeeping, caches included; nothing may run meanwhile. For tests.
  absl::Status Validate() const;

 private:
  struct Cache;

  static uint32_t CacheCapacity(uint32_t size_class);
  uint64_t AllocateCached(Cache& cache, uint32_t size_class);
  uint64_t AllocateCentrally(uint64_t bytes, uint32_t size_class);

  const uint64_t heap_bytes_;
  const int workers_;
  PageHeap heap_;
  std::unique_ptr<Cache[]> caches_;
};

}  // namespace verbena::storage
