// The heap of a slice: 1 MiB pages and the parts that they are cut into. Central and locked;
// Allocator puts per-worker caches in front.
//
// A page is free or cut into parts, each some units of 4 KiB: segments or a run (from the page's
// start only), slabs (equal blocks of one size class), and what is left over. Left-over parts that
// meet become one, and a page that is nothing else is free again. A slab takes about an eighth of
// what its class has, at most a page and at least a few blocks that waste little, so that classes
// of which there is not much do not cost a page each.
//
// Compaction works on a *window*: a few neighbouring parts of a page, or pages in a row, that are
// isolated while their blocks are moved elsewhere. There is one window at a time. Of an isolated
// part nothing is given out: its slabs and left-over parts are on no list (and its pages not free),
// and what is freed in it meanwhile is marked as free and stays there until the window is
// released. So the blocks in use in a window only become fewer.
//
// All of this bookkeeping is outside the slice: free memory keeps what was last written to it, so
// that a block that was freed with check = 0 stays invalid for readers with old slots.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/spinlock.h"
#include "common/layout/bucket.h"
#include "common/layout/size_class.h"
#include "server/storage/region.h"

namespace verbena::storage {

inline constexpr uint64_t kSegmentsPerPage = layout::kPageSize / layout::kSegmentSize;

// How the heap's pages are used.
struct HeapUsage {
  uint64_t pages = 0;  // the sum of the next four
  uint64_t free_pages = 0;
  uint64_t segment_pages = 0;
  uint64_t run_pages = 0;
  uint64_t slab_pages = 0;
  uint64_t segments = 0;
  uint64_t left_over_bytes = 0;  // in pages that are not free
  // Bytes of all slabs of a class, and blocks of it that were given out (worker caches included).
  std::array<uint64_t, layout::kSizeClasses> class_bytes{};
  std::array<uint64_t, layout::kSizeClasses> class_blocks{};
};

// Bytes from the slice's base. Nothing if both are 0.
struct HeapWindow {
  uint64_t begin = 0;
  uint64_t end = 0;

  explicit operator bool() const { return end != 0; }
};

// A block that is given out: in use, prepared, or in a worker's cache. A run if its class says so.
struct UsedBlock {
  uint64_t offset = 0;
  uint32_t size_class = 0;
};

// Thread-safe. Offsets are from the slice's base; 0 stands for "none".
class PageHeap {
 public:
  explicit PageHeap(const Region& region);

  // Fills `offsets` with blocks of the class as far as there are any; returns how many.
  size_t AllocateBlocks(uint32_t size_class, std::span<uint64_t> offsets);
  void FreeBlocks(uint32_t size_class, std::span<const uint64_t> offsets);

