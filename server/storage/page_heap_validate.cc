// PageHeap: the check of all bookkeeping.
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "server/storage/page_heap.h"

namespace verbena::storage {
namespace {

absl::Status Wrong(uint32_t page, absl::string_view what) {
  return absl::InternalError(absl::StrCat("heap page ", page, ": ", what));
}

}  // namespace

absl::Status PageHeap::ValidatePart(PartId id) const {
  const Part& checked = parts_[id];
  const bool should_list =
      !InWindow(id) && (checked.use == Use::kLeftOver ||
                        (checked.use == Use::kSlab && checked.used < checked.blocks));
  if (checked.listed != should_list) return Wrong(checked.page, "on a list or not, wrongly");
  if (checked.use != Use::kSlab) return absl::OkStatus();
  if (checked.blocks != checked.units * kUnit / layout::BlockSize(checked.size_class)) {
    return Wrong(checked.page, "number of blocks");
  }
  uint32_t used = 0;
  for (uint32_t block = 0; block < checked.blocks; ++block) {
    const bool set = (checked.bitmap[block / 64] >> (block % 64) & 1) != 0;
    if (!set && block / 64 < checked.first_word) {
      return Wrong(checked.page, "free block before first_word");
    }
    used += set ? 1 : 0;
  }
  if (used != checked.used || (used == 0 && !InWindow(id))) {
    return Wrong(checked.page, "used blocks and bitmap differ");
  }
  return absl::OkStatus();
}

absl::Status PageHeap::ValidatePage(uint32_t page) const {
  const Page& checked = pages_[page];
  if (IsFree(page) != (checked.kind == PageKind::kFree)) {
    return Wrong(page, "kind and bitmap differ");
  }
  if (IsFree(page) != checked.parts.empty()) return Wrong(page, "free with parts, or none in use");
  uint32_t next = 0;
  uint64_t used_bytes = 0;
  bool left_over = false;
  for (const PartId id : checked.parts) {
    const Part& part = parts_[id];
    if (part.page != page || part.begin != next || part.units == 0) {
      return Wrong(page, "parts do not meet");
    }
    next += part.units;
    if (left_over && part.listed && part.use == Use::kLeftOver) {
      return Wrong(page, "left-over parts that meet are two");
    }
    left_over = part.use == Use::kLeftOver && part.listed;
    if (part.use == Use::kSlab) used_bytes += part.used * layout::BlockSize(part.size_class);
    if (part.use == Use::kRun) used_bytes += part.units * kUnit;
    VERBENA_RETURN_IF_ERROR(ValidatePart(id));
  }
  if (!IsFree(page) && next != kPageUnits) return Wrong(page, "parts are not the whole page");
  return used_bytes == checked.used_bytes ? absl::OkStatus() : Wrong(page, "bytes in use");
}

absl::Status PageHeap::Validate() const {
  const std::lock_guard lock(lock_);
  HeapUsage found;
  std::array<uint64_t, layout::kSizeClasses> capacity{};
  uint64_t slab_bytes = 0;
  uint64_t slab_used_bytes = 0;
  found.pages = pages_.size();
  for (uint32_t page = 0; page < pages_.size(); ++page) {
    VERBENA_RETURN_IF_ERROR(ValidatePage(page));
    const PageKind kind = pages_[page].kind;
    found.free_pages += kind == PageKind::kFree ? 1 : 0;
    found.segment_pages += kind == PageKind::kSegments ? 1 : 0;
    found.run_pages += kind == PageKind::kRun ? 1 : 0;
    found.slab_pages += kind == PageKind::kSlab ? 1 : 0;
    for (const PartId id : pages_[page].parts) {
      const Part& part = parts_[id];
      if (part.use == Use::kLeftOver && part.listed) found.left_over_bytes += part.units * kUnit;
      if (part.use != Use::kSlab) continue;
      found.class_bytes[part.size_class] += part.units * kUnit;
      found.class_blocks[part.size_class] += part.used;
      capacity[part.size_class] += part.blocks;
      slab_bytes += part.units * kUnit;
      slab_used_bytes += part.used * layout::BlockSize(part.size_class);
    }
  }
  if (found.free_pages != usage_.free_pages || found.segment_pages != usage_.segment_pages ||
      found.run_pages != usage_.run_pages || found.slab_pages != usage_.slab_pages ||
      found.left_over_bytes != usage_.left_over_bytes || found.class_bytes != usage_.class_bytes ||
      found.class_blocks != usage_.class_blocks || capacity != class_capacity_ ||
      slab_bytes != slab_bytes_ || slab_used_bytes != slab_used_bytes_) {
    return absl::InternalError("heap: the counts of pages, bytes or blocks are wrong");
  }
  return absl::OkStatus();
}

}  // namespace verbena::storage
