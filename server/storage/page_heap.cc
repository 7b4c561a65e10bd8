#include "server/storage/page_heap.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"

namespace verbena::storage {
namespace {

constexpr uint32_t kNoPage = UINT32_MAX;
// A left-over part is taken for a slab at once if it holds this many blocks, so that little of it
// is lost again; fewer blocks are better than none when no page is free.
constexpr uint64_t kGoodSlabBlocks = 8;
// Bounds the search among left-over parts of about the right size.
constexpr int kMostLookedAt = 32;

}  // namespace

PageHeap::PageHeap(const Region& region)
    : heap_begin_(region.heap_begin()),
      pages_(region.heap_pages()),
      free_((region.heap_pages() + 63) / 64, 0) {
  partial_.fill(kNoPart);
  left_over_.fill(kNoPart);
  for (uint32_t page = 0; page < pages_.size(); ++page) {
    free_[page / 64] |= uint64_t{1} << (page % 64);
  }
  usage_.pages = usage_.free_pages = pages_.size();
}

size_t PageHeap::AllocateBlocks(uint32_t size_class, std::span<uint64_t> offsets) {
  const std::lock_guard lock(lock_);
  size_t got = 0;
  while (got < offsets.size()) {
    PartId id = partial_[size_class];
    if (id == kNoPart) {
      // What is already there is handed out before another page is opened for a fuller batch.
      if (got > 0) break;
      id = NewSlab(size_class);
      if (id == kNoPart) break;
    }
    got += TakeBlocks(id, offsets.subspan(got));
    if (part(id).used == part(id).blocks) Remove(partial_[size_class], id);
  }
  usage_.class_blocks[size_class] += got;
  return got;
}

size_t PageHeap::TakeBlocks(PartId id, std::span<uint64_t> offsets) {
  Part& slab = part(id);
  const uint64_t base = PartOffset(id);
  const uint64_t size = layout::BlockSize(slab.size_class);
  const uint32_t words = (slab.blocks + 63) / 64;
  size_t got = 0;
  uint32_t word = slab.first_word;
  for (; word < words; ++word) {
    // Bits beyond the last block are set from the start.
    while (got < offsets.size() && slab.bitmap[word] != UINT64_MAX) {
      const auto bit = static_cast<uint32_t>(std::countr_one(slab.bitmap[word]));
      slab.bitmap[word] |= uint64_t{1} << bit;
      offsets[got++] = base + (uint64_t{word} * 64 + bit) * size;
    }
    if (slab.bitmap[word] != UINT64_MAX) break;
  }
  slab.first_word = word;
  slab.used += static_cast<uint32_t>(got);
  return got;
}

void PageHeap::FreeBlocks(uint32_t size_class, std::span<const uint64_t> offsets) {
  const std::lock_guard lock(lock_);
  const uint64_t size = layout::BlockSize(size_class);
  for (const uint64_t offset : offsets) {
    const PartId id = FindPart(offset);
    Part& slab = part(id);
    assert(slab.use == Use::kSlab && slab.size_class == size_class);
    const auto index = static_cast<uint32_t>((offset - PartOffset(id)) / size);
    const uint64_t bit = uint64_t{1} << (index % 64);
    assert((slab.bitmap[index / 64] & bit) != 0 && "a block was freed twice");
    slab.bitmap[index / 64] &= ~bit;
    slab.first_word = std::min(slab.first_word, index / 64);
    if (slab.used-- == slab.blocks) Push(partial_[size_class], id);
    if (slab.used == 0) {
      Remove(partial_[size_class], id);
      usage_.class_bytes[size_class] -= slab.size;
      ReleasePart(id);
    }
  }
  usage_.class_blocks[size_class] -= offsets.size();
}

uint64_t PageHeap::AllocateRun(uint64_t bytes) {
  const std::lock_guard lock(lock_);
  const uint64_t size = RunBytes(bytes);
  const uint64_t count = (size + layout::kPageSize - 1) / layout::kPageSize;
  const uint32_t first = FindFreePages(count);
  if (first == kNoPage) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    Cut(first + i, Use::kRun, std::min(layout::kPageSize, size - i * layout::kPageSize));
  }
  // Where a run ends, so that FreeRun knows: its first part counts the pages.
  part(first * 2).blocks = static_cast<uint32_t>(count);
  return PartOffset(first * 2);
}

