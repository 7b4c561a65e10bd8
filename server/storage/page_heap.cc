#include "server/storage/page_heap.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <mutex>

namespace verbena::storage {
namespace {

constexpr uint32_t kNoPage = UINT32_MAX;

// The least blocks of a slab that has whole units and wastes at most a 32nd of them.
constexpr uint32_t LeastBlocks(uint64_t block_size, uint64_t unit) {
  for (uint64_t units = (block_size + unit - 1) / unit;; ++units) {
    const uint64_t bytes = units * unit;
    if (bytes % block_size * 32 <= bytes) return static_cast<uint32_t>(bytes / block_size);
  }
}

constexpr auto kLeastBlocks = [] {
  std::array<uint32_t, layout::kSizeClasses> blocks{};
  for (uint32_t i = 0; i < layout::kSizeClasses; ++i) {
    blocks[i] = LeastBlocks(layout::BlockSize(i), 4096);
  }
  return blocks;
}();
static_assert(kLeastBlocks[0] == 256 && kLeastBlocks[layout::kSizeClasses - 1] == 1);

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
  bool new_slab = false;
  while (got < offsets.size()) {
    PartId id = partial_[size_class];
    if (id == kNoPart) {
      // What is already there is handed out before another slab is made for a fuller batch.
      if (got > 0) break;
      id = NewSlab(size_class);
      if (id == kNoPart) break;
      new_slab = true;
    }
    got += TakeBlocks(id, offsets.subspan(got));
    if (parts_[id].used == parts_[id].blocks) Remove(partial_[size_class], id);
  }
  usage_.class_blocks[size_class] += got;
  slab_used_bytes_ += got * layout::BlockSize(size_class);
  if (new_slab) NoteTaken();
  return got;
}

size_t PageHeap::TakeBlocks(PartId id, std::span<uint64_t> offsets) {
  Part& slab = parts_[id];
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
  pages_[slab.page].used_bytes += static_cast<uint32_t>(got * size);
  return got;
}

void PageHeap::FreeBlocks(uint32_t size_class, std::span<const uint64_t> offsets) {
  const std::lock_guard lock(lock_);
  const uint64_t size = layout::BlockSize(size_class);
  for (const uint64_t offset : offsets) {
    const PartId id = FindPart(offset);
    Part& slab = parts_[id];
    assert(slab.use == Use::kSlab && slab.size_class == size_class);
    const auto index = static_cast<uint32_t>((offset - PartOffset(id)) / size);
    const uint64_t bit = uint64_t{1} << (index % 64);
    assert((slab.bitmap[index / 64] & bit) != 0 && "a block was freed twice");
    slab.bitmap[index / 64] &= ~bit;
    slab.first_word = std::min(slab.first_word, index / 64);
    pages_[slab.page].used_bytes -= static_cast<uint32_t>(size);
    const bool was_full = slab.used-- == slab.blocks;
    if (InWindow(id)) continue;  // stays out of reach until the window is released
    if (was_full) Push(partial_[size_class], id);
    if (slab.used == 0) {
      Remove(partial_[size_class], id);
      ReleasePart(id);
    }
  }
  usage_.class_blocks[size_class] -= offsets.size();
  slab_used_bytes_ -= offsets.size() * size;
  freed_bytes_.fetch_add(offsets.size() * size, std::memory_order_relaxed);
}

uint64_t PageHeap::AllocateRun(uint64_t bytes) {
  const std::lock_guard lock(lock_);
  const uint64_t size = RunBytes(bytes);
  const auto count = static_cast<uint32_t>((size + layout::kPageSize - 1) / layout::kPageSize);
  const uint32_t first = FindFreePages(count);
  if (first == kNoPage) return 0;
  const uint64_t in_last = size - (count - 1) * layout::kPageSize;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t in_page = i + 1 < count ? layout::kPageSize : in_last;
    const PartId id = OpenPage(first + i);
    Part& part = parts_[id];
    part.use = Use::kRun;
    // Where a run ends, so that FreeRun knows, and where it begins, for who finds another part.
    part.blocks = i == 0 ? count : 0;
    part.used = i == 0 ? static_cast<uint32_t>(in_last) : first;
    Cut(id, Units(in_page));
    pages_[first + i].used_bytes += static_cast<uint32_t>(Units(in_page) * kUnit);
    UpdateKind(first + i);
  }
  NoteTaken();
  return heap_begin_ + first * layout::kPageSize;
}

