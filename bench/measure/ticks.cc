#include "bench/measure/ticks.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace verbena::bench {
namespace ticks_internal {
namespace {

constexpr int64_t kCalibrationNanos = 20'000'000;

#if defined(__x86_64__)
// The counter must run at one rate whatever the processor's frequency and sleep states, and the
// kernel must trust it (it falls back to another source where cores disagree).
bool CounterIsInvariant() {
  std::ifstream source("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  source >> name;
  if (name != "tsc" && name != "kvm-clock") return false;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("flags", 0) == 0) {
      return line.find("constant_tsc") != std::string::npos &&
             line.find("nonstop_tsc") != std::string::npos;
    }
  }
  return false;
}

// A reading of both clocks at the same instant: the tightest of a few attempts.
struct Reading {
  int64_t nanos = 0;
  int64_t ticks = 0;
};
Reading ReadBoth() {
  Reading best;
  int64_t best_width = INT64_MAX;
  for (int i = 0; i < 10; ++i) {
    const auto before = static_cast<int64_t>(__rdtsc());
    const int64_t nanos = MonotonicNanos();
    const auto after = static_cast<int64_t>(__rdtsc());
    if (after - before < best_width) {
      best_width = after - before;
      best = {nanos, before + (after - before) / 2};
    }
  }
  return best;
}

Scale Measure() {
  if (!CounterIsInvariant()) return {};
  const Reading first = ReadBoth();
  while (MonotonicNanos() - first.nanos < kCalibrationNanos) CpuRelax();
  const Reading second = ReadBoth();
  if (second.ticks <= first.ticks) return {};
  return {true, static_cast<double>(second.nanos - first.nanos) /
                    static_cast<double>(second.ticks - first.ticks)};
}
#else
Scale Measure() { return {}; }
#endif

}  // namespace

const Scale& GetScale() {
  static const Scale scale = Measure();
  return scale;
}

}  // namespace ticks_internal

const char* TickSource() {
  return ticks_internal::GetScale().use_counter ? "rdtsc" : "clock_gettime";
}

double TickClock::PairOverheadNanos() const {
  std::array<int64_t, 1001> widths;
  for (int64_t& width : widths) {
    const int64_t from = NowSerial();
    width = NowSerial() - from;
  }
  std::nth_element(widths.begin(), widths.begin() + widths.size() / 2, widths.end());
  return static_cast<double>(widths[widths.size() / 2]) * scale_.nanos_per_tick;
}

}  // namespace verbena::bench
