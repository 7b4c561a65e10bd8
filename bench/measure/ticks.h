// Time stamps for latencies of tens of nanoseconds: the processor's time-stamp counter where it is
// invariant, else clock_gettime. Thread-safe.
#pragma once

#include <cstdint>

#include "common/base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace verbena::bench {

namespace ticks_internal {
struct Scale {
  bool use_counter = false;
  double nanos_per_tick = 1;
};
// Measured once, in about 20 ms.
const Scale& GetScale();
}  // namespace ticks_internal

// Which clock is used: "rdtsc" or "clock_gettime".
const char* TickSource();

// Reads the clock. A pair of TickSerial() around an operation also keeps the processor from moving
// the operation out of the pair; that costs more, so runs use the plain one.
class TickClock {
 public:
  TickClock() : scale_(ticks_internal::GetScale()) {}

  int64_t Now() const {
#if defined(__x86_64__)
    if (scale_.use_counter) return static_cast<int64_t>(__rdtsc());
#endif
    return MonotonicNanos();
  }
  int64_t NowSerial() const {
#if defined(__x86_64__)
    if (scale_.use_counter) {
      _mm_lfence();
      const auto now = static_cast<int64_t>(__rdtsc());
      _mm_lfence();
      return now;
    }
#endif
    return MonotonicNanos();
  }
  // Nanoseconds between two stamps; 0 if they are the wrong way round.
  uint64_t Nanos(int64_t from, int64_t to) const {
    return to <= from
               ? 0
               : static_cast<uint64_t>(static_cast<double>(to - from) * scale_.nanos_per_tick);
  }
  int64_t TicksOf(int64_t nanos) const {
    return static_cast<int64_t>(static_cast<double>(nanos) / scale_.nanos_per_tick);
  }
  // What a pair of NowSerial() with nothing between them measures: the median, in ns.
  double PairOverheadNanos() const;

 private:
  ticks_internal::Scale scale_;
};

// A measured time without what measuring it cost; at least 0.
inline uint32_t LessOverhead(uint64_t nanos, double overhead) {
  const double net = static_cast<double>(nanos) - overhead;
  return net <= 0 ? 0 : net >= 4e9 ? UINT32_MAX : static_cast<uint32_t>(net);
}

}  // namespace verbena::bench
