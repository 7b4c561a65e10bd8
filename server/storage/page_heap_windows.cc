// PageHeap: windows, the places that compaction empties.
#include <algorithm>
#include <cassert>
#include <mutex>

#include "server/storage/page_heap.h"

namespace verbena::storage {
namespace {

// How many parts a search looks at before it lets others have the lock.
constexpr size_t kMostPartsAtOnce = 2048;
// The same for pages in a row, where a page is looked at once for each row that it may be in. Some
// milliseconds, and more than twice the pages of the largest run.
constexpr uint64_t kMostPagesAtOnce = uint64_t{1} << 16;
// What moving a block costs besides its bytes, in bytes.
constexpr uint64_t kBlockCost = 128;
// Pages in which a window could not be emptied are passed over in this many searches.
constexpr uint32_t kGivenUpRounds = 64;

}  // namespace

struct PageHeap::Candidate {
  HeapWindow window;
  uint64_t cost = UINT64_MAX;
};

// What moving the blocks of some parts takes: room in other slabs of their classes first, then in
// new slabs. Counted, not tried: where the pieces that are free do not fit after all, moving finds
// that out and the window is given up. The caller holds the lock.
class PageHeap::Needs {
 public:
  explicit Needs(const PageHeap& heap) : heap_(heap) {}

  void Add(PartId id) {
    const Part& part = heap_.parts_[id];
    if (part.use == Use::kSlab) {
      Class& own = ClassOf(part.size_class);
      own.used += part.used;
      own.free += part.blocks - part.used;
    } else if (part.use == Use::kRun) {
      run_pages_ += part.blocks;
    } else {
      own_units_ += part.units;
    }
  }
  void AddFreePage() { ++own_free_pages_; }
  // For a run of which the window has not the first part.
  void AddRunPages(uint32_t pages) { run_pages_ += pages; }

  // Whether there is room elsewhere.
  bool Fit(HeapWindow window) const {
    uint64_t rest_units = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const Class& own = classes_[i];
      const uint64_t elsewhere = heap_.class_capacity_[own.size_class] -
                                 heap_.usage_.class_blocks[own.size_class] - own.free;
      if (own.used <= elsewhere) continue;
      const uint64_t size = layout::BlockSize(own.size_class);
      if (!PieceElsewhere(Units(size), window)) return false;
      rest_units += Units((own.used - elsewhere) * size);
    }
    const uint64_t free_pages = heap_.usage_.free_pages - own_free_pages_;
    if (run_pages_ > free_pages) return false;
    return rest_units <= heap_.usage_.left_over_bytes / kUnit - own_units_ +
                             (free_pages - run_pages_) * kPageUnits;
  }

 private:
  struct Class {
    uint32_t size_class;
    uint64_t used;
    uint64_t free;
  };

  // Few: made for each candidate, so that a table of all classes would cost more.
  Class& ClassOf(uint32_t size_class) {
    for (uint32_t i = 0; i < count_; ++i) {
      if (classes_[i].size_class == size_class) return classes_[i];
    }
    classes_[count_] = {size_class, 0, 0};
    return classes_[count_++];
  }

  bool PieceElsewhere(uint32_t units, HeapWindow window) const {
    if (heap_.usage_.free_pages > own_free_pages_ + run_pages_) return true;
    for (uint32_t least = units; least < kPageUnits;) {
      PartId id = heap_.SmallestLeftOver(least);
      if (id == kNoPart) return false;
      least = heap_.parts_[id].units + 1u;
      for (; id != kNoPart; id = heap_.parts_[id].next) {
        const uint64_t offset = heap_.PartOffset(id);
        if (offset < window.begin || offset >= window.end) return true;
      }
    }
    return false;
  }

  const PageHeap& heap_;
  std::array<Class, layout::kSizeClasses> classes_;  // the first count_ of them
  uint32_t count_ = 0;
  uint64_t own_units_ = 0;
  uint64_t own_free_pages_ = 0;
  uint64_t run_pages_ = 0;
};

bool PageHeap::IsSparse() const {
  const std::lock_guard lock(lock_);
  return LooksSparse();
}

void PageHeap::RearmSparseNotice() {
  const std::lock_guard lock(lock_);
  sparse_noted_ = false;
}

// After something has been taken that was free for all sizes.
void PageHeap::NoteTaken() {
  if (!LooksSparse()) {
    sparse_noted_ = false;
  } else if (!sparse_noted_) {
    sparse_noted_ = true;
    sparse_notice_.store(true, std::memory_order_relaxed);
  }
}

bool PageHeap::LooksSparse() const {
  const uint64_t enough = pages_.size() * layout::kPageSize / 16;
  return usage_.free_pages * layout::kPageSize + usage_.left_over_bytes < enough &&
         slab_bytes_ - slab_used_bytes_ > enough;
}

