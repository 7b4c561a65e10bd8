// The loops of xxh3.h compiled for AVX2, for xxh3.cc and tests only.
#pragma once

#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace verbena::layout::internal {

// To be called only on processors that have AVX2.
uint64_t Avx2Hash(const void* data, size_t size, uint64_t seed);
void Avx2Update(XXH3_state_t* state, const void* data, size_t size);

}  // namespace verbena::layout::internal
