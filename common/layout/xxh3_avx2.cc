// Compiled with instructions that not every processor has, so it must define nothing that the
// linker could take for other files: it includes only what has no inline functions of external
// linkage (those of xxhash.h are static).
#include "common/layout/xxh3_avx2.h"

#if !defined(__AVX2__) || XXH_VECTOR != XXH_AVX2
#error "this file is to be compiled for AVX2"
#endif

namespace verbena::layout::internal {

uint64_t Avx2Hash(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

void Avx2Update(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_64bits_update(state, data, size);
}

}  // namespace verbena::layout::internal
