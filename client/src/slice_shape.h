// What a client knows of the slice it reads: where its parts are and how far they reach.
//
// Everything that is read from remote memory (offsets, classes, lengths) is checked against this
// before it is used, so that a damaged or hostile slice costs an error and nothing else.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/layout/bucket.h"
#include "common/layout/directory.h"
#include "common/layout/region_header.h"
#include "common/layout/size_class.h"
#include "common/layout/slot.h"

namespace verbena::client {

// A value type. The positions are checked: see FromHeader.
struct SliceShape {
  uint64_t size = 0;
  uint64_t epoch = 0;
  uint64_t hash_seed = 0;
  uint64_t directory_offset = 0;
  unsigned directory_depth = 0;
  uint64_t heap_begin = 0;
  uint64_t heap_end = 0;
  // Longest item that the server's limits allow; bounds what is read of a run.
  uint64_t max_item_size = 0;

  // Checks `header`, the first bytes of a slice whose size and epoch the server has named.
  // FailedPrecondition for another layout version, DataLoss for contradictions; both name the
  // value.
  static absl::StatusOr<SliceShape> FromHeader(const layout::RegionHeader& header, uint64_t size,
                                               uint64_t epoch, uint64_t max_item_size);

  friend bool operator==(const SliceShape&, const SliceShape&) = default;

  uint64_t directory_size() const { return sizeof(layout::DirectoryEntry) << directory_depth; }

  // Whether `length` bytes (1 or more) at `offset` lie in the heap.
  bool InHeap(uint64_t offset, uint64_t length) const {
    return offset >= heap_begin && offset < heap_end && length <= heap_end - offset;
  }
  bool IsSegment(uint64_t offset) const { return InHeap(offset, layout::kSegmentSize); }

  // Bytes to read first of the block that `slot` names, 0 if it names none that can be.
  uint64_t FirstRead(layout::Slot slot) const {
    const uint64_t length = layout::FirstReadSizeOrZero(slot.size_class());
    return length != 0 && InHeap(slot.offset(), length) ? length : 0;
  }
};

}  // namespace verbena::client
