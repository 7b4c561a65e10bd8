// How a key's hash is cut into the coordinates of the index.
//
//   63 ........ 22 | 21 ... 20 | 19 ...... 8 | 7 .... 0
//   prefix (42)      unused      fingerprint   bucket
//
// The top D bits (D: the directory's depth, at most 42) choose the directory entry, the lowest 8
// the bucket of the segment, the next 12 are the slot's fingerprint. The parts do not overlap, so
// that a fingerprint says something that its bucket and segment do not already say.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/layout/xxh3.h"

namespace verbena::layout {

inline constexpr unsigned kBucketBits = 8;
inline constexpr unsigned kFingerprintBits = 12;
inline constexpr unsigned kPrefixBits = 42;
inline constexpr unsigned kMaxDepth = kPrefixBits;

// The hash of a key in a slice: XXH3-64 with the slice's seed (RegionHeader::hash_seed).
struct KeyHash {
  uint64_t bits = 0;

  // `seed`: the number, or a SeededXxh3.
  template <typename Seed>
  static KeyHash Of(std::string_view key, const Seed& seed) {
    return {Xxh3(key.data(), key.size(), seed)};
  }

  // Index of the directory entry of a directory of depth `depth`.
  uint64_t directory_index(unsigned depth) const { return depth == 0 ? 0 : bits >> (64 - depth); }
  // Index of the bucket in its segment.
  uint32_t bucket() const { return static_cast<uint32_t>(bits & ((1u << kBucketBits) - 1)); }
  uint32_t fingerprint() const {
    return static_cast<uint32_t>(bits >> kBucketBits) & ((1u << kFingerprintBits) - 1);
  }
  // The top 42 bits.
  uint64_t prefix() const { return bits >> (64 - kPrefixBits); }

  friend bool operator==(KeyHash, KeyHash) = default;
};

}  // namespace verbena::layout
