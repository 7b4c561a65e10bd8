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

namespace verbena::client {

#ifdef VERBENA_MATCH_SSE2
namespace internal {
// Two aligned words of memory that others may write.
inline __m128 LoadTwoWords(const void* words) {
  __m128 loaded;
  asm("movaps %1, %0" : "=x"(loaded) : "m"(*static_cast<const char(*)[16]>(words)));
  return loaded;
}
}  // namespace internal
#endif

// Bit i is set if slot i of `bucket` has the fingerprint. An empty slot counts as fingerprint 0:
// who looks for that one must skip the empty slots. Others may change `bucket` meanwhile: each slot
// is then judged as it was at some time.
inline uint32_t MatchSlots(const layout::Bucket& bucket, uint32_t fingerprint) {
  constexpr int kWords = layout::kBucketSize / 8;
  static_assert(kWords == 16 && layout::kSlotsPerBucket == kWords - 1);
#ifdef VERBENA_MATCH_SSE2
  // A fingerprint is the top 12 bits of the upper half of a word. Four words give four upper
  // halves in one register; the header goes along and is masked out at the end.
  const auto* words = reinterpret_cast<const char*>(&bucket);
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(fingerprint));
  __m128i equal[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m128 low = internal::LoadTwoWords(words + 32 * i);
    const __m128 high = internal::LoadTwoWords(words + 32 * i + 16);
    const __m128i upper = _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
    equal[i] = _mm_cmpeq_epi32(_mm_srli_epi32(upper, 20), wanted);
  }
  const __m128i bytes =
      _mm_packs_epi16(_mm_packs_epi32(equal[0], equal[1]), _mm_packs_epi32(equal[2], equal[3]));
  return static_cast<uint32_t>(_mm_movemask_epi8(bytes)) >> 1;
#else
  uint32_t mask = 0;
  for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
    const layout::Slot slot{LoadRelaxed(&bucket.slots[i].bits)};
    mask |= uint32_t{slot.fingerprint() == fingerprint} << i;
  }
  return mask;
#endif
}

}  // namespace verbena::client
