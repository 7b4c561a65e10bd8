// Waiting for what has no event.
#pragma once

#include <chrono>
#include <thread>

#include "tests/integration/process.h"

namespace verbena::testing {

// True once `condition()` is; false if it is not within kPatience.
template <typename Condition>
bool Eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace verbena::testing
