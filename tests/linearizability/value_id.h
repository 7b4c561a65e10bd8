// What a history says of a value: enough to tell whether two values are equal, what a value becomes
// when something is appended, and which number it spells. Equal ids of different contents are not
// to be expected by chance (64 bits and the length); nobody chooses the contents to make them so.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace verbena::linearizability {

// A plain value, fit for memory that processes share.
struct ValueId {
  uint64_t hash = 0;
  uint32_t length = 0;  // bytes
  bool is_number = false;
  int64_t number = 0;  // the value is its decimal text, as `add` writes it; 0 unless is_number

  static ValueId Of(std::string_view content);
  static ValueId OfNumber(int64_t number);
  // Of `a` with `b` behind it. The result does not count as a number: suffixes in histories are not
  // digits.
  static ValueId Concatenation(const ValueId& a, const ValueId& b);

  friend bool operator==(const ValueId& a, const ValueId& b) {
    return a.hash == b.hash && a.length == b.length;
  }
  template <typename H>
  friend H AbslHashValue(H state, const ValueId& id) {
    return H::combine(std::move(state), id.hash, id.length);
  }
};

}  // namespace verbena::linearizability
