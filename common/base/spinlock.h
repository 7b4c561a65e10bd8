// A small lock for critical sections of a few hundred nanoseconds, used through std::lock_guard.
// After a short spin the waiter yields, so that a holder that lost its processor can go on.
// Not for memory shared between processes: a killed holder would never release it.
#pragma once

#include <sched.h>

#include <atomic>

#include "common/base/clock.h"

namespace verbena {

class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) Wait();
  }
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  void Wait() {
    for (int spins = 0; held_.load(std::memory_order_relaxed); ++spins) {
      if (spins < 100) {
        CpuRelax();
      } else {
        sched_yield();
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace verbena
