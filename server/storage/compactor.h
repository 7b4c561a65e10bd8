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
// There is one window at a time, and so one mover, as TryMoveItem asks for: who has the turn. A
// turn is one window. Threads have theirs in the order in which they asked, so that an allocation
// waits for one window of each thread that was there before it, and not for all that the others
// need. A window of more than kLargestWaitedFor, for a large value, may take long. No worker waits
// until it is empty: whoever asks for another turn meanwhile has it given up, and waits for the
// item that is being moved, or for kCopiedAtOnce of it. So what the window holds back is missed by
// nobody. Only another large one is turned away.
//
// Order of the locks: the turn, then buckets (and, under them, what listeners take), then a
// worker's cache, then the heap. Nobody comes here with a bucket locked.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "common/base/sizes.h"
#include "common/base/spinlock.h"
#include "server/storage/allocator.h"
#include "server/storage/store.h"

namespace verbena::storage {

// The right to have the heap's window. Thread-safe.
class WindowTurns {
 public:
  // Waits for the turn; returns true when the caller has it. If somebody else has a `large` one or
  // gets it meanwhile, he is asked to give way, unless the caller is `patient`. Who asks for a
  // large one does not wait for another: false at once.
  bool Enter(bool large, bool patient);
  void Leave();
  // Whether the holder of a large turn should leave. From any thread.
  bool asked_to_give_way() const { return give_way_.load(std::memory_order_relaxed); }

  // How many wait. For tests.
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return line_.size();
  }

 private:
  mutable std::mutex mutex_;  // of all that follows; held for moments
  std::condition_variable changed_;
  std::deque<uint64_t> line_;  // those who wait, by number
  uint64_t next_number_ = 0;
  bool taken_ = false;
  bool large_ = false;  // the turn that is taken
  std::atomic<bool> give_way_{false};
};

// Thread-safe. `worker` is the calling thread's, as in Store.
class Compactor {
 public:
  // Both must outlive the compactor.
  Compactor(Store& store, Allocator& allocator) : store_(store), allocator_(allocator) {}

  // The largest window for which workers wait.
  static constexpr uint64_t kLargestWaitedFor = 4 * kMiB;
  // How much of a large item is copied before the mover looks whether it should give way.
  static constexpr uint64_t kCopiedAtOnce = kMiB;

  // After an allocation of `bytes` for an item has failed: makes room for it. True if it may
  // succeed now. Bounded: moves some MiB at most and twice `bytes`. Where nothing could be done, it
  // says so at once until something has been freed; and for a large item where a large window is
  // being emptied for another thread.
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
  const WindowTurns& turns() const { return turns_; }

 private:
  enum Goal { kBatch, kBlock, kPages, kGoals };
  // What has come of a goal so far.
  struct Results {
    // The last success, and how many there were.
    uint64_t successes = 0;
    uint64_t made_bytes = 0;
    // What could not be done, and PageHeap::freed_bytes() at that time.
    uint64_t failed_bytes = UINT64_MAX;
    uint64_t freed_bytes = 0;
  };
  // What came of a turn: the window was emptied, or not wholly; there was none; or there was no
  // turn for a large one, since another thread empties one.
  enum class TurnResult { kEmptied, kLeft, kNoWindow, kTurnedAway };
  enum class Patience { kOfAWorker, kAny };

  Results ResultsOf(Goal goal) const {
    const std::lock_guard lock(results_lock_);
    return results_[goal];
  }
  bool IsHopeless(Goal goal, uint64_t bytes) const;
  void NoteSuccess(Goal goal, uint64_t bytes);
  void NoteFailure(Goal goal, uint64_t bytes);
  bool Try(int worker, Goal goal, uint64_t bytes);
  TurnResult TakeTurn(int worker, bool large, Patience patience, uint64_t& bytes_moved,
                      absl::FunctionRef<HeapWindow()> isolate);
  bool Empty(int worker, HeapWindow window, uint64_t& bytes_moved);
  MoveResult MoveBlock(int worker, UsedBlock block, uint64_t& bytes_moved);

  Store& store_;
  Allocator& allocator_;
  WindowTurns turns_;
  mutable SpinLock results_lock_;
  std::array<Results, kGoals> results_;
  int given_up_in_row_ = 0;  // by Step
  std::atomic<uint64_t> turned_away_{0};
  std::atomic<uint64_t> gave_way_{0};
  std::atomic<uint64_t> most_waited_bytes_{0};
  // Written by who has the turn.
  std::atomic<uint64_t> items_moved_{0};
  std::atomic<uint64_t> bytes_moved_{0};
  std::atomic<uint64_t> windows_emptied_{0};
  std::atomic<uint64_t> bytes_emptied_{0};
  std::atomic<uint64_t> pages_emptied_{0};
  std::atomic<uint64_t> given_up_{0};
};

}  // namespace verbena::storage