uint64_t PageHeap::FreeRun(uint64_t offset) {
  const std::lock_guard lock(lock_);
  const PartId first = FindPart(offset);
  assert(part(first).use == Use::kRun && part(first).blocks > 0);
  const uint32_t count = part(first).blocks;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    bytes += part(first + 2 * i).size;
    ReleasePart(first + 2 * i);
  }
  return bytes;
}

uint64_t PageHeap::AllocateSegment() {
  const std::lock_guard lock(lock_);
  if (segments_in_page_ == kSegmentsPerPage) {
    const uint32_t page = FindFreePages(1);
    if (page == kNoPage) return 0;
    Cut(page, Use::kSegments, kSegmentsPerPage * layout::kSegmentSize);
    segment_page_ = page;
    segments_in_page_ = 0;
  }
  ++usage_.segments;
  return PartOffset(segment_page_ * 2) + segments_in_page_++ * layout::kSegmentSize;
}

HeapUsage PageHeap::Usage() const {
  const std::lock_guard lock(lock_);
  return usage_;
}

uint32_t PageHeap::ListOfSize(uint64_t size) {
  return static_cast<uint32_t>(std::bit_width(size / kLeastLeftOver)) - 1;
}

PageHeap::PartId PageHeap::FindPart(uint64_t offset) const {
  const uint64_t from_begin = offset - heap_begin_;
  const auto page = static_cast<uint32_t>(from_begin / layout::kPageSize);
  const Part& tail = pages_[page].parts[1];
  return page * 2 + (tail.size > 0 && from_begin % layout::kPageSize >= tail.begin ? 1 : 0);
}

uint64_t PageHeap::PartOffset(PartId id) const {
  return heap_begin_ + id / 2 * layout::kPageSize + pages_[id / 2].parts[id % 2].begin;
}

void PageHeap::Push(PartId& head, PartId id) {
  Part& added = part(id);
  added.previous = kNoPart;
  added.next = head;
  added.listed = true;
  if (head != kNoPart) part(head).previous = id;
  head = id;
}

void PageHeap::Remove(PartId& head, PartId id) {
  Part& removed = part(id);
  if (removed.next != kNoPart) part(removed.next).previous = removed.previous;
  if (removed.previous != kNoPart) {
    part(removed.previous).next = removed.next;
  } else {
    head = removed.next;
  }
  removed.next = removed.previous = kNoPart;
  removed.listed = false;
}

// Takes a free page: its front for `front_use`, the rest is left over if it is worth keeping.
void PageHeap::Cut(uint32_t page, Use front_use, uint64_t front_size) {
  free_[page / 64] &= ~(uint64_t{1} << (page % 64));
  Part& front = part(page * 2);
  front.begin = 0;
  front.size = static_cast<uint32_t>(front_size);
  front.use = front_use;
  Part& tail = part(page * 2 + 1);
  tail.begin = front.size;
  tail.size = 0;
  tail.use = Use::kNone;
  if (layout::kPageSize - front_size >= kLeastLeftOver) {
    tail.size = static_cast<uint32_t>(layout::kPageSize - front_size);
    LeavePart(page * 2 + 1);
  }
  UpdateKind(page);
}

void PageHeap::LeavePart(PartId id) {
  Part& left = part(id);
  left.use = Use::kLeftOver;
  if (left.size >= kLeastLeftOver) Push(left_over_[ListOfSize(left.size)], id);
}

