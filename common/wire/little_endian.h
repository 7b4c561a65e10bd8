// Integers to and from bytes at any address. Verbena's formats are little-endian, and so are all
// machines that it is built for, which is asserted here. Thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace verbena::wire {

static_assert(std::endian::native == std::endian::little,
              "wire formats are little-endian; a big-endian port needs byte swaps here");

template <typename T>
T LoadAs(const void* bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void StoreAs(void* bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(bytes, &value, sizeof(T));
}

}  // namespace verbena::wire
