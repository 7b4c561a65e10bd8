// Keeps a flood of bad clients from becoming a flood of lines in the log.
#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace verbena::net {

// Not thread-safe: one for each thread that logs what clients do.
class LogLimiter {
 public:
  // Whether to write a line now: 20 in a second, the rest is dropped (and counted elsewhere).
  bool Allow() {
    const int64_t now = MonotonicNanos();
    if (now - window_ >= kWindow) {
      window_ = now;
      lines_ = 0;
    }
    return ++lines_ <= kLines;
  }

 private:
  static constexpr int64_t kWindow = 1'000'000'000;
  static constexpr int kLines = 20;

  int64_t window_ = 0;
  int lines_ = 0;
};

}  // namespace verbena::net
