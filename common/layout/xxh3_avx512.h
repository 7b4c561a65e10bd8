// The loops of xxh3.h for AVX-512, for xxh3.cc and tests only.
#pragma once

#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace verbena::layout::internal {

// To be called only on processors that have AVX-512F.
uint64_t Avx512Hash(const void* data, size_t size, uint64_t seed);
void Avx512Update(XXH3_state_t* state, const void* data, size_t size);

}  // namespace verbena::layout::internal
