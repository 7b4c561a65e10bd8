#include "server/storage/compactor.h"

#include <algorithm>
#include <vector>

#include "common/base/relaxed_copy.h"
#include "common/base/sizes.h"
#include "common/layout/item.h"

namespace verbena::storage {
namespace {

// Room for more than one block is made at first, so that not each allocation searches.
constexpr uint64_t kBatchBytes = 256 * kKiB;
// Bounds of what an allocation does before it fails: windows, and bytes besides what it asks for.
// More windows where a large piece is needed, which many small ones have to make way for.
constexpr int kMostWindows = 12;
constexpr int kMostWindowsForLarge = 48;
constexpr int kSlabsAtOnce = 4;
constexpr uint64_t kMostMoved = 16 * kMiB;
// So much must have been freed before what was in vain is tried again, and this part of the heap.
constexpr uint64_t kRetryAfter = 64 * kKiB;
constexpr uint64_t kRetryAfterPart = 1024;
// Items that change while they are moved are found again.
constexpr int kPasses = 3;
constexpr int kMostGivenUpInRow = 8;
// Slabs that are fuller are not emptied ahead of need.
constexpr double kSparse = 0.75;

}  // namespace

bool Compactor::MakeRoom(int worker, uint64_t bytes) {
  const uint32_t size_class = layout::SizeClassFor(bytes);
  if (size_class == layout::kRunClass) return Try(worker, kPages, bytes);
  const uint64_t block = layout::BlockSize(size_class);
  return (block < kBatchBytes && Try(worker, kBatch, kBatchBytes)) || Try(worker, kBlock, block);
}

bool Compactor::MakeRoomForSegment(int worker) {
  const HeapUsage usage = allocator_.Usage();
  if (usage.free_pages > 0 || usage.segments < usage.segment_pages * kSegmentsPerPage) return false;
  return Try(worker, kPages, layout::kPageSize);
}

bool Compactor::IsHopeless(Goal goal, uint64_t bytes) const {
  const Failure& failure = failures_[goal];
  return bytes >= failure.bytes.load(std::memory_order_relaxed) &&
         allocator_.heap().freed_bytes() - failure.freed_bytes.load(std::memory_order_relaxed) <
             std::max(kRetryAfter, allocator_.heap_bytes() / kRetryAfterPart);
}

bool Compactor::Try(int worker, Goal goal, uint64_t bytes) {
  const uint64_t successes = successes_.load(std::memory_order_relaxed);
  if (IsHopeless(goal, bytes)) return false;
  const std::lock_guard lock(mutex_);
  // What another thread has done while this one waited may do for both.
  if (successes_.load(std::memory_order_relaxed) != successes) return true;
  if (IsHopeless(goal, bytes)) return false;
  PageHeap& heap = allocator_.heap();
  uint64_t moved = 0;
  const int most = bytes > kBatchBytes / 4 && goal != kBatch ? kMostWindowsForLarge : kMostWindows;
  for (int i = 0; i < most && moved < kMostMoved + 2 * bytes; ++i) {
    const HeapWindow window = goal == kPages ? heap.IsolatePages(bytes) : heap.IsolateParts(bytes);
    if (window && Empty(worker, window, moved)) {
      successes_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    // What is free lies within slabs. Some of them are emptied into others of their classes: that
    // takes no other memory, and with what it leaves over there is room to move the rest.
    int slabs = 0;
    for (; slabs < kSlabsAtOnce; ++slabs) {
      const HeapWindow slab = heap.IsolateSparsestSlab(/*most_used=*/1.0);
      if (!slab) break;
      Empty(worker, slab, moved);
    }
    if (!window && slabs == 0) break;
  }
  failures_[goal].bytes.store(bytes, std::memory_order_relaxed);
  failures_[goal].freed_bytes.store(heap.freed_bytes(), std::memory_order_relaxed);
  return false;
}

uint64_t Compactor::Step(int worker) {
  const std::lock_guard lock(mutex_);
  PageHeap& heap = allocator_.heap();
  uint64_t moved = 0;
  if (given_up_in_row_ < kMostGivenUpInRow && heap.IsSparse()) {
    if (const HeapWindow window = heap.IsolateSparsestSlab(kSparse); window) {
      given_up_in_row_ = Empty(worker, window, moved) ? 0 : given_up_in_row_ + 1;
      return std::max<uint64_t>(moved, 1);
    }
  }
  given_up_in_row_ = 0;
  return 0;
}

bool Compactor::EmptyPage(int worker, uint64_t page) {
  const std::lock_guard lock(mutex_);
  uint64_t moved = 0;
  const HeapWindow window = allocator_.heap().IsolatePage(page);
  return window && Empty(worker, window, moved);
}

// Moves everything out of the window, which the caller has isolated, and releases it. Returns
// whether all of it is free.
bool Compactor::Empty(int worker, HeapWindow window, uint64_t& bytes_moved) {
  allocator_.BeginWindow(window);
  uint64_t moved = 0;
  bool go_on = true;
  for (int pass = 0; pass < kPasses && go_on; ++pass) {
    const std::vector<UsedBlock> blocks = allocator_.heap().BlocksInWindow();
    go_on = false;
    for (const UsedBlock block : blocks) {
      const MoveResult result = MoveBlock(worker, block, moved);
      // Without memory the rest would not get on either.
      if (result == MoveResult::kNoMemory) {
        go_on = false;
        break;
      }
      go_on |= result == MoveResult::kMoved;
    }
  }
  bytes_moved += moved;
  bytes_moved_.fetch_add(moved, std::memory_order_relaxed);
  const PageHeap::Released released = allocator_.EndWindow();
  pages_emptied_.fetch_add(released.pages, std::memory_order_relaxed);
  if (released.all_free) {
    windows_emptied_.fetch_add(1, std::memory_order_relaxed);
    bytes_emptied_.fetch_add(window.end - window.begin, std::memory_order_relaxed);
  } else {
    given_up_.fetch_add(1, std::memory_order_relaxed);
  }
  return released.all_free;
}

// Reads the key from a block that others may write to, may be prepared, or may hold nothing: what
// it finds is a guess, used only within the block's bounds, and TryMoveItem, under the lock of the
// bucket that the guess leads to, moves an item only if a slot there names this block and the
// item's key has this hash.
MoveResult Compactor::MoveBlock(int worker, UsedBlock block, uint64_t& bytes_moved) {
  const Region& region = store_.region();
  const uint64_t room = block.size_class == layout::kRunClass ? region.heap_end() - block.offset
                                                              : layout::BlockSize(block.size_class);
  layout::ItemHeader header;
  if (room <= sizeof(header)) return MoveResult::kGone;
  CopyFromShared(&header, region.At(block.offset), sizeof(header));
  if (header.key_len == 0 || header.key_len > layout::kMaxKeySize ||
      sizeof(header) + header.key_len > room) {
    return MoveResult::kGone;
  }
  std::array<char, layout::kMaxKeySize> key;
  CopyFromShared(key.data(), region.At(block.offset) + sizeof(header), header.key_len);
  const layout::KeyHash hash =
      layout::KeyHash::Of({key.data(), header.key_len}, region.hash_seed());
  const MoveResult result = store_.TryMoveItem(worker, hash, block.offset);
  if (result == MoveResult::kMoved) {
    items_moved_.fetch_add(1, std::memory_order_relaxed);
    bytes_moved += std::min(header.size(), room);
  }
  return result;
}

CompactionCounters Compactor::counters() const {
  return {.items_moved = items_moved_.load(std::memory_order_relaxed),
          .bytes_moved = bytes_moved_.load(std::memory_order_relaxed),
          .windows_emptied = windows_emptied_.load(std::memory_order_relaxed),
          .bytes_emptied = bytes_emptied_.load(std::memory_order_relaxed),
          .pages_emptied = pages_emptied_.load(std::memory_order_relaxed),
          .given_up = given_up_.load(std::memory_order_relaxed)};
}

}  // namespace verbena::storage
