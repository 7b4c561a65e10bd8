// How one-sided operations move bytes: from or to memory that the target's threads use at the same
// time. Aligned 8-byte words are never torn; nothing is promised about the order of words, as on
// an adapter. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/relaxed_copy.h"
#include "common/softverbs/switches.h"

// Copies in assembler are invisible to the language and to sanitizers, and as fast as memcpy.
#if defined(__x86_64__) && !defined(VERBENA_TSAN)
#define VERBENA_SOFT_ASM_COPY 1
#endif

namespace verbena::softverbs {

inline constexpr size_t kCacheLine = 64;

namespace internal {
extern std::atomic<bool> g_hostile_reads;
void HostileReadCopy(void* target, const void* source, size_t size);
}  // namespace internal

// Makes READs obey `switches` from now on. Called by SetSwitches.
void ConfigureReadCopy(const Switches& switches);

#ifdef VERBENA_SOFT_ASM_COPY
// From here on `rep movsb` beats a loop of 16-byte moves.
inline constexpr size_t kStringMoveBytes = 4096;

inline void StringMove(void* target, const void* source, size_t size) {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(size) : : "memory");
}

// 64 bytes at once: all loads are issued before the first store, so that misses overlap.
inline void MoveLine(char* to, const char* from) {
  asm volatile(
      "movdqu (%1), %%xmm0\n\tmovdqu 16(%1), %%xmm1\n\t"
      "movdqu 32(%1), %%xmm2\n\tmovdqu 48(%1), %%xmm3\n\t"
      "movdqu %%xmm0, (%0)\n\tmovdqu %%xmm1, 16(%0)\n\t"
      "movdqu %%xmm2, 32(%0)\n\tmovdqu %%xmm3, 48(%0)"
      :
      : "r"(to), "r"(from)
      : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
}

inline bool MoveBytesFast(void** target, const void** source, size_t* size) {
  if (*size >= kStringMoveBytes) {
    StringMove(*target, *source, *size);
    return true;
  }
  auto* to = static_cast<char*>(*target);
  const auto* from = static_cast<const char*>(*source);
  for (; *size >= kCacheLine; *size -= kCacheLine, to += kCacheLine, from += kCacheLine) {
    MoveLine(to, from);
  }
  *target = to;
  *source = from;
  return *size == 0;
}
#else
inline bool MoveBytesFast(void**, const void**, size_t*) { return false; }
#endif

// Copies `size` bytes of the target's memory into the initiator's.
inline void ReadCopy(void* target, const void* source, size_t size) {
  if (internal::g_hostile_reads.load(std::memory_order_relaxed)) [[unlikely]] {
    internal::HostileReadCopy(target, source, size);
    return;
  }
  // Assembler moves need no alignment for 8-byte words to stay whole if the source is aligned.
  if ((reinterpret_cast<uintptr_t>(source) & 7) == 0 && MoveBytesFast(&target, &source, &size)) {
    return;
  }
  CopyFromShared(target, source, size);
}

// Copies `size` bytes of the initiator's memory into the target's, in ascending order.
inline void WriteCopy(void* target, const void* source, size_t size) {
  if ((reinterpret_cast<uintptr_t>(target) & 7) == 0 && MoveBytesFast(&target, &source, &size)) {
    return;
  }
  CopyToShared(target, source, size);
}

}  // namespace verbena::softverbs
