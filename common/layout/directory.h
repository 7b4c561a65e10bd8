// The directory: 2^D words of 8 bytes, which lead from the top D bits of a hash to its segment.
//
//   63 ... 58 | 57 .. 44 | 43 ............ 0
//   depth       0          offset / 16
//
// A segment of local depth d stands in 2^(D-d) consecutive entries. D is fixed at start-up; no
// entry is ever 0 after the region is published.
#pragma once

#include <bit>
#include <cstdint>

#include "common/layout/slot.h"

namespace verbena::layout {

struct DirectoryEntry {
  uint64_t bits = 0;

  static constexpr unsigned kDepthShift = 58;

  static DirectoryEntry Make(uint64_t segment_offset, unsigned depth) {
    return {(uint64_t{depth} << kDepthShift) | (segment_offset / kOffsetUnit)};
  }
  unsigned depth() const { return static_cast<unsigned>(bits >> kDepthShift); }
  // Offset of the segment from the slice's base, in bytes.
  uint64_t segment_offset() const {
    return (bits & ((uint64_t{1} << kSlotOffsetBits) - 1)) * kOffsetUnit;
  }

  friend bool operator==(DirectoryEntry, DirectoryEntry) = default;
};
static_assert(sizeof(DirectoryEntry) == 8);

// Clients READ the directory in pieces of this many bytes.
inline constexpr uint64_t kDirectoryPageSize = 4096;
inline constexpr uint64_t kEntriesPerDirectoryPage = kDirectoryPageSize / sizeof(DirectoryEntry);

// D for a slice: one entry per 16 KiB, rounded up to a power of two, and at least a page of them
// (0.05 to 0.1 % of the slice).
constexpr unsigned DirectoryDepthFor(uint64_t slice_size) {
  const uint64_t entries = std::bit_ceil((slice_size + 16 * 1024 - 1) / (16 * 1024));
  const uint64_t least = kEntriesPerDirectoryPage;
  return static_cast<unsigned>(std::countr_zero(entries < least ? least : entries));
}

}  // namespace verbena::layout
