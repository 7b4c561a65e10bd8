// Numbers for threads, to part places among them.
#pragma once

#include <atomic>
#include <cstddef>

namespace verbena::client {

// The calling thread's number; threads that begin one after the other have numbers in a row, so
// they get different places.
inline size_t ThreadNumber() {
  static std::atomic<size_t> next{0};
  static thread_local const size_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace verbena::client
