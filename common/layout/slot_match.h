// Which slots of a bucket carry a fingerprint.
#pragma once

#include <cstdint>

#include "common/base/relaxed_copy.h"
#include "common/layout/bucket.h"

// Loads in assembler are invisible to the language and to sanitizers, and never tear a word.
#if defined(__SSE2__) && !defined(VERBENA_TSAN)
#define VERBENA_MATCH_SSE2 1
#include <emmintrin.h>
#endif

namespace verbena::layout {

#ifdef VERBENA_MATCH_SSE2
namespace internal {
// The upper halves of four words, in memory at a multiple of 16 that others may write.
[[gnu::always_inline]] inline __m128i LoadUpperHalves(const char* words) {
  __m128 halves;
  asm("movaps %1, %0\n\tshufps $0xdd, %2, %0"
      : "=&x"(halves)
      : "m"(*reinterpret_cast<const char(*)[16]>(words)),
        "m"(*reinterpret_cast<const char(*)[16]>(words + 16)));
  return _mm_castps_si128(halves);
}
}  // namespace internal
#endif

// Bit 1 + i is set if slot i of `bucket`, which is its word 1 + i, has the fingerprint; bit 0 means
// nothing. An empty slot counts as fingerprint 0: who looks for that one must skip the empty slots.
// Others may change `bucket` meanwhile: each slot is then judged as it was at some time.
inline uint32_t MatchWords(const Bucket& bucket, uint32_t fingerprint) {
  constexpr int kWords = kBucketSize / 8;
  static_assert(kWords == 16 && kSlotsPerBucket == kWords - 1);
#ifdef VERBENA_MATCH_SSE2
  // A fingerprint is the top 12 bits of the upper half of a word. Four words give the fingerprints
  // of four in one register, eight of which are compared at once; the header goes along.
  const auto* words = reinterpret_cast<const char*>(&bucket);
  const auto four = [words](int i) {
    return _mm_srli_epi32(internal::LoadUpperHalves(words + 32 * i), 20);
  };
  const __m128i wanted = _mm_set1_epi16(static_cast<int16_t>(fingerprint));
  const __m128i bytes = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_packs_epi32(four(0), four(1)), wanted),
                                        _mm_cmpeq_epi16(_mm_packs_epi32(four(2), four(3)), wanted));
  return static_cast<uint32_t>(_mm_movemask_epi8(bytes));
#else
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kSlotsPerBucket; ++i) {
    const Slot slot{LoadRelaxed(&bucket.slots[i].bits)};
    mask |= uint32_t{slot.fingerprint() == fingerprint} << (1 + i);
  }
  return mask;
#endif
}

// The same with bit i for slot i.
inline uint32_t MatchSlots(const Bucket& bucket, uint32_t fingerprint) {
  return MatchWords(bucket, fingerprint) >> 1;
}

}  // namespace verbena::layout
