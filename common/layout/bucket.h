// A bucket: 128 bytes, a header word and 15 slots. Two cache lines, one small READ.
//
// Header of a primary bucket:   63 ... 58 | 57 ...... 16 | 15 ... 0
//                               depth       prefix (42)    link
// `depth` is the local depth d of the segment; the upper d bits of `prefix` are the upper d bits of
// the hash of every key in the segment, the others are 0. `link` is 0 or 1 + the index of an
// overflow bucket in the segment's pool. An overflow bucket carries only the link.
//
// A segment is kBuckets primary buckets followed by kOverflowBuckets overflow buckets, 36 KiB in
// all. With 15 slots a bucket and uniform hashes the pool is used up at a fill of about 0.75: then
// 256 x P(Poisson(11.3) > 15) reaches 32. The segment is split then.
#pragma once

#include <array>
#include <cstdint>

#include "common/layout/key_hash.h"
#include "common/layout/slot.h"

namespace verbena::layout {

inline constexpr uint32_t kSlotsPerBucket = 15;
inline constexpr uint32_t kBucketSize = 128;
inline constexpr uint32_t kBuckets = 1u << kBucketBits;
inline constexpr uint32_t kOverflowBuckets = 32;
inline constexpr uint32_t kSegmentSize = (kBuckets + kOverflowBuckets) * kBucketSize;

struct BucketHeader {
  uint64_t bits = 0;

  static constexpr unsigned kLinkBits = 16;

  // `prefix` is KeyHash::prefix() of any key of the segment; its lower bits are dropped.
  static BucketHeader Make(unsigned depth, uint64_t prefix, uint32_t link) {
    return {(uint64_t{depth} << (kLinkBits + kPrefixBits)) |
            ((prefix & ~PrefixMask(depth)) << kLinkBits) | link};
  }

  unsigned depth() const { return static_cast<unsigned>(bits >> (kLinkBits + kPrefixBits)); }
  uint64_t prefix() const { return (bits >> kLinkBits) & ((uint64_t{1} << kPrefixBits) - 1); }
  uint32_t link() const { return static_cast<uint32_t>(bits & ((1u << kLinkBits) - 1)); }
  BucketHeader WithLink(uint32_t link) const {
    return {(bits & ~((uint64_t{1} << kLinkBits) - 1)) | link};
  }

  // Whether keys with this hash belong to the segment. False for nonsensical depths.
  bool Covers(KeyHash hash) const { return depth() <= kMaxDepth && AgreesWith(hash); }
  // The same where the depth is known to make sense.
  bool AgreesWith(KeyHash hash) const {
    constexpr unsigned kDepthBits = 64 - kLinkBits - kPrefixBits;
    static_assert(kDepthBits == 6, "so that no depth shifts by more than 63 bits");
    // The topmost `depth` bits of the prefix and of the hash. In two shifts, since there is none by
    // 64 bits.
    return ((hash.bits ^ bits << kDepthBits) >> (~depth() & 63) >> 1) == 0;
  }

  friend bool operator==(BucketHeader, BucketHeader) = default;

 private:
  // The lower bits of a prefix, which depth `depth` leaves open.
  static uint64_t PrefixMask(unsigned depth) { return (uint64_t{1} << (kPrefixBits - depth)) - 1; }
};
static_assert(6 + kPrefixBits + BucketHeader::kLinkBits == 64);

struct alignas(kBucketSize) Bucket {
  BucketHeader header;
  std::array<Slot, kSlotsPerBucket> slots;
};
static_assert(sizeof(Bucket) == kBucketSize);

// Offset of primary bucket `index` in its segment, and of the overflow bucket that `link` names
// (1 to kOverflowBuckets).
constexpr uint64_t BucketOffset(uint32_t index) { return uint64_t{index} * kBucketSize; }
constexpr uint64_t OverflowOffset(uint32_t link) {
  return uint64_t{kBuckets + link - 1} * kBucketSize;
}

}  // namespace verbena::layout