bool PageHeap::MayEmpty(uint32_t page) const {
  return round_ - pages_[page].given_up >= kGivenUpRounds;
}

// The cheapest parts in a row with `units` for the least, each row as short as it can be.
void PageHeap::ConsiderParts(uint32_t page, uint32_t units, Candidate& best) const {
  const std::vector<PartId>& parts = pages_[page].parts;
  uint32_t in_row = 0;
  uint64_t cost = 0;
  size_t first = 0;
  const auto cost_of = [this](const Part& part) {
    return part.use == Use::kSlab ? part.used * (layout::BlockSize(part.size_class) + kBlockCost)
                                  : 0;
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts_[parts[i]];
    if (part.use != Use::kSlab && part.use != Use::kLeftOver) {
      first = i + 1;
      in_row = 0;
      cost = 0;
      continue;
    }
    in_row += part.units;
    cost += cost_of(part);
    for (; in_row - parts_[parts[first]].units >= units; ++first) {
      in_row -= parts_[parts[first]].units;
      cost -= cost_of(parts_[parts[first]]);
    }
    if (in_row < units || cost >= best.cost) continue;
    const uint64_t begin = PartOffset(parts[first]);
    const HeapWindow window{begin, begin + in_row * kUnit};
    Needs needs(*this);
    for (size_t j = first; j <= i; ++j) needs.Add(parts[j]);
    if (needs.Fit(window)) best = {window, cost};
  }
}

void PageHeap::ConsiderSlabs(uint32_t page, double most_used, Candidate& best) const {
  for (const PartId id : pages_[page].parts) {
    const Part& part = parts_[id];
    if (part.use != Use::kSlab || part.used > part.blocks * most_used) continue;
    const uint64_t bytes = part.used * (layout::BlockSize(part.size_class) + kBlockCost);
    // For a thousand units that are gained.
    const uint64_t cost = bytes * 1000 / part.units;
    if (cost >= best.cost) continue;
    const uint64_t elsewhere = class_capacity_[part.size_class] -
                               usage_.class_blocks[part.size_class] - (part.blocks - part.used);
    if (part.used > elsewhere) continue;
    const uint64_t begin = PartOffset(id);
    best = {{begin, begin + part.units * kUnit}, cost};
  }
}

template <typename Consider>
HeapWindow PageHeap::IsolateBest(Consider consider) {
  Candidate best;
  for (size_t looked_at = 0; looked_at < pages_.size();) {
    const std::lock_guard lock(lock_);
    if (looked_at == 0) ++round_;
    for (size_t parts = 0; looked_at < pages_.size() && parts < kMostPartsAtOnce; ++looked_at) {
      const uint32_t page = next_page_;
      next_page_ = page + 1 < pages_.size() ? page + 1 : 0;
      parts += pages_[page].parts.size() + 1;
      if (!IsFree(page) && MayEmpty(page)) consider(page, best);
    }
    if (!best.window) continue;
    Isolate(best.window);
    return best.window;
  }
  return {};
}

HeapWindow PageHeap::IsolateParts(uint64_t bytes) {
  return IsolateBest(
      [&](uint32_t page, Candidate& best) { ConsiderParts(page, Units(bytes), best); });
}

HeapWindow PageHeap::IsolateSparsestSlab(double most_used) {
  return IsolateBest([&](uint32_t page, Candidate& best) { ConsiderSlabs(page, most_used, best); });
}

// Runs that lie in the window, if only in part, are moved as wholes; those of more than twice its
// pages stay.
bool PageHeap::PagesFit(uint32_t first, uint32_t count) const {
  Needs needs(*this);
  for (uint32_t page = first; page < first + count; ++page) {
    if (IsFree(page)) {
      needs.AddFreePage();
      continue;
    }
    for (const PartId id : pages_[page].parts) {
      needs.Add(id);
      const Part& part = parts_[id];
      if (part.use != Use::kRun) continue;
      const uint32_t run_begin = part.blocks > 0 ? page : part.used;
      const uint32_t run_pages = parts_[pages_[run_begin].parts.front()].blocks;
      if (run_pages > 2 * count) return false;
      if (page == first && run_begin != first) needs.AddRunPages(run_pages);
    }
  }
  const uint64_t begin = heap_begin_ + first * layout::kPageSize;
  return needs.Fit({begin, begin + count * layout::kPageSize});
}

HeapWindow PageHeap::IsolatePages(uint64_t bytes) {
  const auto count =
      static_cast<uint32_t>((RunBytes(bytes) + layout::kPageSize - 1) / layout::kPageSize);
  for (uint32_t begin = 0; begin < pages_.size();) {
    const std::lock_guard lock(lock_);
    if (begin == 0) ++round_;
    const HeapWindow window = CheapestPages(count, begin);
    if (!window) continue;
    Isolate(window);
    return window;
  }
  return {};
}

