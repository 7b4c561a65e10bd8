// Monotonic time in nanoseconds. Thread-safe.
#pragma once

#include <time.h>

#include <cstdint>

namespace verbena {

inline int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The deadline (in MonotonicNanos) `nanos` from now, not before now; never for what reaches beyond
// the clock's last nanosecond.
inline int64_t DeadlineAfter(int64_t nanos) {
  const int64_t now = MonotonicNanos();
  if (nanos <= 0) return now;
  return nanos > INT64_MAX - now ? INT64_MAX : now + nanos;
}

// Wall-clock time since 1970 in nanoseconds; may step backwards.
inline int64_t UnixNanos() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Milliseconds until `deadline` (in MonotonicNanos), rounded up, as poll takes them: 0 if it has
// passed, at most an hour.
inline int MillisUntil(int64_t deadline) {
  const int64_t left = deadline - MonotonicNanos();
  if (left <= 0) return 0;
  constexpr int64_t kMilli = 1'000'000;
  constexpr int64_t kMost = 3'600'000;
  return static_cast<int>(left / kMilli >= kMost ? kMost : (left + kMilli - 1) / kMilli);
}

// Tells the processor that this is a spin loop.
inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace verbena
