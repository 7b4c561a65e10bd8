// XXH3-64 with a seed, as fast as this processor allows.
//
// What is short is hashed inline. From 241 bytes on a vectorized loop does it, of which there are
// variants for the instructions that every processor has, for AVX2 and for AVX-512; which one is
// taken is decided when the first long input is met. The results are the same. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
// nullptr if this processor does not have AVX-512, or slows down where it is used.
const LongHash* Avx512LongHash();

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

namespace internal {

// `sum` and the two halves of the product of `a` and `b`, each XORed with its word of the secret,
// one half XORed with the other. In assembler where that is seven instructions, since gcc moves
// words and halves about so much that it takes twice as many.
[[gnu::always_inline]] inline uint64_t PlusFoldedProduct(uint64_t sum, uint64_t a, uint64_t b,
                                                         const uint64_t* secret) {
#if defined(__x86_64__)
  asm("movq %1, %%rax\n\tmovq %2, %%rdx\n\txorq %3, %%rax\n\txorq %4, %%rdx\n\t"
      "mulq %%rdx\n\txorq %%rdx, %%rax\n\taddq %%rax, %0"
      : "+&r"(sum)
      : "rm"(a), "rm"(b), "m"(secret[0]), "m"(secret[1])
      : "rax", "rdx", "cc");
  return sum;
#else
  const auto product = static_cast<unsigned __int128>(a ^ secret[0]) * (b ^ secret[1]);
  return sum + (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64));
#endif
}

// XXH3_avalanche in two steps, the last of which is linear: Last(a) ^ Last(b) == Last(a ^ b).
[[gnu::always_inline]] inline uint64_t AllButLast(uint64_t hash) {
  return (hash ^ hash >> 37) * 0x165667919e3779f9u;
}
[[gnu::always_inline]] inline uint64_t Last(uint64_t hash) { return hash ^ hash >> 32; }

}  // namespace internal

// A seed that many hashes are made with: what depends on the seed alone is worked out once, which
// saves half of the work on what is 17 to 128 bytes long. The hashes are those of the seed.
//
// For these lengths XXH3 takes 16 bytes after another, each with 16 bytes of its secret, to whose
// two words it adds the seed, or subtracts it. The secret that it makes of a seed for long inputs
// has the same words in the same places, with the seed in them already.
class SeededXxh3 {
 public:
  explicit SeededXxh3(uint64_t seed) : seed_(seed) {
    static_assert(sizeof(secret_) == XXH_SECRET_DEFAULT_SIZE);
    XXH3_initCustomSecret(secret_, seed);
  }

  uint64_t seed() const { return seed_; }
  [[gnu::always_inline]] uint64_t Hash(const void* data, size_t size) const {
    if (size < 17 || size > 128) [[unlikely]]
      return Xxh3(data, size, seed_);
    return HashMiddling(data, size);
  }
  // The same of 17 to 128 bytes.
  [[gnu::always_inline]] uint64_t HashMiddling(const void* data, size_t size) const {
    return internal::Last(MostOfHashMiddling(data, size));
  }
  // The same of 17 to 32 bytes, as most keys have.
  [[gnu::always_inline]] uint64_t HashShort(const void* data, size_t size) const {
    const auto* const begin = static_cast<const unsigned char*>(data);
    return XXH3_avalanche(Mix(Mix(size * XXH_PRIME64_1, begin, 0), begin + size - 16, 1));
  }
  // Of the 24 bytes that three words are in memory.
  [[gnu::always_inline]] uint64_t HashWords(uint64_t a, uint64_t b, uint64_t c) const {
    return internal::Last(MostOfHashWords(a, b, c));
  }
  // HashWords(a, b, c) XOR Hash(data, size), which takes less than both.
  [[gnu::always_inline]] uint64_t HashWordsXorHash(uint64_t a, uint64_t b, uint64_t c,
                                                   const void* data, size_t size) const {
    const uint64_t words = MostOfHashWords(a, b, c);
    if (size < 17 || size > 128) [[unlikely]]
      return internal::Last(words) ^ Xxh3(data, size, seed_);
    return internal::Last(words ^ MostOfHashMiddling(data, size));
  }

 private:
  [[gnu::always_inline]] uint64_t MostOfHashMiddling(const void* data, size_t size) const {
    const auto* const begin = static_cast<const unsigned char*>(data);
    const unsigned char* const end = begin + size;
    // Pairs of 16 bytes from both ends inwards.
    uint64_t sum = Mix(Mix(size * XXH_PRIME64_1, begin, 0), end - 16, 1);
    if (size > 32) {
      sum = Mix(Mix(sum, begin + 16, 2), end - 32, 3);
      if (size > 64) {
        sum = Mix(Mix(sum, begin + 32, 4), end - 48, 5);
        if (size > 96) sum = Mix(Mix(sum, begin + 48, 6), end - 64, 7);
      }
    }
    return internal::AllButLast(sum);
  }
  [[gnu::always_inline]] uint64_t MostOfHashWords(uint64_t a, uint64_t b, uint64_t c) const {
    return internal::AllButLast(
        MixWords(MixWords(3 * sizeof(a) * XXH_PRIME64_1, a, b, 0), b, c, 1));
  }
  // `sum` and 16 bytes of the input with the `part`-th 16 bytes of the secret.
  [[gnu::always_inline]] uint64_t Mix(uint64_t sum, const unsigned char* bytes, size_t part) const {
    uint64_t words[2];
    std::memcpy(words, bytes, sizeof(words));
    return MixWords(sum, words[0], words[1], part);
  }
  [[gnu::always_inline]] uint64_t MixWords(uint64_t sum, uint64_t a, uint64_t b,
                                           size_t part) const {
    return internal::PlusFoldedProduct(sum, a, b, secret_ + 2 * part);
  }

  const uint64_t seed_;
  alignas(64) uint64_t secret_[24];
};

[[gnu::always_inline]] inline uint64_t Xxh3(const void* data, size_t size, const SeededXxh3& seed) {
  return seed.Hash(data, size);
}

// Of the 24 bytes that three words are in memory.
inline uint64_t Xxh3OfWords(uint64_t a, uint64_t b, uint64_t c, uint64_t seed) {
  const uint64_t words[3] = {a, b, c};
  return Xxh3(words, sizeof(words), seed);
}
[[gnu::always_inline]] inline uint64_t Xxh3OfWords(uint64_t a, uint64_t b, uint64_t c,
                                                   const SeededXxh3& seed) {
  return seed.HashWords(a, b, c);
}

// Xxh3OfWords of three words XOR Xxh3 of the bytes.
inline uint64_t Xxh3OfWordsXorXxh3(uint64_t a, uint64_t b, uint64_t c, const void* data,
                                   size_t size, uint64_t seed) {
  return Xxh3OfWords(a, b, c, seed) ^ Xxh3(data, size, seed);
}
[[gnu::always_inline]] inline uint64_t Xxh3OfWordsXorXxh3(uint64_t a, uint64_t b, uint64_t c,
                                                          const void* data, size_t size,
                                                          const SeededXxh3& seed) {
  return seed.HashWordsXorHash(a, b, c, data, size);
}

}  // namespace verbena::layout
