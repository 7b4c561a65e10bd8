// Copies between private memory and memory that others change or read at the same time.
//
// The shared side is accessed with relaxed atomic 8-byte words where it is 8-byte aligned (single
// bytes at ragged ends), so that language and sanitizers agree with what the hardware does: a
// reader may see a mix of old and new words, never a torn aligned word. Ordering is the caller's
// business (release stores around it). Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena {

// Reads `size` bytes of shared memory at `source` into private memory at `target`.
inline void CopyFromShared(void* target, const void* source, size_t size) {
  auto* to = static_cast<char*>(target);
  auto* from = static_cast<char*>(const_cast<void*>(source));
  while (size > 0 && (reinterpret_cast<uintptr_t>(from) & 7) != 0) {
    *to++ = std::atomic_ref<char>(*from++).load(std::memory_order_relaxed);
    --size;
  }
  for (; size >= 8; size -= 8, to += 8, from += 8) {
    const uint64_t word = std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(from))
                              .load(std::memory_order_relaxed);
    std::memcpy(to, &word, 8);
  }
  for (; size > 0; --size) {
    *to++ = std::atomic_ref<char>(*from++).load(std::memory_order_relaxed);
  }
}

// Writes `size` bytes of private memory at `source` into shared memory at `target`.
inline void CopyToShared(void* target, const void* source, size_t size) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  while (size > 0 && (reinterpret_cast<uintptr_t>(to) & 7) != 0) {
    std::atomic_ref<char>(*to++).store(*from++, std::memory_order_relaxed);
    --size;
  }
  for (; size >= 8; size -= 8, to += 8, from += 8) {
    uint64_t word;
    std::memcpy(&word, from, 8);
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(to))
        .store(word, std::memory_order_relaxed);
  }
  for (; size > 0; --size) {
    std::atomic_ref<char>(*to++).store(*from++, std::memory_order_relaxed);
  }
}

inline uint64_t LoadRelaxed(const uint64_t* word) {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_relaxed);
}

inline void StoreRelaxed(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_relaxed);
}

inline uint64_t LoadAcquire(const uint64_t* word) {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}

inline void StoreRelease(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

}  // namespace verbena
