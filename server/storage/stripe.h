// The server's private half of a bucket: its lock, and the counter that versions come from.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "common/base/clock.h"

namespace verbena::storage {

// One word: the top bit is the lock, the rest counts the changes of the bucket's keys.
//
// Versions come from the bucket and not from ranges that workers hold: a range would have to be
// compared with the item that is replaced, and forgets a key that was deleted. The counter starts
// at the time since 1970 in nanoseconds, hence above all versions of an earlier start (a bucket
// changes less than once a nanosecond), and only grows; a segment that is split hands its counters
// on. So versions of a key strictly grow, across deletions too.
//
// A waiter yields after a short spin, since a split holds all locks of a segment for some 100
// microseconds.
class Stripe {
 public:
  void Lock() {
    for (int spins = 0;; ++spins) {
      uint64_t word = word_.load(std::memory_order_relaxed);
      if ((word & kLocked) == 0 &&
          word_.compare_exchange_weak(word, word | kLocked, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        return;
      }
      if (spins < 100) {
        CpuRelax();
      } else {
        sched_yield();
      }
    }
  }
  void Unlock() {
    word_.store(word_.load(std::memory_order_relaxed) & ~kLocked, std::memory_order_release);
  }

  // The rest is for the holder of the lock.

  // The version of the next change.
  uint64_t NextVersion() {
    const uint64_t word = word_.load(std::memory_order_relaxed) + 1;
    word_.store(word, std::memory_order_relaxed);
    return word & ~kLocked;
  }
  uint64_t version() const { return word_.load(std::memory_order_relaxed) & ~kLocked; }
  // Before anyone else knows the stripe.
  void InitLocked(uint64_t version) { word_.store(version | kLocked, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kLocked = uint64_t{1} << 63;

  std::atomic<uint64_t> word_{0};
};

}  // namespace verbena::storage
