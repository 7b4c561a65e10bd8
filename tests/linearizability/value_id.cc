#include "tests/linearizability/value_id.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace verbena::linearizability {
namespace {

// The hash of bytes b(1) ... b(n) is the sum of (b(i) + 1) * kBase^(n - i) modulo 2^64, so that the
// hash of a concatenation follows from the hashes of its parts.
constexpr uint64_t kBase = 0x9fb21c651e98df25;
constexpr size_t kStep = 8;

// kBase^0 ... kBase^kStep
constexpr std::array<uint64_t, kStep + 1> kPowers = [] {
  std::array<uint64_t, kStep + 1> powers{1};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * kBase;
  return powers;
}();

uint64_t Power(uint32_t exponent) {
  uint64_t result = 1;
  for (uint64_t square = kBase; exponent != 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return result;
}

uint64_t Hash(std::string_view content) {
  const auto* at = reinterpret_cast<const unsigned char*>(content.data());
  size_t left = content.size();
  uint64_t hash = 0;
  // Several bytes a step: the multiplications of a step do not wait for each other.
  for (; left >= kStep; left -= kStep, at += kStep) {
    uint64_t sum = 0;
    for (size_t i = 0; i < kStep; ++i) sum += (at[i] + uint64_t{1}) * kPowers[kStep - 1 - i];
    hash = hash * kPowers[kStep] + sum;
  }
  for (; left > 0; --left, ++at) hash = hash * kBase + *at + 1;
  return hash;
}

}  // namespace

ValueId ValueId::Of(std::string_view content) {
  ValueId id{Hash(content), static_cast<uint32_t>(content.size())};
  int64_t number = 0;
  constexpr size_t kLongestNumber = 20;
  if (content.size() <= kLongestNumber &&
      absl::SimpleAtoi(absl::string_view(content.data(), content.size()), &number) &&
      absl::StrCat(number) == std::string(content)) {
    id.is_number = true;
    id.number = number;
  }
  return id;
}

ValueId ValueId::OfNumber(int64_t number) { return Of(absl::StrCat(number)); }

ValueId ValueId::Concatenation(const ValueId& a, const ValueId& b) {
  return {a.hash * Power(b.length) + b.hash, a.length + b.length};
}

}  // namespace verbena::linearizability
