#include "bench/workload/value.h"

#include <algorithm>
#include <cstring>

#include "bench/workload/random.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace verbena::bench {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

uint64_t CheckOf(uint64_t key_hash, std::string_view body) {
  return XXH3_64bits_withSeed(body.data(), body.size(), key_hash);
}

}  // namespace

void FillValue(std::string_view key, uint64_t stamp, std::span<char> value) {
  if (value.empty()) return;
  const uint64_t key_hash = XXH3_64bits(key.data(), key.size());
  uint64_t word = stamp;
  uint64_t state = Mix64(stamp ^ key_hash);
  for (size_t at = kWord; at < value.size(); at += kWord) {
    std::memcpy(value.data() + at, &word, std::min(kWord, value.size() - at));
    state += 0x9e3779b97f4a7c15;
    word = Mix64(state);
  }
  std::string_view body(value.data(), value.size());
  body.remove_prefix(std::min(kWord, body.size()));
  const uint64_t check = CheckOf(key_hash, body);
  std::memcpy(value.data(), &check, std::min(kWord, value.size()));
}

void FillNoise(uint64_t seed, std::span<char> bytes) {
  uint64_t state = Mix64(seed);
  for (size_t at = 0; at < bytes.size(); at += kWord) {
    state += 0x9e3779b97f4a7c15;
    const uint64_t word = Mix64(state);
    std::memcpy(bytes.data() + at, &word, std::min(kWord, bytes.size() - at));
  }
}

uint64_t CheckOfContents(std::string_view key, std::string_view contents) {
  return CheckOf(XXH3_64bits(key.data(), key.size()), contents);
}

bool VerifyValue(std::string_view key, std::string_view value) {
  if (value.empty()) return true;
  const size_t check_size = std::min(kWord, value.size());
  const uint64_t check = CheckOf(XXH3_64bits(key.data(), key.size()), value.substr(check_size));
  return std::memcmp(value.data(), &check, check_size) == 0;
}

}  // namespace verbena::bench
