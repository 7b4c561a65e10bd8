// A slot: one 8-byte word that leads from a bucket to an item.
//
//   63 ..... 52 | 51 .... 44 | 43 ................ 0
//   fingerprint   size class   offset / 16 (never 0)
//
// 0 is an empty slot. Written with one aligned release store, so a reader sees a whole slot.
#pragma once

#include <cstdint>

#include "common/layout/key_hash.h"

namespace verbena::layout {

// Offsets of blocks, segments and pages are multiples of this.
inline constexpr uint64_t kOffsetUnit = 16;
inline constexpr unsigned kOffsetShift = 4;
static_assert(uint64_t{1} << kOffsetShift == kOffsetUnit);
inline constexpr unsigned kSlotOffsetBits = 44;
inline constexpr unsigned kSlotClassBits = 8;
// One past the largest offset that a slot can name: 256 TiB.
inline constexpr uint64_t kMaxSliceSize = kOffsetUnit << kSlotOffsetBits;

struct Slot {
  uint64_t bits = 0;

  static Slot Make(uint32_t fingerprint, uint32_t size_class, uint64_t offset) {
    return {(uint64_t{fingerprint} << (kSlotOffsetBits + kSlotClassBits)) |
            (uint64_t{size_class} << kSlotOffsetBits) | (offset / kOffsetUnit)};
  }

  bool empty() const { return bits == 0; }
  uint32_t fingerprint() const {
    return static_cast<uint32_t>(bits >> (kSlotOffsetBits + kSlotClassBits));
  }
  uint32_t size_class() const {
    return static_cast<uint32_t>(bits >> kSlotOffsetBits) & ((1u << kSlotClassBits) - 1);
  }
  // Offset of the block from the slice's base, in bytes.
  uint64_t offset() const {
    // The same as a mask and a product, in fewer instructions.
    return bits << (64 - kSlotOffsetBits) >> (64 - kSlotOffsetBits - kOffsetShift);
  }

  friend bool operator==(Slot, Slot) = default;
};
static_assert(sizeof(Slot) == 8);
static_assert(kFingerprintBits + kSlotClassBits + kSlotOffsetBits == 64);

}  // namespace verbena::layout
