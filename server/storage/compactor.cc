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

bool WindowTurns::Enter(bool large, bool patient) {
  std::unique_lock lock(mutex_);
  const uint64_t number = next_number_++;
  line_.push_back(number);
  changed_.wait(lock, [&] {
    if (taken_ && large_ && !patient) {
      if (large) return true;
      give_way_.store(true, std::memory_order_relaxed);
    }
    return !taken_ && line_.front() == number;
  });
  const bool entered = !taken_;
  std::erase(line_, number);
  if (entered) {
    taken_ = true;
    large_ = large;
  }
  // Those who do not wait for a large one leave or ask for its end; and who leaves may have stood
  // in another's way.
  if (large || !entered) changed_.notify_all();
  return entered;
}

void WindowTurns::Leave() {
  {
    const std::lock_guard lock(mutex_);
    taken_ = large_ = false;
    give_way_.store(false, std::memory_order_relaxed);
  }
  changed_.notify_all();
}

bool Compactor::IsHopeless(Goal goal, uint64_t bytes) const {
  const Results results = ResultsOf(goal);
  return bytes >= results.failed_bytes &&
         allocator_.heap().freed_bytes() - results.freed_bytes <
             std::max(kRetryAfter, allocator_.heap_bytes() / kRetryAfterPart);
}

void Compactor::NoteSuccess(Goal goal, uint64_t bytes) {
  const std::lock_guard lock(results_lock_);
  ++results_[goal].successes;
  results_[goal].made_bytes = bytes;
}

void Compactor::NoteFailure(Goal goal, uint64_t bytes) {
  const std::lock_guard lock(results_lock_);
  results_[goal].failed_bytes = bytes;
  results_[goal].freed_bytes = allocator_.heap().freed_bytes();
}

bool Compactor::Try(int worker, Goal goal, uint64_t bytes) {
  PageHeap& heap = allocator_.heap();
  const bool large = goal == kPages && bytes > kLargestWaitedFor;
  const uint64_t successes = ResultsOf(goal).successes;
  uint64_t moved = 0;
  const int most = bytes > kBatchBytes / 4 && goal != kBatch ? kMostWindowsForLarge : kMostWindows;
  for (int i = 0; i < most && moved < kMostMoved + 2 * bytes; ++i) {
    if (IsHopeless(goal, bytes)) return false;
    // What another thread has done while this one waited may do for both.
    const Results results = ResultsOf(goal);
    if (results.successes != successes && results.made_bytes >= bytes) return true;
    const TurnResult made = TakeTurn(worker, large, Patience::kOfAWorker, moved, [&] {
      return goal == kPages ? heap.IsolatePages(bytes) : heap.IsolateParts(bytes);
    });
    if (made == TurnResult::kTurnedAway) return false;
    if (made == TurnResult::kEmptied) {
      NoteSuccess(goal, bytes);
      return true;
    }
    // What is free lies within slabs. Some of them are emptied into others of their classes: that
    // takes no other memory, and with what it leaves over there is room to move the rest.
    int slabs = 0;
    for (; slabs < kSlabsAtOnce; ++slabs) {
      const TurnResult slab = TakeTurn(worker, /*large=*/false, Patience::kOfAWorker, moved,
                                       [&] { return heap.IsolateSparsestSlab(/*most_used=*/1.0); });
      if (slab == TurnResult::kNoWindow) break;
    }
    if (made == TurnResult::kNoWindow && slabs == 0) break;
  }
  NoteFailure(goal, bytes);
  return false;
}

// Waits for the turn and empties the window that `isolate` gives.
Compactor::TurnResult Compactor::TakeTurn(int worker, bool large, Patience patience,
                                          uint64_t& bytes_moved,
                                          absl::FunctionRef<HeapWindow()> isolate) {
  const uint64_t moved_before = bytes_moved_.load(std::memory_order_relaxed);
  if (!turns_.Enter(large, patience == Patience::kAny)) {
    turned_away_.fetch_add(1, std::memory_order_relaxed);
    return TurnResult::kTurnedAway;
  }
  const uint64_t waited = bytes_moved_.load(std::memory_order_relaxed) - moved_before;
  if (patience == Patience::kOfAWorker &&
      waited > most_waited_bytes_.load(std::memory_order_relaxed)) {
    most_waited_bytes_.store(waited, std::memory_order_relaxed);
  }
  const HeapWindow window = isolate();
  TurnResult result = TurnResult::kNoWindow;
  if (window) {
    result = Empty(worker, window, bytes_moved) ? TurnResult::kEmptied : TurnResult::kLeft;
  }
  turns_.Leave();
  return result;
}

uint64_t Compactor::Step(int worker) {
  PageHeap& heap = allocator_.heap();
  uint64_t moved = 0;
  if (given_up_in_row_ < kMostGivenUpInRow && heap.IsSparse()) {
    const TurnResult result = TakeTurn(worker, /*large=*/false, Patience::kAny, moved,
                                       [&] { return heap.IsolateSparsestSlab(kSparse); });
    if (result != TurnResult::kNoWindow) {
      given_up_in_row_ = result == TurnResult::kEmptied ? 0 : given_up_in_row_ + 1;
      return std::max<uint64_t>(moved, 1);
    }
  }
  given_up_in_row_ = 0;
  return 0;
}

bool Compactor::EmptyPage(int worker, uint64_t page) {
  uint64_t moved = 0;
  return TakeTurn(worker, /*large=*/false, Patience::kAny, moved,
                  [&] { return allocator_.heap().IsolatePage(page); }) == TurnResult::kEmptied;
}

// Moves everything out of the window, which the caller has isolated, and releases it. Returns
// whether all of it is free.
bool Compactor::Empty(int worker, HeapWindow window, uint64_t& bytes_moved) {
  allocator_.BeginWindow(window);
  uint64_t moved = 0;
  bool go_on = true;
  bool gives_way = false;
  for (int pass = 0; pass < kPasses && go_on; ++pass) {
    const std::vector<UsedBlock> blocks = allocator_.heap().BlocksInWindow();
    go_on = false;
    for (const UsedBlock block : blocks) {
      gives_way = turns_.asked_to_give_way();
      if (gives_way) {
        go_on = false;
        break;
      }
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
  if (gives_way) gave_way_.fetch_add(1, std::memory_order_relaxed);
  const PageHeap::Released released = allocator_.EndWindow(/*in_vain=*/!gives_way);
  pages_emptied_.fetch_add(released.pages, std::memory_order_relaxed);
  if (released.all_free) {
    windows_emptied_.fetch_add(1, std::memory_order_relaxed);
    bytes_emptied_.fetch_add(window.end - window.begin, std::memory_order_relaxed);
  } else if (!gives_way) {
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
  const MoveResult result =
      store_.TryMoveItem(worker, hash, block.offset, [this] { return turns_.asked_to_give_way(); });
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
          .given_up = given_up_.load(std::memory_order_relaxed),
          .turned_away = turned_away_.load(std::memory_order_relaxed),
          .gave_way = gave_way_.load(std::memory_order_relaxed),
          .most_waited_bytes = most_waited_bytes_.load(std::memory_order_relaxed)};
}

}  // namespace verbena::storage