// A part is not used any more. If that goes for its whole page, the page is free.
void PageHeap::ReleasePart(PartId id) {
  Part& released = part(id);
  released.bitmap.reset();
  released.blocks = released.used = released.first_word = 0;
  LeavePart(id);
  const uint32_t page = id / 2;
  const auto unused = [](const Part& p) { return p.use == Use::kNone || p.use == Use::kLeftOver; };
  if (unused(pages_[page].parts[0]) && unused(pages_[page].parts[1])) {
    for (const PartId half : {page * 2, page * 2 + 1}) {
      Part& p = part(half);
      if (p.listed) Remove(left_over_[ListOfSize(p.size)], half);
      p = Part();
    }
    free_[page / 64] |= uint64_t{1} << (page % 64);
    first_free_word_ = std::min(first_free_word_, page / 64);
  }
  UpdateKind(page);
}

uint64_t& PageHeap::PagesOfKind(PageKind kind) {
  switch (kind) {
    case PageKind::kFree:
      return usage_.free_pages;
    case PageKind::kSegments:
      return usage_.segment_pages;
    case PageKind::kRun:
      return usage_.run_pages;
    case PageKind::kSlab:
      break;
  }
  return usage_.slab_pages;
}

// A page counts as what its front is taken for, as a slab's if only slabs are in it.
void PageHeap::UpdateKind(uint32_t page) {
  Page& updated = pages_[page];
  PageKind kind = PageKind::kSlab;
  if (IsFree(page)) kind = PageKind::kFree;
  if (updated.parts[0].use == Use::kSegments) kind = PageKind::kSegments;
  if (updated.parts[0].use == Use::kRun) kind = PageKind::kRun;
  --PagesOfKind(updated.kind);
  ++PagesOfKind(kind);
  updated.kind = kind;
}

// The first of `count` free pages in a row, kNoPage if there are none.
uint32_t PageHeap::FindFreePages(uint64_t count) const {
  uint64_t in_row = 0;
  for (uint64_t word = first_free_word_; word < free_.size(); ++word) {
    if (free_[word] == 0) {
      in_row = 0;
      continue;
    }
    for (uint32_t bit = 0; bit < 64; ++bit) {
      in_row = (free_[word] >> bit & 1) != 0 ? in_row + 1 : 0;
      if (in_row == count) return static_cast<uint32_t>(word * 64 + bit + 1 - count);
    }
  }
  return kNoPage;
}

PageHeap::PartId PageHeap::FindLeftOver(uint64_t least) const {
  uint32_t list = least <= kLeastLeftOver ? 0 : ListOfSize(least);
  // In the first list a part may be too small; in the others all are large enough.
  for (; list < kLeftOverLists; ++list) {
    PartId id = left_over_[list];
    for (int looked = 0; id != kNoPart && looked < kMostLookedAt; ++looked) {
      const Part& left = pages_[id / 2].parts[id % 2];
      if (left.size >= least) return id;
      id = left.next;
    }
  }
  return kNoPart;
}

// A slab with free blocks, already on the list of its class; kNoPart if memory is out.
PageHeap::PartId PageHeap::NewSlab(uint32_t size_class) {
  const uint64_t size = layout::BlockSize(size_class);
  PartId id = FindLeftOver(size * kGoodSlabBlocks);
  if (id == kNoPart) {
    while (first_free_word_ < free_.size() && free_[first_free_word_] == 0) ++first_free_word_;
    if (const uint32_t page = FindFreePages(1); page != kNoPage) {
      Cut(page, Use::kSlab, layout::kPageSize / size * size);
      id = page * 2;
    } else {
      id = FindLeftOver(size);
    }
  }
  if (id == kNoPart) return kNoPart;
  if (part(id).listed) Remove(left_over_[ListOfSize(part(id).size)], id);
  MakeSlab(id, size_class);
  return id;
}

