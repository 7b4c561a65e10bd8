#include "bench/workload/key_names.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string_view>

#include "bench/workload/random.h"

namespace verbena::bench {
namespace {

constexpr std::string_view kPrefix = "user";
constexpr std::string_view kDigits32 = "0123456789abcdefghijklmnopqrstuv";

// `value` in base 32, the lowest digits, right-aligned and padded with zeros.
void WriteBase32(uint64_t value, std::span<char> out) {
  for (size_t i = out.size(); i-- > 0; value >>= 5) out[i] = kDigits32[value & 31];
}

// Sizes of a model's keys: up to memcached's limit and a little; from here on they have the prefix.
constexpr size_t kMaxModelSize = 255;
constexpr size_t kLeastWithPrefix = kPrefix.size() + 12;

// UP2X's keys are of about ten bytes.
size_t LeastOf(SizeModel model) {
  return model == SizeModel::kUp2x ? KeyNames::kMinKeySize : kLeastWithPrefix;
}

// A bijection of the numbers below 2^bits (bits <= 64): odd multiplications and xor-shifts.
uint64_t Scramble(uint64_t value, unsigned bits) {
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  value = (value * 0x9e3779b97f4a7c15) & mask;
  value ^= value >> (bits / 2);
  return (value * 0xbf58476d1ce4e5b9) & mask;
}

// The eight decimal digits of `value` (below 10^8), with zeros in front. Four divisions at once in
// one word, then in its halves, then in its bytes.
void WriteEightDigits(uint32_t value, char* out) {
  const uint64_t upper = value / 10'000;
  const uint64_t fours = upper | uint64_t{value - static_cast<uint32_t>(upper) * 10'000} << 32;
  // x / 100 for x below 10^4 is x * 10486 >> 20.
  const uint64_t hundreds = ((fours * 10'486) >> 20) & 0x7f0000007f;
  const uint64_t twos = hundreds | (fours - hundreds * 100) << 16;
  // x / 10 for x below 100 is x * 103 >> 10.
  const uint64_t tens = ((twos * 103) >> 10) & 0x000f000f000f000f;
  const uint64_t ones = tens | (twos - tens * 10) << 8;
  const uint64_t text = ones + 0x3030303030303030;
  std::memcpy(out, &text, sizeof(text));
}

// Decimal, without zeros in front; returns the length, at most kMaxDigits. `value` is at most 2^63.
constexpr size_t kMaxDigits = 19;
size_t WriteDecimal(uint64_t value, char* out) {
  constexpr uint64_t kEight = 100'000'000;
  const uint64_t upper = value / kEight;
  const auto top = static_cast<uint32_t>(upper / kEight);  // three digits
  char digits[kMaxDigits];
  digits[0] = static_cast<char>('0' + top / 100);
  digits[1] = static_cast<char>('0' + top / 10 % 10);
  digits[2] = static_cast<char>('0' + top % 10);
  WriteEightDigits(static_cast<uint32_t>(upper - top * kEight), digits + 3);
  WriteEightDigits(static_cast<uint32_t>(value - upper * kEight), digits + 11);
  if (digits[0] != '0') {  // nine hashes in ten: a copy of known length
    std::memcpy(out, digits, kMaxDigits);
    return kMaxDigits;
  }
  size_t zeros = 1;
  while (zeros < kMaxDigits - 1 && digits[zeros] == '0') ++zeros;
  std::memcpy(out, digits + zeros, kMaxDigits - zeros);
  return kMaxDigits - zeros;
}

}  // namespace

uint64_t FnvHash64(uint64_t value) {
  uint64_t hash = 0xCBF29CE484222325;
  for (int i = 0; i < 8; ++i, value >>= 8) {
    hash = (hash ^ (value & 0xff)) * 1099511628211u;
  }
  return (hash >> 63) != 0 ? ~hash + 1 : hash;
}

size_t KeyNames::max_size() const {
  if (form_.model.has_value()) return kMaxModelSize;
  if (form_.size != 0) return form_.size;
  return kPrefix.size() + std::max(kMaxDigits, form_.zero_padding);
}

size_t KeyNames::typical_size() const {
  if (form_.model.has_value()) return KeySize(*form_.model, 0.5);
  return max_size();
}

std::string_view KeyNames::prefix() const {
  const size_t least = form_.model.has_value() ? LeastOf(*form_.model) : form_.size;
  return least != 0 && least < kLeastWithPrefix ? std::string_view() : kPrefix;
}

size_t KeyNames::SizeOf(uint64_t number) const {
  if (!form_.model.has_value()) return form_.size;
  const double u = static_cast<double>(Mix64(number) >> 11) * 0x1.0p-53;
  return std::clamp<size_t>(KeySize(*form_.model, u), LeastOf(*form_.model), kMaxModelSize);
}

size_t KeyNames::Write(uint64_t number, std::span<char> buffer) const {
  assert(buffer.size() >= max_size());
  const size_t size = SizeOf(number);
  if (prefix().empty()) {
    const unsigned bits = std::min(64u, static_cast<unsigned>(size) * 5);
    WriteBase32(form_.ordered ? number : Scramble(number, bits), buffer.first(size));
    return size;
  }
  std::memcpy(buffer.data(), kPrefix.data(), kPrefix.size());
  const std::span<char> rest = buffer.subspan(kPrefix.size());
  const uint64_t hash = form_.ordered ? number : FnvHash64(number);
  if (size != 0 && size < kNaturalKeySize) {
    WriteBase32(hash, rest.first(size - kPrefix.size()));
    return size;
  }
  if (size == 0 && form_.zero_padding <= 1) return kPrefix.size() + WriteDecimal(hash, rest.data());
  char digits[kMaxDigits];
  const size_t length = WriteDecimal(hash, digits);
  const size_t wanted = size == 0 ? form_.zero_padding : size - kPrefix.size();
  const size_t padding = wanted > length ? wanted - length : 0;
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
