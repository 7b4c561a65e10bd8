// The fuzzer's input as a tape from which a target takes what it needs. Past its end there are
// zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace verbena::fuzz {

class Tape {
 public:
  explicit Tape(std::span<const uint8_t> bytes) : left_(bytes) {}

  bool at_end() const { return left_.empty(); }

  template <typename Number>
  Number Take() {
    static_assert(std::is_trivially_copyable_v<Number>);
    Number number{};
    Fill({reinterpret_cast<uint8_t*>(&number), sizeof(number)});
    return number;
  }
  uint8_t Byte() { return Take<uint8_t>(); }
  // A number from 0 to `most`.
  uint64_t UpTo(uint64_t most) {
    const auto number = most <= 0xff ? Byte() : Take<uint64_t>();
    return most == ~uint64_t{0} ? number : number % (most + 1);
  }
  void Fill(std::span<uint8_t> target) {
    const size_t count = std::min(target.size(), left_.size());
    if (count != 0) std::memcpy(target.data(), left_.data(), count);
    std::memset(target.data() + count, 0, target.size() - count);
    left_ = left_.subspan(count);
  }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace verbena::fuzz
