// The server's private data about segments: locks, counters and free overflow buckets.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/layout/bucket.h"
#include "server/storage/page_heap.h"
#include "server/storage/region.h"
#include "server/storage/stripe.h"

namespace verbena::storage {

struct alignas(64) SegmentData {
  std::array<Stripe, layout::kBuckets> stripes;
  // Bit i is set while overflow bucket i + 1 (its link) is not linked; its slots are then all 0.
  std::atomic<uint32_t> free_overflow{~uint32_t{0}};
};
static_assert(layout::kOverflowBuckets == 32);

// SegmentData by the segment's offset: an array over all places in the heap where a segment can
// lie, so that it is found by arithmetic alone and without another cache miss. Only the parts of
// real segments are ever touched; the others cost address space and nothing else.
class SegmentTable {
 public:
  // ResourceExhausted if there is no address space (5.7 % of the heap).
  static absl::StatusOr<SegmentTable> Create(const Region& region);

  SegmentTable(SegmentTable&& other) noexcept;
  SegmentTable& operator=(SegmentTable&&) = delete;
  ~SegmentTable();

  SegmentData& At(uint64_t segment_offset) const {
    const uint64_t from_begin = segment_offset - heap_begin_;
    return data_[from_begin / layout::kPageSize * kSegmentsPerPage +
                 from_begin % layout::kPageSize / layout::kSegmentSize];
  }

 private:
  SegmentTable(SegmentData* data, uint64_t bytes, uint64_t heap_begin)
      : data_(data), bytes_(bytes), heap_begin_(heap_begin) {}

  SegmentData* data_;
  uint64_t bytes_;
  uint64_t heap_begin_;
};

}  // namespace verbena::storage
