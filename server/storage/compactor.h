// Empties parts of the heap by moving items, so that memory of which only a little is used in many
// places can be used for other sizes.
//
// It picks a window (page_heap.h) for which little has to be moved, isolates it, moves the items in
// it to other blocks with Store::TryMoveItem, while readers and writers go on, and releases it. A
// block that cannot be moved (prepared and not published, say) stays, and so does its slab.
//
// The life of a block in the window. When it is isolated, a block of it is free, in use by an item,
// prepared for one, or in a worker's cache. No list leads to the free ones any more. The caches are
// flushed after the isolation, and from then on a block of the window that is freed goes to the
// heap at once and not into a cache (Allocator::BeginWindow), where it stays free. So no block of
// the window is handed out before its release; those in use only become fewer, by moves and by what
// others free; and a block that was found to be free stays so.
//
// Who moves holds `mutex_`, so there is one mover at a time, as TryMoveItem asks for. Order of the
// locks: `mutex_`, then buckets (and, under them, what listeners take), then a worker's cache, then
// the heap. Nobody comes here with a bucket locked.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "server/storage/allocator.h"
#include "server/storage/store.h"

namespace verbena::storage {

// Thread-safe. `worker` is the calling thread's, as in Store.
class Compactor {
 public:
  // Both must outlive the compactor.
  Compactor(Store& store, Allocator& allocator) : store_(store), allocator_(allocator) {}

  // After an allocation of `bytes` for an item has failed: makes room for it. True if it may
  // succeed now. Bounded: moves some MiB at most and twice `bytes`. Where nothing could be done, it
  // says so at once until something has been freed.
  bool MakeRoom(int worker, uint64_t bytes);
  // The same for a segment of the index. False if memory is not what is missing.
  bool MakeRoomForSegment(int worker);

  // A step of the background work: empties a window if the heap is sparse (PageHeap::IsSparse).
  // Returns the bytes moved, at least 1; 0 if there is nothing (more) to do for now.
  uint64_t Step(int worker);

  // Moves everything out of a page (0 to the heap's pages). Whether it was in use and is free now.
  // For tests.
  bool EmptyPage(int worker, uint64_t page);

  CompactionCounters counters() const;

 private:
  enum Goal { kBatch, kBlock, kPages, kGoals };
  // What could not be done, and PageHeap::freed_bytes() at that time.
  struct Failure {
    std::atomic<uint64_t> bytes{UINT64_MAX};
    std::atomic<uint64_t> freed_bytes{0};
  };

  bool IsHopeless(Goal goal, uint64_t bytes) const;
  bool Try(int worker, Goal goal, uint64_t bytes);
  bool Empty(int worker, HeapWindow window, uint64_t& bytes_moved);
  MoveResult MoveBlock(int worker, UsedBlock block, uint64_t& bytes_moved);

  Store& store_;
  Allocator& allocator_;
  std::mutex mutex_;
  std::array<Failure, kGoals> failures_;
  std::atomic<uint64_t> successes_{0};
  int given_up_in_row_ = 0;  // by Step
  // Written under mutex_.
  std::atomic<uint64_t> items_moved_{0};
  std::atomic<uint64_t> bytes_moved_{0};
  std::atomic<uint64_t> windows_emptied_{0};
  std::atomic<uint64_t> bytes_emptied_{0};
  std::atomic<uint64_t> pages_emptied_{0};
  std::atomic<uint64_t> given_up_{0};
};

}  // namespace verbena::storage
