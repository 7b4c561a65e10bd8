#include "common/layout/xxh3.h"

#include "common/layout/xxh3_avx2.h"
#include "common/layout/xxh3_avx512.h"

namespace verbena::layout::internal {
namespace {

uint64_t Hash(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

void Update(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_64bits_update(state, data, size);
}

constexpr LongHash kPortable = {&Hash, &Update};
#ifdef VERBENA_XXH3_AVX
constexpr LongHash kAvx2 = {&Avx2Hash, &Avx2Update};
constexpr LongHash kAvx512 = {&Avx512Hash, &Avx512Update};
#endif

}  // namespace

constinit std::atomic<const LongHash*> g_long_hash{nullptr};

const LongHash& PortableLongHash() { return kPortable; }

const LongHash* Avx2LongHash() {
#ifdef VERBENA_XXH3_AVX
  if (__builtin_cpu_supports("avx2")) return &kAvx2;
#endif
  return nullptr;
}

// The first processors with AVX-512 lower their frequency, for all that runs on them; those that
// have VBMI2 too hardly do.
const LongHash* Avx512LongHash() {
#ifdef VERBENA_XXH3_AVX
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vbmi2")) return &kAvx512;
#endif
  return nullptr;
}

// Several threads may do this at once: all come to the same, and the variants are constants.
const LongHash& ChooseLongHash() {
  const LongHash* best = Avx512LongHash();
  if (best == nullptr) best = Avx2LongHash();
  if (best == nullptr) best = &kPortable;
  g_long_hash.store(best, std::memory_order_relaxed);
  return *best;
}

}  // namespace verbena::layout::internal
