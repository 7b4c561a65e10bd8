#include "bench/key_names.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstring>
#include <string_view>

namespace verbena::bench {
namespace {

constexpr std::string_view kPrefix = "user";
constexpr std::string_view kDigits32 = "0123456789abcdefghijklmnopqrstuv";

// `value` in base 32, the lowest digits, right-aligned and padded with zeros.
void WriteBase32(uint64_t value, std::span<char> out) {
  for (size_t i = out.size(); i-- > 0; value >>= 5) out[i] = kDigits32[value & 31];
}

// A bijection of the numbers below 2^bits (bits <= 64): odd multiplications and xor-shifts.
uint64_t Scramble(uint64_t value, unsigned bits) {
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  value = (value * 0x9e3779b97f4a7c15) & mask;
  value ^= value >> (bits / 2);
  return (value * 0xbf58476d1ce4e5b9) & mask;
}

}  // namespace

uint64_t FnvHash64(uint64_t value) {
  uint64_t hash = 0xCBF29CE484222325;
  for (int i = 0; i < 8; ++i, value >>= 8) {
    hash = (hash ^ (value & 0xff)) * 1099511628211u;
  }
  return (hash >> 63) != 0 ? ~hash + 1 : hash;
}

size_t KeyNames::Write(uint64_t number, std::span<char> buffer) const {
  assert(buffer.size() >= max_size());
  if (key_size_ != 0 && key_size_ < kPrefix.size() + 12) {
    const unsigned bits = std::min(64u, static_cast<unsigned>(key_size_) * 5);
    WriteBase32(Scramble(number, bits), buffer.first(key_size_));
    return key_size_;
  }
  std::memcpy(buffer.data(), kPrefix.data(), kPrefix.size());
  const std::span<char> rest = buffer.subspan(kPrefix.size());
  const uint64_t hash = FnvHash64(number);
  if (key_size_ != 0 && key_size_ < kNaturalKeySize) {
    WriteBase32(hash, rest.first(key_size_ - kPrefix.size()));
    return key_size_;
  }
  char digits[20];
  const auto length =
      static_cast<size_t>(std::to_chars(digits, digits + sizeof(digits), hash).ptr - digits);
  const size_t padding = key_size_ == 0 ? 0 : key_size_ - kPrefix.size() - length;
  std::memset(rest.data(), '0', padding);
  std::memcpy(rest.data() + padding, digits, length);
  return kPrefix.size() + padding + length;
}

std::string KeyNames::Name(uint64_t number) const {
  std::string name(max_size(), '\0');
  name.resize(Write(number, name));
  return name;
}

}  // namespace verbena::bench
