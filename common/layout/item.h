// An item: key and value in one block, self-verifying.
//
//   0   u64 check      0 = not valid
//   8   u64 version    grows with every change of the key
//   16  u32 value_len
//   20  u16 key_len    1 to kMaxKeySize
//   22  u16 flags      kept and given back, no meaning yet
//   24  key, value
//
// check = XXH3(version, lengths and flags, block offset; seed) XOR XXH3(key and value; seed), and 1
// where that is 0. The offset makes bytes that were copied elsewhere invalid; the XOR lets a move
// or a new version recompute the check without hashing the value again. A reader accepts an item
// only if the check matches, the key equals the one asked for and the lengths fit the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/layout/key_hash.h"
#include "common/layout/size_class.h"
#include "common/layout/xxh3.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace verbena::layout {

inline constexpr uint32_t kMaxKeySize =
    4096 - 24;  // the header and key of a run fit its first READ
inline constexpr uint64_t kMaxValueSize = uint64_t{1} << 30;

struct ItemHeader {
  uint64_t check;
  uint64_t version;
  uint32_t value_len;
  uint16_t key_len;
  uint16_t flags;

  uint64_t size() const { return sizeof(ItemHeader) + key_len + uint64_t{value_len}; }
};
static_assert(sizeof(ItemHeader) == 24);

// Bytes of an item, header included.
constexpr uint64_t ItemSize(uint64_t key_len, uint64_t value_len) {
  return sizeof(ItemHeader) + key_len + value_len;
}

// The part of the check that depends on the header and the block's place (not on `header.check`).
// `seed` is the slice's, here and below: the number, or a SeededXxh3.
template <typename Seed>
uint64_t HeaderCheck(const ItemHeader& header, uint64_t block_offset, const Seed& seed) {
  const uint64_t lengths_and_flags =
      header.value_len | uint64_t{header.key_len} << 32 | uint64_t{header.flags} << 48;
  return Xxh3OfWords(header.version, lengths_and_flags, block_offset, seed);
}

// The part of the check that depends on key and value, which lie one behind the other at `body`.
template <typename Seed>
[[gnu::always_inline]] inline uint64_t BodyCheck(const void* body, uint64_t size,
                                                 const Seed& seed) {
  return Xxh3(body, size, seed);
}

// Of the XOR of both parts: 0 is not a check.
inline uint64_t CheckOfHashes(uint64_t hashes) { return hashes == 0 ? 1 : hashes; }

inline uint64_t CombineChecks(uint64_t header_check, uint64_t body_check) {
  return CheckOfHashes(header_check ^ body_check);
}

// Whether two keys of `size` bytes are equal. Keys of common lengths are compared here by a few
// overlapping words: this runs for every lookup, and a call costs more than it does.
inline bool SameKey(const void* a, const void* b, size_t size) {
  if (size < 8 || size > 32) return std::memcmp(a, b, size) == 0;
  const auto differ = [a, b](size_t at) {
    uint64_t left;
    uint64_t right;
    std::memcpy(&left, static_cast<const char*>(a) + at, sizeof(left));
    std::memcpy(&right, static_cast<const char*>(b) + at, sizeof(right));
    return left ^ right;
  };
  uint64_t difference = differ(0) | differ(size - 8);
  if (size > 16) difference |= differ(8) | differ(size - 16);
  return difference == 0;
}

#if defined(__SSE2__)
// Keys of 16 to 32 bytes, as SameKey.
[[gnu::always_inline]] inline bool SameMiddlingKey(const void* a, const void* b, size_t size) {
  const auto equal = [a, b](size_t at) {
    return _mm_cmpeq_epi8(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(a) + at)),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(b) + at)));
  };
  return _mm_movemask_epi8(_mm_and_si128(equal(0), equal(size - 16))) == 0xffff;
}
#else
inline bool SameMiddlingKey(const void* a, const void* b, size_t size) {
  return SameKey(a, b, size);
}
#endif