void PageHeap::MakeSlab(PartId id, uint32_t size_class) {
  Part& slab = part(id);
  slab.use = Use::kSlab;
  slab.size_class = static_cast<uint8_t>(size_class);
  slab.blocks = static_cast<uint32_t>(slab.size / layout::BlockSize(size_class));
  slab.used = 0;
  slab.first_word = 0;
  const uint32_t words = (slab.blocks + 63) / 64;
  slab.bitmap = std::make_unique<uint64_t[]>(words);
  if (slab.blocks % 64 != 0) slab.bitmap[words - 1] = UINT64_MAX << (slab.blocks % 64);
  usage_.class_bytes[size_class] += slab.size;
  Push(partial_[size_class], id);
  UpdateKind(id / 2);
}

absl::Status PageHeap::ValidatePage(uint32_t page) const {
  const auto wrong = [page](absl::string_view what) {
    return absl::InternalError(absl::StrCat("heap page ", page, ": ", what));
  };
  const Page& checked = pages_[page];
  const std::array<Part, 2>& parts = checked.parts;
  if (IsFree(page) != (checked.kind == PageKind::kFree)) return wrong("kind and bitmap differ");
  if (IsFree(page)) {
    for (const Part& p : parts) {
      if (p.use != Use::kNone || p.listed || p.bitmap != nullptr) return wrong("free, but in use");
    }
    return absl::OkStatus();
  }
  if (parts[0].begin != 0 || parts[0].size == 0) return wrong("no front");
  if (parts[1].size != 0 &&
      (parts[1].begin != parts[0].size || parts[1].begin + parts[1].size != layout::kPageSize)) {
    return wrong("parts do not meet");
  }
  bool in_use = false;
  for (const Part& p : parts) {
    in_use |= p.use != Use::kNone && p.use != Use::kLeftOver;
    const bool should_list = p.use == Use::kSlab
                                 ? p.used < p.blocks
                                 : p.use == Use::kLeftOver && p.size >= kLeastLeftOver;
    if (p.listed != should_list) return wrong("on a list or not, wrongly");
    if (p.use != Use::kSlab) continue;
    if (p.blocks != p.size / layout::BlockSize(p.size_class)) return wrong("number of blocks");
    uint32_t used = 0;
    for (uint32_t block = 0; block < p.blocks; ++block) {
      const bool set = (p.bitmap[block / 64] >> (block % 64) & 1) != 0;
      if (!set && block / 64 < p.first_word) return wrong("free block before first_word");
      used += set ? 1 : 0;
    }
    if (used != p.used || used == 0) return wrong("used blocks and bitmap differ");
  }
  return in_use ? absl::OkStatus() : wrong("nothing in it, but not free");
}

absl::Status PageHeap::Validate() const {
  const std::lock_guard lock(lock_);
  HeapUsage found;
  found.pages = pages_.size();
  for (uint32_t page = 0; page < pages_.size(); ++page) {
    VERBENA_RETURN_IF_ERROR(ValidatePage(page));
    const PageKind kind = pages_[page].kind;
    found.free_pages += kind == PageKind::kFree ? 1 : 0;
    found.segment_pages += kind == PageKind::kSegments ? 1 : 0;
    found.run_pages += kind == PageKind::kRun ? 1 : 0;
    found.slab_pages += kind == PageKind::kSlab ? 1 : 0;
    for (const Part& p : pages_[page].parts) {
      if (p.use != Use::kSlab) continue;
      found.class_bytes[p.size_class] += p.size;
      found.class_blocks[p.size_class] += p.used;
    }
  }
  if (found.free_pages != usage_.free_pages || found.segment_pages != usage_.segment_pages ||
      found.run_pages != usage_.run_pages || found.slab_pages != usage_.slab_pages ||
      found.class_bytes != usage_.class_bytes || found.class_blocks != usage_.class_blocks) {
    return absl::InternalError("heap: the counts of pages, bytes or blocks are wrong");
  }
  return absl::OkStatus();
}

}  // namespace verbena::storage
