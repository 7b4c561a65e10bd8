// A clock that is cheap enough to be read with every poll: it only says that about a millisecond
// has passed and that it is time to look at a real clock. Thread-safe.
#pragma once

#include <cstdint>

#include "common/base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace verbena::client {

// Ticks that take between about 0.4 ms and 4 ms on processors of today.
#if defined(__x86_64__)
inline constexpr uint64_t kTicksPerLook = uint64_t{1} << 21;
inline uint64_t CheapTicks() { return __rdtsc(); }
#else
inline constexpr uint64_t kTicksPerLook = 1'000'000;
inline uint64_t CheapTicks() { return static_cast<uint64_t>(MonotonicNanos()); }
#endif

}  // namespace verbena::client
