// Compiled with instructions that not every processor has: as xxh3_avx2.cc.
//
// The library's own loop for AVX-512 is hardly faster than the one for AVX2: both have six vector
// operations for 32 bytes, and a processor that does 64 bytes in two halves needs as long. Here a
// block of 16 stripes of 64 bytes takes five, since the input, which XXH3 adds to the neighbouring
// word of each pair, is summed up apart, and the pairs are exchanged once for the block; and the
// secret's 16 vectors stay in registers.
#include "common/layout/xxh3_avx512.h"

#include <immintrin.h>

#include <cstring>

#if !defined(__AVX512F__) || XXH_VECTOR != XXH_AVX512
#error "this file is to be compiled for AVX-512"
#endif

namespace verbena::layout::internal {
namespace {

constexpr size_t kStripe = XXH_STRIPE_LEN;
constexpr size_t kStripesInBlock = 16;  // with secrets of the default size
constexpr size_t kBlock = kStripe * kStripesInBlock;
constexpr size_t kSecretStep = XXH_SECRET_CONSUME_RATE;
static_assert(kStripesInBlock == (XXH_SECRET_DEFAULT_SIZE - kStripe) / kSecretStep);
constexpr size_t kScrambleSecret = XXH_SECRET_DEFAULT_SIZE - kStripe;
// From here on it is worth while.
constexpr size_t kLong = 4 * kBlock;

// The eight sums of XXH3, and how many stripes of the present block are in them.
struct Sums {
  alignas(64) uint64_t words[XXH_ACC_NB];
  size_t stripes = 0;
};

__m512i Exchanged(__m512i words) { return _mm512_shuffle_epi32(words, _MM_PERM_BADC); }
__m512i UpperHalves(__m512i words) { return _mm512_srli_epi64(words, 32); }

// Whole blocks.
const uint8_t* AddBlocks(Sums* sums, const uint8_t* input, size_t blocks, const uint8_t* secret) {
  __m512i keys[kStripesInBlock];
  for (size_t i = 0; i < kStripesInBlock; ++i) {
    keys[i] = _mm512_loadu_si512(secret + i * kSecretStep);
  }
  const __m512i scramble = _mm512_loadu_si512(secret + kScrambleSecret);
  const __m512i prime = _mm512_set1_epi64(static_cast<int64_t>(XXH_PRIME32_1));
  __m512i all = _mm512_load_si512(sums->words);
  for (; blocks > 0; --blocks, input += kBlock) {
    __m512i inputs = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (size_t i = 0; i < kStripesInBlock; ++i) {
      const __m512i stripe = _mm512_loadu_si512(input + i * kStripe);
      const __m512i keyed = _mm512_xor_si512(stripe, keys[i]);
      // The product of each word's halves.
      all = _mm512_add_epi64(all,
                             _mm512_mul_epu32(keyed, _mm512_shuffle_epi32(keyed, _MM_PERM_DDBB)));
      inputs = _mm512_add_epi64(inputs, stripe);
    }
    all = _mm512_add_epi64(all, Exchanged(inputs));
    all = _mm512_xor_si512(_mm512_xor_si512(all, _mm512_srli_epi64(all, 47)), scramble);
    all = _mm512_add_epi64(_mm512_mul_epu32(all, prime),
                           _mm512_slli_epi64(_mm512_mul_epu32(UpperHalves(all), prime), 32));
  }
  _mm512_store_si512(sums->words, all);
  return input;
}

// Any number of stripes; returns where they end.
const uint8_t* AddStripes(Sums* sums, const uint8_t* input, size_t count, const uint8_t* secret) {
  while (count > 0) {
    if (sums->stripes == 0 && count >= kStripesInBlock) {
      input = AddBlocks(sums, input, count / kStripesInBlock, secret);
      count %= kStripesInBlock;
      continue;
    }
    XXH3_accumulate_512(sums->words, input, secret + sums->stripes * kSecretStep);
    input += kStripe;
    --count;
    if (++sums->stripes < kStripesInBlock) continue;
    XXH3_scrambleAcc(sums->words, secret + kScrambleSecret);
    sums->stripes = 0;
  }
  return input;
}

}  // namespace

uint64_t Avx512Hash(const void* data, size_t size, uint64_t seed) {
  if (size < kLong) return XXH3_64bits_withSeed(data, size, seed);
  alignas(64) uint8_t secret[XXH_SECRET_DEFAULT_SIZE];
  XXH3_initCustomSecret(secret, seed);
  Sums sums{XXH3_INIT_ACC};
  const auto* const begin = static_cast<const uint8_t*>(data);
  // All but the last byte, in whole stripes; then the last 64 bytes, some of them again.
  AddStripes(&sums, begin, (size - 1) / kStripe, secret);
  XXH3_accumulate_512(sums.words, begin + size - kStripe,
                      secret + kScrambleSecret - XXH_SECRET_LASTACC_START);
  return XXH3_mergeAccs(sums.words, secret + XXH_SECRET_MERGEACCS_START, size * XXH_PRIME64_1);
}

// As XXH3_64bits_update, and leaves the same state behind: at least one byte in the buffer, and, of
// what went by it, the last stripe at the buffer's end.
void Avx512Update(XXH3_state_t* state, const void* data, size_t size) {
  if (size < kLong || state->nbStripesPerBlock != kStripesInBlock) {
    XXH3_64bits_update(state, data, size);
    return;
  }
  const unsigned char* const secret =
      state->extSecret != nullptr ? state->extSecret : state->customSecret;
  const auto* input = static_cast<const uint8_t*>(data);
  const uint8_t* const end = input + size;
  Sums sums{};
  std::memcpy(sums.words, state->acc, sizeof(sums.words));
  sums.stripes = state->nbStripesSoFar;
  state->totalLen += size;
  if (state->bufferedSize != 0) {
    const size_t room = sizeof(state->buffer) - state->bufferedSize;
    std::memcpy(state->buffer + state->bufferedSize, input, room);
    input += room;
    AddStripes(&sums, state->buffer, sizeof(state->buffer) / kStripe, secret);
  }
  input = AddStripes(&sums, input, static_cast<size_t>(end - input - 1) / kStripe, secret);
  std::memcpy(state->buffer + sizeof(state->buffer) - kStripe, input - kStripe, kStripe);
  const auto rest = static_cast<size_t>(end - input);
  std::memcpy(state->buffer, input, rest);
  state->bufferedSize = static_cast<XXH32_hash_t>(rest);
  state->nbStripesSoFar = sums.stripes;
  std::memcpy(state->acc, sums.words, sizeof(sums.words));
}

}  // namespace verbena::layout::internal