uint64_t PageHeap::FreeRun(uint64_t offset) {
  const std::lock_guard lock(lock_);
  const Part& front = parts_[FindPart(offset)];
  assert(front.use == Use::kRun && front.blocks > 0);
  const uint32_t first = front.page;
  const uint32_t count = front.blocks;
  const uint64_t bytes = (count - 1) * layout::kPageSize + front.used;
  for (uint32_t page = first; page < first + count; ++page) {
    const PartId id = pages_[page].parts.front();
    pages_[page].used_bytes -= static_cast<uint32_t>(parts_[id].units * kUnit);
    ReleasePart(id);
  }
  freed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return bytes;
}

uint64_t PageHeap::AllocateSegment() {
  const std::lock_guard lock(lock_);
  if (segments_in_page_ == kSegmentsPerPage) {
    const uint32_t page = FindFreePages(1);
    if (page == kNoPage) return 0;
    const PartId id = OpenPage(page);
    parts_[id].use = Use::kSegments;
    Cut(id, Units(kSegmentsPerPage * layout::kSegmentSize));
    UpdateKind(page);
    segment_page_ = page;
    segments_in_page_ = 0;
    NoteTaken();
  }
  ++usage_.segments;
  return heap_begin_ + segment_page_ * layout::kPageSize +
         segments_in_page_++ * layout::kSegmentSize;
}

bool PageHeap::HasPlaceFor(uint64_t bytes, std::span<const uint64_t> fixed) const {
  if (layout::SizeClassFor(bytes) != layout::kRunClass) return true;
  const uint64_t count = (RunBytes(bytes) + layout::kPageSize - 1) / layout::kPageSize;
  const std::lock_guard lock(lock_);
  std::vector<bool> has_fixed(pages_.size());
  for (const uint64_t offset : fixed) {
    if (IsFree(PageOf(offset))) continue;  // it was let go of and freed meanwhile
    const Part& part = parts_[FindPart(offset)];
    const uint32_t span = part.use == Use::kRun ? part.blocks : 1;
    for (uint32_t i = 0; i < span; ++i) has_fixed[part.page + i] = true;
  }
  uint64_t in_row = 0;
  for (uint32_t page = 0; page < pages_.size() && in_row < count; ++page) {
    const bool movable = pages_[page].kind != PageKind::kSegments && !has_fixed[page];
    in_row = movable ? in_row + 1 : 0;
  }
  return in_row >= count;
}

HeapUsage PageHeap::Usage() const {
  const std::lock_guard lock(lock_);
  return usage_;
}

size_t PageHeap::PositionOf(PartId id) const {
  const std::vector<PartId>& parts = pages_[parts_[id].page].parts;
  const auto at =
      std::lower_bound(parts.begin(), parts.end(), parts_[id].begin,
                       [this](PartId p, uint32_t begin) { return parts_[p].begin < begin; });
  return static_cast<size_t>(at - parts.begin());
}

PageHeap::PartId PageHeap::FindPart(uint64_t offset) const {
  const uint64_t from_begin = offset - heap_begin_;
  const std::vector<PartId>& parts = pages_[from_begin / layout::kPageSize].parts;
  const uint64_t unit = from_begin % layout::kPageSize / kUnit;
  // The last one that does not begin behind it.
  const auto after = std::upper_bound(parts.begin(), parts.end(), unit,
                                      [this](uint64_t u, PartId p) { return u < parts_[p].begin; });
  return *(after - 1);
}

uint64_t PageHeap::PartOffset(PartId id) const {
  return heap_begin_ + parts_[id].page * layout::kPageSize + parts_[id].begin * kUnit;
}

PageHeap::PartId PageHeap::AddPart(uint32_t page, size_t position, uint32_t begin, uint32_t units) {
  PartId id;
  if (spare_parts_.empty()) {
    id = static_cast<PartId>(parts_.size());
    parts_.emplace_back();
  } else {
    id = spare_parts_.back();
    spare_parts_.pop_back();
  }
  Part& added = parts_[id];
  added.page = page;
  added.begin = static_cast<uint16_t>(begin);
  added.units = static_cast<uint16_t>(units);
  std::vector<PartId>& parts = pages_[page].parts;
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(position), id);
  return id;
}

