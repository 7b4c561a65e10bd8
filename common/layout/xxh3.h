// XXH3-64 with a seed, as fast as this processor allows.
//
// What is short is hashed inline. From 241 bytes on a vectorized loop does it, of which there are
// variants for the instructions that every processor has and for AVX2; which one is taken is
// decided when the first long input is met. The results are the same. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace verbena::layout {
namespace internal {

// One variant of the loops for long inputs.
struct LongHash {
  uint64_t (*hash)(const void* data, size_t size, uint64_t seed);
  // Adds to a hash that is worked out piece by piece.
  void (*update)(XXH3_state_t* state, const void* data, size_t size);
};

// For every processor.
const LongHash& PortableLongHash();
// nullptr if this processor does not have AVX2, or nobody's does.
const LongHash* Avx2LongHash();

// The best one for this processor, nullptr as long as nobody has asked for it.
extern std::atomic<const LongHash*> g_long_hash;
const LongHash& ChooseLongHash();
inline const LongHash& BestLongHash() {
  const LongHash* const chosen = g_long_hash.load(std::memory_order_relaxed);
  return chosen != nullptr ? *chosen : ChooseLongHash();
}

}  // namespace internal

inline uint64_t Xxh3(const void* data, size_t size, uint64_t seed) {
  if (size <= XXH3_MIDSIZE_MAX) return XXH3_64bits_withSeed(data, size, seed);
  return internal::BestLongHash().hash(data, size, seed);
}

}  // namespace verbena::layout
