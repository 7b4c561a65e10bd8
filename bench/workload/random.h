// The pseudo-random numbers of the load generator: xoshiro256++ (Blackman and Vigna), seeded by
// splitmix64. The same seed gives the same sequence on every machine. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>

namespace verbena::bench {

// A bijective mix of 64 bits: one step of splitmix64. Also used to derive one seed from another.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      word = Mix64(seed);
      seed += 0x9e3779b97f4a7c15;
    }
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, 1), with 53 random bits.
  double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  // Uniform in [0, bound), bound > 0; off from uniform by at most bound / 2^64.
  uint64_t Below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(Next()) * bound) >> 64);
  }

 private:
  uint64_t state_[4];
};

}  // namespace verbena::bench
