// The hash is part of the format: all variants must give the numbers of XXH3.
#include "common/layout/xxh3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/layout/body_hash.h"

namespace verbena::layout {
namespace {

constexpr uint64_t kPrime32 = 2654435761;
constexpr uint64_t kPrime64 = 11400714785074694797u;

// The bytes that xxHash's own test vectors are of.
std::vector<uint8_t> VectorBytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint64_t generator = kPrime32;
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(generator >> 56);
    generator *= kPrime64;
  }
  return bytes;
}

struct Vector {
  size_t size;
  uint64_t seed;
  uint64_t hash;
};

constexpr Vector kVectors[] = {
    {0, 0, 0x2d06800538d394c2u},    {0, kPrime64, 0xa8a6b918b2f0364au},
    {1, 0, 0xc44bdff4074eecdbu},    {1, kPrime64, 0x032be332dd766ef8u},
    {6, 0, 0x27b56a84cd2d7325u},    {12, 0, 0xa713daf0dfbb77e7u},
    {24, 0, 0xa3fe70bf9d3510ebu},   {48, 0, 0x397da259ecba1f11u},
    {80, 0, 0xbcdefbbb2c47c90au},   {195, 0, 0xcd94217ee362ec3au},
    {403, 0, 0xcdeb804d65c6dea4u},  {403, kPrime64, 0x6259f6ecfd6443fdu},
    {512, 0, 0x617e49599013cb6bu},  {512, kPrime64, 0x3ce457de14c27708u},
    {2048, 0, 0xdd59e2c3a5f038e0u}, {2048, kPrime64, 0x66f81670669ababcu},
    {2240, 0, 0x6e73a90539cf2948u}, {2240, kPrime64, 0x757ba8487d1b5247u},
    {2367, 0, 0xcb37aeb9e5d361edu}, {2367, kPrime64, 0xd2db3415b942b42au},
};

std::vector<const internal::LongHash*> Variants() {
  std::vector<const internal::LongHash*> variants = {&internal::PortableLongHash()};
  if (internal::Avx2LongHash() != nullptr) variants.push_back(internal::Avx2LongHash());
  if (internal::Avx512LongHash() != nullptr) variants.push_back(internal::Avx512LongHash());
  return variants;
}

TEST(Xxh3Test, TestVectors) {
  const std::vector<uint8_t> bytes = VectorBytes(4096);
  for (const Vector& vector : kVectors) {
    EXPECT_EQ(Xxh3(bytes.data(), vector.size, vector.seed), vector.hash) << vector.size;
    for (const internal::LongHash* variant : Variants()) {
      EXPECT_EQ(variant->hash(bytes.data(), vector.size, vector.seed), vector.hash) << vector.size;
    }
  }
}

TEST(Xxh3Test, VariantsAgreeOnAllLengthsAndPlaces) {
  const std::vector<uint8_t> bytes = VectorBytes(40000);
  for (size_t size = 0; size < 39000; size += size < 2100 ? 1 : 997) {
    const uint8_t* const data = bytes.data() + size % 64;
    const uint64_t seed = size * kPrime64;
    const uint64_t expected = XXH3_64bits_withSeed(data, size, seed);
    ASSERT_EQ(Xxh3(data, size, seed), expected) << size;
    for (const internal::LongHash* variant : Variants()) {
      ASSERT_EQ(variant->hash(data, size, seed), expected) << size;
    }
  }
}

TEST(Xxh3Test, APreparedSeedGivesTheSameHashes) {
  const std::vector<uint8_t> bytes = VectorBytes(2000);
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, kPrime64, ~uint64_t{0}}) {
    const SeededXxh3 seeded(seed);
    for (size_t size = 0; size < 1900; ++size) {
      const uint8_t* const data = bytes.data() + size % 64;
      ASSERT_EQ(Xxh3(data, size, seeded), XXH3_64bits_withSeed(data, size, seed)) << size;
      if (size >= 17 && size <= 32) {
        ASSERT_EQ(seeded.HashShort(data, size), XXH3_64bits_withSeed(data, size, seed)) << size;
      }
    }
    for (size_t at = 0; at < 1000; ++at) {
      uint64_t words[3];
      std::memcpy(words, bytes.data() + at, sizeof(words));
      const uint64_t expected = XXH3_64bits_withSeed(words, sizeof(words), seed);
      ASSERT_EQ(Xxh3OfWords(words[0], words[1], words[2], seeded), expected) << at;
      ASSERT_EQ(Xxh3OfWords(words[0], words[1], words[2], seed), expected) << at;
      const uint64_t both = expected ^ XXH3_64bits_withSeed(bytes.data(), at, seed);
      ASSERT_EQ(Xxh3OfWordsXorXxh3(words[0], words[1], words[2], bytes.data(), at, seeded), both)
          << at;
      ASSERT_EQ(Xxh3OfWordsXorXxh3(words[0], words[1], words[2], bytes.data(), at, seed), both)
          << at;
    }
  }
}

// In pieces, also with the variants taking turns: they keep the same state.
TEST(Xxh3Test, PiecesGiveTheHashOfTheWhole) {
  const std::vector<uint8_t> bytes = VectorBytes(300000);
  const std::vector<const internal::LongHash*> variants = Variants();
  for (const size_t size : {size_t{1}, size_t{240}, size_t{241}, size_t{5000}, bytes.size()}) {
    for (const size_t piece :
         {size_t{1}, size_t{63}, size_t{256}, size_t{4096}, size_t{5003}, size_t{262144}}) {
      if (piece * 5000 < size) continue;
      XXH3_state_t state;
      XXH3_INITSTATE(&state);
      XXH3_64bits_reset_withSeed(&state, 77);
      BodyHash body(77);
      for (size_t at = 0, number = 0; at < size; at += piece, ++number) {
        const size_t length = std::min(piece, size - at);
        variants[number % variants.size()]->update(&state, bytes.data() + at, length);
        body.Add({bytes.data() + at, length});
      }
      EXPECT_EQ(XXH3_64bits_digest(&state), Xxh3(bytes.data(), size, 77)) << size << " " << piece;
      EXPECT_EQ(body.Check(), Xxh3(bytes.data(), size, 77)) << size << " " << piece;
    }
  }
}

// So that the tests above do see all that there are.
TEST(Xxh3Test, TheBestVariantIsTaken) {
#if defined(__x86_64__)
  EXPECT_EQ(internal::Avx2LongHash() != nullptr, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(internal::Avx512LongHash() != nullptr,
            __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0);
#else
  EXPECT_EQ(internal::Avx2LongHash(), nullptr);
  EXPECT_EQ(internal::Avx512LongHash(), nullptr);
#endif
  EXPECT_EQ(&internal::BestLongHash(), Variants().back());
}

}  // namespace
}  // namespace verbena::layout
