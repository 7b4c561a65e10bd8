// Size classes of blocks.
//
// Classes 0..15 are 16, 32, ... 256 bytes; then eight classes a doubling (at most 12.5 % lost) up
// to 512 KiB, which is class 103. kRunClass marks a run of whole pages, whose length is in the
// item. Codes 240..255 are reserved.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "common/layout/region_header.h"

namespace verbena::layout {

inline constexpr uint32_t kFineStep = 16;
inline constexpr uint32_t kFineClasses = 16;
inline constexpr uint32_t kClassesPerDoubling = 8;
inline constexpr uint32_t kDoublings = 11;
inline constexpr uint32_t kSizeClasses = kFineClasses + kDoublings * kClassesPerDoubling;
inline constexpr uint32_t kRunClass = 239;
inline constexpr uint64_t kMaxBlockSize = 512 * 1024;

// Bytes of a block of class `size_class` (0 to kSizeClasses - 1).
constexpr uint64_t BlockSize(uint32_t size_class) {
  if (size_class < kFineClasses) return uint64_t{size_class + 1} * kFineStep;
  const uint32_t above = size_class - kFineClasses;
  const uint64_t base = uint64_t{kFineStep} * kFineClasses << (above / kClassesPerDoubling);
  return base + base / kClassesPerDoubling * (above % kClassesPerDoubling + 1);
}
static_assert(BlockSize(0) == 16 && BlockSize(15) == 256 && BlockSize(16) == 288);
static_assert(BlockSize(23) == 512 && BlockSize(kSizeClasses - 1) == kMaxBlockSize);

// The smallest class whose blocks hold `bytes` (1 or more); kRunClass over kMaxBlockSize.
constexpr uint32_t SizeClassFor(uint64_t bytes) {
  if (bytes <= kFineStep * kFineClasses) {
    return static_cast<uint32_t>((bytes + kFineStep - 1) / kFineStep) - 1;
  }
  if (bytes > kMaxBlockSize) return kRunClass;
  // 256 < bytes: the doubling that it falls into, then the eighth of it.
  const unsigned log = 63u - static_cast<unsigned>(std::countl_zero(bytes - 1));
  const uint64_t base = uint64_t{1} << log;
  const uint64_t step = base / kClassesPerDoubling;
  return kFineClasses + (log - 8) * kClassesPerDoubling +
         static_cast<uint32_t>((bytes - base + step - 1) / step) - 1;
}
static_assert(SizeClassFor(1) == 0 && SizeClassFor(256) == 15 && SizeClassFor(257) == 16);
static_assert(SizeClassFor(288) == 16 && SizeClassFor(289) == 17 && SizeClassFor(512) == 23);
static_assert(SizeClassFor(513) == 24 && SizeClassFor(kMaxBlockSize) == kSizeClasses - 1);
static_assert(SizeClassFor(kMaxBlockSize + 1) == kRunClass);

// Whether a class code may stand in a slot.
constexpr bool IsValidClass(uint32_t size_class) {
  return size_class < kSizeClasses || size_class == kRunClass;
}

// Bytes that a reader fetches first from a block of the class: all of it, or the first 4 KiB of a
// run.
inline constexpr uint64_t kRunFirstRead = 4096;
constexpr uint64_t FirstReadSize(uint32_t size_class) {
  return size_class == kRunClass ? kRunFirstRead : BlockSize(size_class);
}

namespace internal {
// By class code; 0 for codes that may not stand in a slot.
inline constexpr auto kFirstReadSizes = [] {
  std::array<uint32_t, 256> sizes{};
  for (uint32_t code = 0; code < sizes.size(); ++code) {
    sizes[code] = IsValidClass(code) ? static_cast<uint32_t>(FirstReadSize(code)) : 0;
  }
  return sizes;
}();
}  // namespace internal

// The same of any code of a slot: 0 for one that is not valid.
constexpr uint64_t FirstReadSizeOrZero(uint32_t size_class) {
  return internal::kFirstReadSizes[size_class & 255];
}

}  // namespace verbena::layout
