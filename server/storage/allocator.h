// Blocks for items and segments, from a slice's heap.
//
// Each worker has a cache of free blocks for every class up to 32 KiB, which it fills from and
// empties to the PageHeap in batches; larger blocks and runs come from there directly. When memory
// is short all caches are emptied first, so that a block held back by one worker is not missed by
// another; and
// from time to time each is, since one block may hold a page back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

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

  // Gives the blocks in a worker's cache, or in all, back to the heap.
  void FlushCache(int worker);
  void FlushCaches();

  // Compaction (compactor.h). Between isolating a window in heap() and EndWindow(), for the holder
  // of the window: keeps the window's blocks out of the workers' caches and takes out what is
  // there.
  void BeginWindow(HeapWindow window);
  // Releases the window; see PageHeap::ReleaseWindow.
  PageHeap::Released EndWindow(bool in_vain = true);
  uint64_t heap_bytes() const { return heap_bytes_; }
  PageHeap& heap() { return heap_; }
  const PageHeap& heap() const { return heap_; }

  // Has `notice` called each time that another `bytes` have come back to the heap, by the thread
  // that freed the last of them, and when an allocation has made the heap sparse (PageHeap): it
  // must be short and must not come back to the allocator. Before any thread uses the allocator.
  void SetCompactionNotice(uint64_t bytes, std::function<void()> notice);

  // Bytes of blocks in use, with their rounding: neither free nor in a worker's cache.
  uint64_t UsedBytes() const;
  HeapUsage Usage() const { return heap_.Usage(); }
  // Blocks in use of each size class. Off by what other threads do meanwhile.
  std::array<uint64_t, layout::kSizeClasses> BlocksInUse() const;

  // Checks all bookkeeping, caches included; nothing may run meanwhile. For tests.
  absl::Status Validate() const;

 private:
  struct Cache;

  static uint32_t CacheCapacity(uint32_t size_class);
  void FreeCentrally(uint32_t size_class, std::span<const uint64_t> offsets);
  void NoticeFreed();
  void NoticeTaken() {
    if (heap_.TakeSparseNotice() && notice_ != nullptr) notice_();
  }
  uint64_t AllocateCached(Cache& cache, uint32_t size_class);
  uint64_t AllocateCentrally(uint64_t bytes, uint32_t size_class);

  const uint64_t heap_bytes_;
  const int workers_;
  PageHeap heap_;
  std::unique_ptr<Cache[]> caches_;
  // The window that is isolated; no block lies in it if the size is 0.
  std::atomic<uint64_t> window_begin_{0};
  std::atomic<uint64_t> window_size_{0};
  uint64_t notice_after_ = 0;
  std::atomic<uint64_t> next_notice_{0};
  std::function<void()> notice_;
};

}  // namespace verbena::storage