// The caller has taken it from its list.
void PageHeap::DropPart(PartId id) {
  std::vector<PartId>& parts = pages_[parts_[id].page].parts;
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(PositionOf(id)));
  parts_[id] = Part();
  spare_parts_.push_back(id);
}

void PageHeap::Push(PartId& head, PartId id) {
  Part& added = parts_[id];
  added.previous = kNoPart;
  added.next = head;
  added.listed = true;
  if (head != kNoPart) parts_[head].previous = id;
  head = id;
}

void PageHeap::Remove(PartId& head, PartId id) {
  Part& removed = parts_[id];
  if (removed.next != kNoPart) parts_[removed.next].previous = removed.previous;
  if (removed.previous != kNoPart) {
    parts_[removed.previous].next = removed.next;
  } else {
    head = removed.next;
  }
  removed.next = removed.previous = kNoPart;
  removed.listed = false;
}

void PageHeap::PushLeftOver(PartId id) {
  const uint32_t units = parts_[id].units;
  assert(units > 0 && units < kPageUnits);
  Push(left_over_[units], id);
  left_over_sizes_[units / 64] |= uint64_t{1} << (units % 64);
  usage_.left_over_bytes += units * kUnit;
}

void PageHeap::RemoveLeftOver(PartId id) {
  const uint32_t units = parts_[id].units;
  Remove(left_over_[units], id);
  if (left_over_[units] == kNoPart) left_over_sizes_[units / 64] &= ~(uint64_t{1} << (units % 64));
  usage_.left_over_bytes -= units * kUnit;
}

// Takes a free page: one part, on no list. The caller sets its use, cuts it and calls UpdateKind.
PageHeap::PartId PageHeap::OpenPage(uint32_t page) {
  assert(IsFree(page));
  free_[page / 64] &= ~(uint64_t{1} << (page % 64));
  return AddPart(page, 0, 0, kPageUnits);
}

// Shortens a part that is on no list to `units`; the rest is left over.
void PageHeap::Cut(PartId id, uint32_t units) {
  const uint32_t rest = parts_[id].units - units;
  if (rest == 0) return;
  parts_[id].units = static_cast<uint16_t>(units);
  PushLeftOver(AddPart(parts_[id].page, PositionOf(id) + 1, parts_[id].begin + units, rest));
}

// A part is not used any more; it is on no list.
void PageHeap::ReleasePart(PartId id) {
  Part& released = parts_[id];
  if (released.use == Use::kSlab) {
    usage_.class_bytes[released.size_class] -= released.units * kUnit;
    slab_bytes_ -= released.units * kUnit;
    class_capacity_[released.size_class] -= released.blocks;
  }
  released.use = Use::kLeftOver;
  released.bitmap.reset();
  released.blocks = released.used = released.first_word = 0;
  if (InWindow(id)) {
    UpdateKind(released.page);
  } else {
    Merge(id);
  }
}

