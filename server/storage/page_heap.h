// The heap of a slice: 1 MiB pages and the pieces that they are cut into. Central and locked;
// Allocator puts per-worker caches in front.
//
// A page is free or cut into at most two parts, front and tail. A part is taken by segments or by a
// run (fronts only), is a slab (equal blocks of one size class), or is left over. Left over are the
// tails of pages with segments, of slabs whose blocks do not divide the page, and behind runs, and
// fronts whose tail is still in use; slabs of smaller blocks go there before they take a page. A
// page whose parts are all left over is free again.
//
// All of this bookkeeping is outside the slice: free memory keeps what was last written to it, so
// that a block that was freed with check = 0 stays invalid for readers with old slots.
#pragma once

#include <array>
#include <cstdint>
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
  // Bytes of all slabs of a class, and blocks of it that were given out (worker caches included).
  std::array<uint64_t, layout::kSizeClasses> class_bytes{};
  std::array<uint64_t, layout::kSizeClasses> class_blocks{};
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

  HeapUsage Usage() const;

  // Walks all bookkeeping; InternalError names the first contradiction. For tests.
  absl::Status Validate() const;

 private:
  enum class Use : uint8_t { kNone, kLeftOver, kSegments, kRun, kSlab };
  enum class PageKind : uint8_t { kFree, kSegments, kRun, kSlab };

  // A part's number: twice its page's, plus one for the tail.
  using PartId = uint32_t;
  static constexpr PartId kNoPart = UINT32_MAX;

  struct Part {
    uint32_t begin = 0;  // bytes from the page's start
    uint32_t size = 0;
    Use use = Use::kNone;
    uint8_t size_class = 0;
    bool listed = false;  // on the list of its class or of its size
    uint32_t blocks = 0;  // a slab's
    uint32_t used = 0;
    uint32_t first_word = 0;  // no word of `bitmap` before this one has a free block
    PartId next = kNoPart;
    PartId previous = kNoPart;
    std::unique_ptr<uint64_t[]> bitmap;  // a bit is set for each block in use
  };
  struct Page {
    std::array<Part, 2> parts;  // front, tail
    PageKind kind = PageKind::kFree;
  };

  static uint32_t ListOfSize(uint64_t size);
  Part& part(PartId id) { return pages_[id / 2].parts[id % 2]; }
  PartId FindPart(uint64_t offset) const;
  uint64_t PartOffset(PartId id) const;

  void Push(PartId& head, PartId id);
  void Remove(PartId& head, PartId id);
  void Cut(uint32_t page, Use front_use, uint64_t front_size);
  void LeavePart(PartId id);
  void ReleasePart(PartId id);
  void UpdateKind(uint32_t page);
  uint32_t FindFreePages(uint64_t count) const;
  PartId FindLeftOver(uint64_t least) const;
  PartId NewSlab(uint32_t size_class);
  void MakeSlab(PartId id, uint32_t size_class);
  size_t TakeBlocks(PartId id, std::span<uint64_t> offsets);
  bool IsFree(uint32_t page) const { return (free_[page / 64] >> (page % 64) & 1) != 0; }
  uint64_t& PagesOfKind(PageKind kind);
  absl::Status ValidatePage(uint32_t page) const;

  const uint64_t heap_begin_;
  mutable SpinLock lock_;  // of all that follows
  std::vector<Page> pages_;
  std::vector<uint64_t> free_;    // a bit is set for each free page
  uint32_t first_free_word_ = 0;  // no word of free_ before this one has a free page
  std::array<PartId, layout::kSizeClasses> partial_;  // slabs with free blocks
  // Left-over parts; list i has those of 2^i * kLeastLeftOver bytes and more.
  static constexpr uint64_t kLeastLeftOver = 4096;
  static constexpr uint32_t kLeftOverLists = 9;
  std::array<PartId, kLeftOverLists> left_over_;
  uint32_t segment_page_ = 0;
  uint64_t segments_in_page_ = kSegmentsPerPage;
  HeapUsage usage_;
};

}  // namespace verbena::storage