// Whether `block`, a private copy of `size` bytes that were read from `block_offset`, is a whole
// and valid item of `key`, which has 1 to kMaxKeySize bytes; if so, `*value` is its value, in the
// block, and `*version` its version. What a GET pays for every item that it finds, so it is inline,
// and takes the header as the three words that it is: little-endian, as the layout is.
template <typename Seed>
[[gnu::always_inline]] inline bool TakeItemOf(const uint8_t* block, uint64_t size,
                                              uint64_t block_offset, std::string_view key,
                                              const Seed& seed, std::string_view* value,
                                              uint64_t* version) {
  static_assert(offsetof(ItemHeader, version) == 8 && offsetof(ItemHeader, value_len) == 16 &&
                offsetof(ItemHeader, key_len) == 20);
  if (size < sizeof(ItemHeader)) return false;
  uint16_t key_size;
  std::memcpy(&key_size, block + 20, sizeof(key_size));
  if (key_size != key.size()) return false;
  uint64_t lengths_and_flags;
  std::memcpy(&lengths_and_flags, block + 16, sizeof(lengths_and_flags));
  const uint64_t value_size = static_cast<uint32_t>(lengths_and_flags);
  const uint64_t body_size = key.size() + value_size;
  const uint8_t* const body = block + sizeof(ItemHeader);
  if (body_size > size - sizeof(ItemHeader)) return false;
  if (key.size() >= 16 && key.size() <= 32) [[likely]] {
    if (!SameMiddlingKey(body, key.data(), key.size())) return false;
  } else if (!SameKey(body, key.data(), key.size())) {
    return false;
  }
  uint64_t item_version;
  std::memcpy(&item_version, block + 8, sizeof(item_version));
  const uint64_t hashes =
      Xxh3OfWordsXorXxh3(item_version, lengths_and_flags, block_offset, body, body_size, seed);
  uint64_t check;
  std::memcpy(&check, block, sizeof(check));
  if ((check != hashes || check == 0) && check != CheckOfHashes(hashes)) [[unlikely]]
    return false;
  *value = {reinterpret_cast<const char*>(body) + key.size(), value_size};
  *version = item_version;
  return true;
}

template <typename Seed>
bool IsItemOf(const uint8_t* block, uint64_t size, uint64_t block_offset, std::string_view key,
              const Seed& seed) {
  std::string_view value;
  uint64_t version;
  return TakeItemOf(block, size, block_offset, key, seed, &value, &version);
}

// Verdict on a private copy of a block.
enum class ItemState {
  kAccepted,  // valid, and holds the key
  kInvalid,   // being changed, torn, or not an item: no evidence of anything
  kOtherKey,  // valid, but of another key: no evidence of anything either
};

// Judges `block`, a private copy of `size` bytes that were read from `block_offset`. `*item_size`
// is set to the bytes that the item claims wherever its lengths are sane; more than `size` means
// that the rest of a run has to be read first (the verdict is then kInvalid, or kOtherKey if the
// key already differs).
template <typename Seed>
ItemState JudgeItem(const uint8_t* block, uint64_t size, uint64_t block_offset,
                    std::string_view key, const Seed& seed, uint64_t* item_size) {
  *item_size = 0;
  ItemHeader header;
  if (size < sizeof(header)) return ItemState::kInvalid;
  std::memcpy(&header, block, sizeof(header));
  if (header.check == 0 || header.key_len == 0 || header.key_len > kMaxKeySize ||
      header.value_len > kMaxValueSize) {
    return ItemState::kInvalid;
  }
  *item_size = header.size();
  const bool same_key = header.key_len == key.size() && sizeof(header) + key.size() <= size &&
                        SameKey(block + sizeof(header), key.data(), key.size());
  if (*item_size > size) return same_key ? ItemState::kInvalid : ItemState::kOtherKey;
  if (!same_key) return ItemState::kOtherKey;
  return IsItemOf(block, size, block_offset, key, seed) ? ItemState::kAccepted
                                                        : ItemState::kInvalid;
}

}  // namespace verbena::layout
