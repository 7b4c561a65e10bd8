// Operations of a baseline round, made beforehand so that making them is not part of what is
// measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/config.h"

namespace verbena::bench {

// A sequence of random keys, in one piece of memory. Not thread-safe while it is being made.
class KeySequence {
 public:
  // `count` keys, uniform over the records of `config`.
  KeySequence(const Config& config, size_t count, uint64_t seed);

  size_t size() const { return lengths_.size(); }
  std::string_view operator[](size_t i) const { return {bytes_.data() + i * stride_, lengths_[i]}; }

 private:
  size_t stride_;
  std::vector<char> bytes_;
  std::vector<uint16_t> lengths_;
};

// A value for each of a sequence's keys, likewise.
class ValueSequence {
 public:
  ValueSequence(const KeySequence& keys, size_t value_size, uint64_t seed);

  std::string_view operator[](size_t i) const {
    return {bytes_.data() + i * value_size_, value_size_};
  }

 private:
  size_t value_size_;
  std::vector<char> bytes_;
};

}  // namespace verbena::bench
