// A body check that is worked out piece by piece, as the pieces of a large value come.
#pragma once

#include <cstdint>
#include <span>

#include "common/layout/xxh3.h"

namespace verbena::layout {

// BodyCheck (item.h) of all that has been added. Slow to start and more than 500 bytes large: for
// what is short, or lies there whole, BodyCheck is better. Not thread-safe.
class BodyHash {
 public:
  explicit BodyHash(uint64_t seed) {
    XXH3_INITSTATE(&state_);  // reset looks at the old seed
    Reset(seed);
  }
  // As if nothing had been added.
  void Reset(uint64_t seed) { XXH3_64bits_reset_withSeed(&state_, seed); }
  void Add(std::span<const uint8_t> bytes) {
    internal::BestLongHash().update(&state_, bytes.data(), bytes.size());
  }
  // More may be added afterwards.
  uint64_t Check() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

}  // namespace verbena::layout
