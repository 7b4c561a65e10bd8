// What each worker of a store has for itself. Part of the Store's implementation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "server/storage/store.h"

namespace verbena::storage {

// Items up to this size are put together in private memory, hashed there and copied under the lock
// over the old one. Larger ones are written to a new block ahead of the lock, so that neither the
// lock nor the time in which readers find no valid item grows with the value.
inline constexpr uint64_t kMaxStaged = 4096;

// A counter that one thread changes and others read.
class WorkerCounter {
 public:
  void Add(uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// `items` and `live_bytes` wrap below 0 where one worker deletes what others put; the sum over all
// workers is right.
struct alignas(128) Store::Worker {
  WorkerCounter items;
  WorkerCounter live_bytes;
  WorkerCounter failed_allocations;
  WorkerCounter expired;
  WorkerCounter evicted;
  alignas(64) std::array<uint8_t, kMaxStaged> staging;
};

}  // namespace verbena::storage