// Joins a left-over part that is on no list with those beside it, but for isolated ones (which are
// on no list either), and puts it on its list. If that is a whole page, the page is free.
void PageHeap::Merge(PartId id) {
  const uint32_t page = parts_[id].page;
  const std::vector<PartId>& parts = pages_[page].parts;
  const auto joins = [this](PartId other) {
    return parts_[other].use == Use::kLeftOver && parts_[other].listed;
  };
  const size_t position = PositionOf(id);
  if (position + 1 < parts.size() && joins(parts[position + 1])) {
    const PartId right = parts[position + 1];
    RemoveLeftOver(right);
    const uint16_t units = parts_[right].units;
    DropPart(right);
    parts_[id].units = static_cast<uint16_t>(parts_[id].units + units);
  }
  if (position > 0 && joins(parts[position - 1])) {
    const PartId left = parts[position - 1];
    RemoveLeftOver(left);
    const uint16_t begin = parts_[left].begin;
    DropPart(left);
    parts_[id].units = static_cast<uint16_t>(parts_[id].units + (parts_[id].begin - begin));
    parts_[id].begin = begin;
  }
  if (parts_[id].units == kPageUnits) {
    DropPart(id);
    free_[page / 64] |= uint64_t{1} << (page % 64);
    first_free_word_ = std::min(first_free_word_, page / 64);
  } else {
    PushLeftOver(id);
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

// A page counts as what its start is taken for, as a slab's if no run and no segments are in it.
void PageHeap::UpdateKind(uint32_t page) {
  Page& updated = pages_[page];
  PageKind kind = PageKind::kFree;
  if (!IsFree(page)) {
    const Use use = parts_[updated.parts.front()].use;
    kind = use == Use::kSegments ? PageKind::kSegments
           : use == Use::kRun    ? PageKind::kRun
                                 : PageKind::kSlab;
  }
  --PagesOfKind(updated.kind);
  ++PagesOfKind(kind);
  updated.kind = kind;
}

// The first of `count` free pages in a row, kNoPage if there are none.
uint32_t PageHeap::FindFreePages(uint64_t count) const {
  if (count > usage_.free_pages) return kNoPage;
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

PageHeap::PartId PageHeap::SmallestLeftOver(uint32_t least_units) const {
  if (least_units >= kPageUnits) return kNoPart;
  for (uint32_t word = least_units / 64; word < left_over_sizes_.size(); ++word) {
    uint64_t sizes = left_over_sizes_[word];
    if (word == least_units / 64) sizes &= UINT64_MAX << (least_units % 64);
    if (sizes != 0) return left_over_[word * 64 + static_cast<uint32_t>(std::countr_zero(sizes))];
  }
  return kNoPart;
}

PageHeap::PartId PageHeap::LargestLeftOver() const {
  for (size_t word = left_over_sizes_.size(); word-- > 0;) {
    const uint64_t sizes = left_over_sizes_[word];
    if (sizes != 0)
      return left_over_[word * 64 + 63 - static_cast<size_t>(std::countl_zero(sizes))];
  }
  return kNoPart;
}

// A part to make a slab of, on no list and cut to size; kNoPart if memory is out.
//
// The slab is to have an eighth of what its class has, so that what is not used of the last one
// does not weigh much, and less where memory is short. A left-over part of that size is taken
// first, the one that fits best; then a free page is opened; then the largest part is taken, and
// at last one that holds a single block.
PageHeap::PartId PageHeap::RoomForSlab(uint32_t size_class) {
  const uint64_t size = layout::BlockSize(size_class);
  const uint64_t share = usage_.free_pages > pages_.size() / 16 ? 8 : 32;
  const uint64_t wanted_blocks =
      std::clamp<uint64_t>(usage_.class_bytes[size_class] / share / size, kLeastBlocks[size_class],
                           layout::kPageSize / size);
  const uint32_t wanted = Units(wanted_blocks * size);
  PartId id = SmallestLeftOver(wanted);
  if (id == kNoPart) {
    while (first_free_word_ < free_.size() && free_[first_free_word_] == 0) ++first_free_word_;
    if (const uint32_t page = FindFreePages(1); page != kNoPage) {
      id = OpenPage(page);
      Cut(id, wanted);
      return id;
    }
    id = LargestLeftOver();
    if (id == kNoPart || parts_[id].units * kUnit < size) return kNoPart;
  }
  RemoveLeftOver(id);
  const uint64_t blocks = std::min<uint64_t>(wanted_blocks, parts_[id].units * kUnit / size);
  Cut(id, Units(blocks * size));
  return id;
}

// A slab with free blocks, already on the list of its class; kNoPart if memory is out.
PageHeap::PartId PageHeap::NewSlab(uint32_t size_class) {
  const PartId id = RoomForSlab(size_class);
  if (id != kNoPart) MakeSlab(id, size_class);
  return id;
}

void PageHeap::MakeSlab(PartId id, uint32_t size_class) {
  Part& slab = parts_[id];
  slab.use = Use::kSlab;
  slab.size_class = static_cast<uint8_t>(size_class);
  slab.blocks = static_cast<uint32_t>(slab.units * kUnit / layout::BlockSize(size_class));
  slab.used = 0;
  slab.first_word = 0;
  const uint32_t words = (slab.blocks + 63) / 64;
  slab.bitmap = std::make_unique<uint64_t[]>(words);
  if (slab.blocks % 64 != 0) slab.bitmap[words - 1] = UINT64_MAX << (slab.blocks % 64);
  usage_.class_bytes[size_class] += slab.units * kUnit;
  slab_bytes_ += slab.units * kUnit;
  class_capacity_[size_class] += slab.blocks;
  Push(partial_[size_class], id);
  UpdateKind(slab.page);
}

}  // namespace verbena::storage
