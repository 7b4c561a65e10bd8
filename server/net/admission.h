// How many connections there are and may be, over all fabrics. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"

namespace verbena::net {

class Admission {
 public:
  void set_limit(uint32_t limit) { limit_ = limit; }
  uint32_t limit() const { return limit_; }
  uint32_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  bool TryEnter() {
    const std::lock_guard lock(mutex_);
    if (count_ >= limit_) return false;
    ++count_;
    return true;
  }
  void Leave() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) empty_.notify_all();
  }
  // Whether there are none before the time is over.
  bool WaitEmpty(absl::Duration limit) {
    std::unique_lock lock(mutex_);
    return empty_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return count_ == 0; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  uint32_t count_ = 0;
  uint32_t limit_ = 0;  // set before threads exist
};

}  // namespace verbena::net
