// Bytes and hexadecimal text for tests of wire formats.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::wire {

template <typename Range>
std::string ToHex(const Range& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

inline std::vector<uint8_t> FromHex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return bytes;
}

// The first `size` bytes in memory of their own.
inline std::vector<uint8_t> Exactly(std::span<const uint8_t> bytes, size_t size) {
  return {bytes.begin(), std::next(bytes.begin(), static_cast<std::ptrdiff_t>(size))};
}

// Calls check(corrupted bytes, position) with every byte changed in each bit, set and cleared.
template <typename Check>
void ForEachCorruption(const std::vector<uint8_t>& good, Check&& check) {
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<uint8_t> values = {0x00, 0xff, 0x7f, 0x80};
    for (int bit = 0; bit < 8; ++bit) values.push_back(static_cast<uint8_t>(good[at] ^ 1 << bit));
    for (const uint8_t value : values) {
      if (value == good[at]) continue;
      std::vector<uint8_t> bad = good;
      bad[at] = value;
      check(std::span<const uint8_t>(bad), at);
    }
  }
}

}  // namespace verbena::wire