// The cheapest `count` pages in a row from `begin` on, among as many as are looked at at once. The
// search goes on at `begin` then.
HeapWindow PageHeap::CheapestPages(uint32_t count, uint32_t& begin) const {
  Candidate best;
  uint64_t cost = 0;
  uint32_t in_row = 0;
  uint64_t looked_at = 0;
  uint32_t page = begin;
  for (; page < pages_.size() && looked_at < kMostPagesAtOnce; ++page) {
    ++looked_at;
    const Page& last = pages_[page];
    if (last.kind == PageKind::kSegments || (!IsFree(page) && !MayEmpty(page))) {
      in_row = 0;
      cost = 0;
      continue;
    }
    cost += last.used_bytes;
    if (in_row == count) {
      cost -= pages_[page - count].used_bytes;
    } else {
      ++in_row;
    }
    if (in_row < count || cost >= best.cost) continue;
    looked_at += count;
    if (!PagesFit(page + 1 - count, count)) continue;
    const uint64_t first = heap_begin_ + (page + 1 - count) * layout::kPageSize;
    best = {{first, first + count * layout::kPageSize}, cost};
  }
  // The next row begins within the last one.
  begin = page < pages_.size() ? page - std::min(in_row, count - 1) : page;
  return best.window;
}

HeapWindow PageHeap::IsolatePage(uint64_t page) {
  const std::lock_guard lock(lock_);
  const PageKind kind = pages_.at(page).kind;
  if (kind == PageKind::kFree || kind == PageKind::kSegments) return {};
  const uint64_t begin = heap_begin_ + page * layout::kPageSize;
  const HeapWindow window{begin, begin + layout::kPageSize};
  Isolate(window);
  return window;
}

// Takes all that is in the window off the lists that blocks, slabs and runs are taken from.
void PageHeap::Isolate(HeapWindow window) {
  assert(!window_);
  window_ = window;
  free_pages_in_window_ = 0;
  for (uint32_t page = PageOf(window.begin); page <= PageOf(window.end - 1); ++page) {
    if (IsFree(page)) {
      OpenPage(page);
      UpdateKind(page);
      ++free_pages_in_window_;
    }
    for (const PartId id : pages_[page].parts) {
      if (!InWindow(id) || !parts_[id].listed) continue;
      if (parts_[id].use == Use::kSlab) {
        Remove(partial_[parts_[id].size_class], id);
      } else {
        RemoveLeftOver(id);
      }
    }
  }
}

// The window is its holder's; what others do with its parts, page by page, only empties them.
std::vector<UsedBlock> PageHeap::BlocksInWindow() const {
  std::vector<UsedBlock> found;
  for (uint32_t page = PageOf(window_.begin); page <= PageOf(window_.end - 1); ++page) {
    const std::lock_guard lock(lock_);
    for (const PartId id : pages_[page].parts) {
      if (!InWindow(id)) continue;
      const Part& part = parts_[id];
      const uint64_t begin = PartOffset(id);
      if (part.use == Use::kRun && (part.blocks > 0 || begin == window_.begin)) {
        const uint64_t first = part.blocks > 0 ? page : part.used;
        found.push_back({heap_begin_ + first * layout::kPageSize, layout::kRunClass});
      }
      if (part.use != Use::kSlab) continue;
      const uint64_t size = layout::BlockSize(part.size_class);
      for (uint32_t block = 0; block < part.blocks; ++block) {
        if ((part.bitmap[block / 64] >> (block % 64) & 1) == 0) continue;
        found.push_back({begin + block * size, part.size_class});
      }
    }
  }
  return found;
}

PageHeap::Released PageHeap::ReleaseWindow(bool in_vain) {
  const std::lock_guard lock(lock_);
  const HeapWindow window = window_;
  std::vector<PartId> parts;
  for (uint32_t page = PageOf(window.begin); page <= PageOf(window.end - 1); ++page) {
    for (const PartId id : pages_[page].parts) {
      if (InWindow(id)) parts.push_back(id);
    }
  }
  window_ = {};
  const uint64_t free_before = usage_.free_pages + free_pages_in_window_;
  bool all_free = true;
  for (const PartId id : parts) {
    const Part& part = parts_[id];
    if (part.use == Use::kLeftOver) {
      Merge(id);
    } else if (part.use == Use::kSlab && part.used == 0) {
      ReleasePart(id);
    } else {
      all_free = false;
      if (in_vain) pages_[part.page].given_up = round_;
      if (part.use == Use::kSlab && part.used < part.blocks) Push(partial_[part.size_class], id);
    }
  }
  return {all_free, usage_.free_pages > free_before ? usage_.free_pages - free_before : 0};
}

}  // namespace verbena::storage