  // A run of whole pages (first fit) for `bytes`, of which the rest goes to slabs.
  uint64_t AllocateRun(uint64_t bytes);
  // Returns RunBytes of the run's size.
  uint64_t FreeRun(uint64_t offset);
  // What a run of `bytes` takes.
  static constexpr uint64_t RunBytes(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Room for a segment, kSegmentSize bytes. Segments are never freed.
  uint64_t AllocateSegment();

  // Whether there would be room for an item of `bytes` if no others were there but the blocks at
  // the offsets `fixed`, which stay where they are. Segments never move either, so for a large one
  // there may be none.
  bool HasPlaceFor(uint64_t bytes, std::span<const uint64_t> fixed) const;

  HeapUsage Usage() const;
  // Bytes of all blocks and runs that were ever given back.
  uint64_t freed_bytes() const { return freed_bytes_.load(std::memory_order_relaxed); }
  // Whether little is free outside of slabs while much is free in them.
  bool IsSparse() const;
  // Whether the heap has become sparse by what was taken from it: true once, and again only after
  // RearmSparseNotice and a further slab or run. (What is given back is told by freed_bytes.)
  bool TakeSparseNotice() {
    return sparse_notice_.load(std::memory_order_relaxed) &&
           sparse_notice_.exchange(false, std::memory_order_relaxed);
  }
  void RearmSparseNotice();

  // Isolates the parts of one page that give `bytes` (at most a page) in a row for the least to be
  // moved; nothing if there are none whose blocks have room elsewhere. Looks at each page once at
  // most and holds the lock for a part of them at a time.
  HeapWindow IsolateParts(uint64_t bytes);
  // Isolates the slab that is filled least for its size, among those of whose blocks at most this
  // part (0 to 1) is in use, and for which other slabs of the class have room.
  HeapWindow IsolateSparsestSlab(double most_used);
  // Isolates the pages in a row of which a run of `bytes` can be made with the least to be moved;
  // in a large heap, of some. Holds the lock for a part of them at a time.
  HeapWindow IsolatePages(uint64_t bytes);
  // Isolates a page; nothing if it is free or has segments.
  HeapWindow IsolatePage(uint64_t page);
  // The blocks in use in the window, for its holder; takes the lock for a page at a time. A run is
  // named by its start, which may lie before the window.
  std::vector<UsedBlock> BlocksInWindow() const;
  struct Released {
    bool all_free;   // everything in the window
    uint64_t pages;  // that are free and were not before the isolation
  };
  // Ends the window's isolation. Where something is left in it and it was tried `in_vain` to move
  // that, its page is passed over by the next searches.
  Released ReleaseWindow(bool in_vain);

  // Walks all bookkeeping; InternalError names the first contradiction. For tests.
  absl::Status Validate() const;

 private:
  enum class Use : uint8_t { kLeftOver, kSegments, kRun, kSlab };
  enum class PageKind : uint8_t { kFree, kSegments, kRun, kSlab };

  using PartId = uint32_t;  // index into parts_
  static constexpr PartId kNoPart = UINT32_MAX;
  static constexpr uint64_t kUnit = 4096;
  static constexpr uint32_t kPageUnits = layout::kPageSize / kUnit;

  struct Part {
    uint32_t page = 0;
    uint16_t begin = 0;  // in units, from the page's start
    uint16_t units = 0;
    Use use = Use::kLeftOver;
    uint8_t size_class = 0;
    bool listed = false;  // on the list of its class or of its size
    // Of a slab: blocks. Of a run's first part: its pages (0 for the others).
    uint32_t blocks = 0;
    // Of a slab: blocks in use. Of a run's first part: bytes in its last page. Of the other parts:
    // the first part's page.
    uint32_t used = 0;
    uint32_t first_word = 0;  // no word of `bitmap` before this one has a free block
    PartId next = kNoPart;
    PartId previous = kNoPart;
    std::unique_ptr<uint64_t[]> bitmap;  // a bit is set for each block in use
  };
  struct Page {
    std::vector<PartId> parts;  // by position; none if the page is free
    PageKind kind = PageKind::kFree;
    uint32_t used_bytes = 0;  // of slabs' blocks and of runs
    uint32_t given_up = 0;    // the round in which a window in it could not be emptied
  };
  // What moving a window's blocks takes, see page_heap_windows.cc.
  class Needs;
  struct Candidate;

  static uint32_t Units(uint64_t bytes) {
    return static_cast<uint32_t>((bytes + kUnit - 1) / kUnit);
  }
  uint32_t PageOf(uint64_t offset) const {
    return static_cast<uint32_t>((offset - heap_begin_) / layout::kPageSize);
  }
  PartId FindPart(uint64_t offset) const;
  size_t PositionOf(PartId id) const;
  uint64_t PartOffset(PartId id) const;
  bool IsFree(uint32_t page) const { return (free_[page / 64] >> (page % 64) & 1) != 0; }
  bool InWindow(PartId id) const {
    return window_ && PartOffset(id) >= window_.begin && PartOffset(id) < window_.end;
  }

  PartId AddPart(uint32_t page, size_t position, uint32_t begin, uint32_t units);
  void DropPart(PartId id);
  void Push(PartId& head, PartId id);
  void Remove(PartId& head, PartId id);
  void PushLeftOver(PartId id);
  void RemoveLeftOver(PartId id);
  PartId OpenPage(uint32_t page);
  void Cut(PartId id, uint32_t units);
  void ReleasePart(PartId id);
  void Merge(PartId id);
  void UpdateKind(uint32_t page);
  uint32_t FindFreePages(uint64_t count) const;
  PartId SmallestLeftOver(uint32_t least_units) const;
  PartId LargestLeftOver() const;
  PartId RoomForSlab(uint32_t size_class);
  PartId NewSlab(uint32_t size_class);
  void MakeSlab(PartId id, uint32_t size_class);
  size_t TakeBlocks(PartId id, std::span<uint64_t> offsets);
  uint64_t& PagesOfKind(PageKind kind);

  bool LooksSparse() const;
  void NoteTaken();
  bool MayEmpty(uint32_t page) const;
  void ConsiderParts(uint32_t page, uint32_t units, Candidate& best) const;
  void ConsiderSlabs(uint32_t page, double most_used, Candidate& best) const;
  template <typename Consider>
  HeapWindow IsolateBest(Consider consider);
  HeapWindow CheapestPages(uint32_t count, uint32_t& begin) const;
  bool PagesFit(uint32_t first, uint32_t count) const;
  void Isolate(HeapWindow window);
  absl::Status ValidatePage(uint32_t page) const;
  absl::Status ValidatePart(PartId id) const;

  const uint64_t heap_begin_;
  mutable SpinLock lock_;  // of all that follows but the atomics
  std::deque<Part> parts_;
  std::vector<PartId> spare_parts_;  // numbers that are not in use
  std::vector<Page> pages_;
  std::vector<uint64_t> free_;    // a bit is set for each free page
  uint32_t first_free_word_ = 0;  // no word of free_ before this one has a free page
  std::array<PartId, layout::kSizeClasses> partial_;  // slabs with free blocks
  std::array<PartId, kPageUnits> left_over_;          // by their units; none has a whole page's
  std::array<uint64_t, kPageUnits / 64> left_over_sizes_{};  // a bit is set for lists with parts
  uint32_t segment_page_ = 0;
  uint64_t segments_in_page_ = kSegmentsPerPage;
  HeapUsage usage_;
  std::array<uint64_t, layout::kSizeClasses> class_capacity_{};  // blocks of all slabs
  uint64_t slab_bytes_ = 0;                                      // sum of usage_.class_bytes
  uint64_t slab_used_bytes_ = 0;                                 // of blocks given out
  HeapWindow window_;
  uint64_t free_pages_in_window_ = 0;  // when it was isolated
  uint32_t round_ = UINT32_MAX / 2;    // grows with each search for a window
  uint32_t next_page_ = 0;             // where the next search begins
  bool sparse_noted_ = false;
  std::atomic<uint64_t> freed_bytes_{0};
  std::atomic<bool> sparse_notice_{false};
};

}  // namespace verbena::storage
