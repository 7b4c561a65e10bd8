// The first 4 KiB of a slice. Clients READ it once, and its epoch as a sign of life.
//
// Everything in the layout is little-endian and positions are byte offsets from the slice's base.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace verbena::layout {

static_assert(std::endian::native == std::endian::little,
              "the layout is little-endian and read in place");

inline constexpr uint64_t kRegionMagic = 0x31616e6562726556;  // "Verbena1"
inline constexpr uint16_t kLayoutVersion = 1;
inline constexpr uint64_t kRegionHeaderSize = 4096;
// The heap is given out in pages of this size.
inline constexpr uint64_t kPageSize = 1024 * 1024;

struct RegionHeader {
  uint64_t magic;             // kRegionMagic
  uint64_t layout_version;    // kLayoutVersion
  uint64_t epoch;             // random for each start of the server, never 0
  uint64_t hash_seed;         // of KeyHash and of the items' checks
  uint64_t slice_size;        // bytes
  uint64_t directory_offset;  // bytes, a multiple of kDirectoryPageSize
  uint64_t directory_depth;   // D
  uint64_t heap_begin;        // bytes, a multiple of kPageSize
  uint64_t heap_end;          // bytes, a multiple of kPageSize
};
static_assert(sizeof(RegionHeader) <= kRegionHeaderSize);
static_assert(offsetof(RegionHeader, epoch) == 16, "clients READ the epoch by itself");

}  // namespace verbena::layout
