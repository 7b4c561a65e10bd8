// Which slots of a bucket carry a fingerprint.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/layout/bucket.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace verbena::client {

// Bit i is set if slot i of `bucket` has the fingerprint. An empty slot counts as fingerprint 0:
// who looks for that one must skip the empty slots. `bucket` is private memory.
inline uint32_t MatchSlots(const layout::Bucket& bucket, uint32_t fingerprint) {
  constexpr int kWords = layout::kBucketSize / 8;
  static_assert(kWords == 16 && layout::kSlotsPerBucket == kWords - 1);
#if defined(__SSE2__)
  // A fingerprint is the top 12 bits of the upper half of a word. Four words give four upper
  // halves in one register; the header goes along and is masked out at the end.
  const auto* words = reinterpret_cast<const float*>(&bucket);
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(fingerprint));
  __m128i equal[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m128 low = _mm_load_ps(words + 8 * i);
    const __m128 high = _mm_load_ps(words + 8 * i + 4);
    const __m128i upper = _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
    equal[i] = _mm_cmpeq_epi32(_mm_srli_epi32(upper, 20), wanted);
  }
  const __m128i bytes =
      _mm_packs_epi16(_mm_packs_epi32(equal[0], equal[1]), _mm_packs_epi32(equal[2], equal[3]));
  return static_cast<uint32_t>(_mm_movemask_epi8(bytes)) >> 1;
#else
  uint32_t mask = 0;
  for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
    mask |= uint32_t{bucket.slots[i].fingerprint() == fingerprint} << i;
  }
  return mask;
#endif
}

}  // namespace verbena::client
