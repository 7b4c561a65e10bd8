// How the parts of an item are put together and copied. Part of the Store's implementation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/base/relaxed_copy.h"
#include "common/layout/body_hash.h"
#include "common/layout/item.h"

namespace verbena::storage {

// Where the key lies in a block, and behind it the value.
inline constexpr uint64_t kBodyOffset = sizeof(layout::ItemHeader);

inline const char* AsChars(const uint8_t* bytes) { return reinterpret_cast<const char*>(bytes); }

inline layout::ItemHeader MakeHeader(uint64_t version, size_t key_len, uint64_t value_len,
                                     uint16_t flags) {
  return {.check = 0,
          .version = version,
          .value_len = static_cast<uint32_t>(value_len),
          .key_len = static_cast<uint16_t>(key_len),
          .flags = flags};
}

// Stores a header but for `check`. The rest of it is two words.
inline void StoreHeader(uint8_t* block, const layout::ItemHeader& header) {
  constexpr size_t kCheckSize = sizeof(header.check);
  CopyToShared(block + kCheckSize, reinterpret_cast<const uint8_t*>(&header) + kCheckSize,
               sizeof(header) - kCheckSize);
}

// BodyCheck of two parts that do not lie one behind the other.
inline uint64_t BodyCheckOfParts(std::span<const uint8_t> front, std::span<const uint8_t> rest,
                                 uint64_t seed) {
  std::array<uint8_t, 256> together;
  if (front.size() + rest.size() <= together.size()) {
    uint8_t* const end = std::copy(front.begin(), front.end(), together.data());
    std::copy(rest.begin(), rest.end(), end);
    return layout::BodyCheck(together.data(), front.size() + rest.size(), seed);
  }
  layout::BodyHash hash(seed);
  hash.Add(front);
  hash.Add(rest);
  return hash.Check();
}

// Copies between two blocks, both of which others may read and the first of which others may write
// meanwhile: then the copy is worthless, and the caller finds that out.
inline void CopyShared(uint8_t* target, const uint8_t* source, uint64_t size) {
  alignas(8) std::array<uint8_t, 1024> piece;
  while (size > 0) {
    const uint64_t n = std::min<uint64_t>(size, piece.size());
    CopyFromShared(piece.data(), source, n);
    CopyToShared(target, piece.data(), n);
    target += n;
    source += n;
    size -= n;
  }
}

}  // namespace verbena::storage
