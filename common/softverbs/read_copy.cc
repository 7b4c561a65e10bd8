#include "common/softverbs/read_copy.h"

#include <algorithm>
#include <array>

#include "common/base/clock.h"

namespace verbena::softverbs {
namespace internal {

std::atomic<bool> g_hostile_reads{false};

namespace {

// The values in force, copied out of the mutex of switches.cc.
std::atomic<bool> g_random_order{false};
std::atomic<bool> g_split_words{false};
std::atomic<uint32_t> g_pause_ns{0};
std::atomic<uint64_t> g_seed{1};
// Changes with each configuration, so that threads seed themselves anew.
std::atomic<uint64_t> g_generation{0};
std::atomic<uint64_t> g_threads{0};

// SplitMix64: small, fast, good enough to shuffle lines.
uint64_t NextRandom() {
  thread_local uint64_t state = 0;
  thread_local uint64_t generation = ~uint64_t{0};
  const uint64_t current = g_generation.load(std::memory_order_acquire);
  if (generation != current) {
    generation = current;
    state = g_seed.load(std::memory_order_relaxed) +
            g_threads.fetch_add(1, std::memory_order_relaxed) * 0x632be59bd9b4e019u;
  }
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void Pause() {
  const uint32_t limit = g_pause_ns.load(std::memory_order_relaxed);
  if (limit == 0) return;
  const int64_t until = MonotonicNanos() + static_cast<int64_t>(NextRandom() % (limit + 1u));
  while (MonotonicNanos() < until) CpuRelax();
}

template <typename Piece>
void ForEachShuffled(size_t count, bool shuffle, Piece piece) {
  constexpr size_t kBatch = 256;
  std::array<uint16_t, kBatch> order;
  for (size_t base = 0; base < count; base += kBatch) {
    const size_t n = std::min(kBatch, count - base);
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint16_t>(i);
    if (shuffle) {
      for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[NextRandom() % i]);
    }
    for (size_t i = 0; i < n; ++i) piece(base + order[i]);
  }
}

}  // namespace

void HostileReadCopy(void* target, const void* source, size_t size) {
  const bool shuffle = g_random_order.load(std::memory_order_relaxed);
  const bool split = g_split_words.load(std::memory_order_relaxed);
  const auto begin = reinterpret_cast<uintptr_t>(source);
  const uintptr_t end = begin + size;
  const auto copy = [&](uintptr_t from, uintptr_t to) {
    from = std::max(from, begin);
    to = std::min(to, end);
    if (from >= to) return;
    CopyFromShared(static_cast<char*>(target) + (from - begin),
                   static_cast<const char*>(source) + (from - begin), to - from);
  };
  const uintptr_t first = begin / kCacheLine;
  const size_t lines = size == 0 ? 0 : (end - 1) / kCacheLine - first + 1;
  ForEachShuffled(lines, shuffle, [&](size_t line) {
    const uintptr_t at = (first + line) * kCacheLine;
    if (!split) {
      copy(at, at + kCacheLine);
    } else {
      ForEachShuffled(kCacheLine / 8, shuffle, [&](size_t word) {
        copy(at + word * 8, at + word * 8 + 8);
        Pause();
      });
    }
    Pause();
  });
}

}  // namespace internal

void ConfigureReadCopy(const Switches& switches) {
  using namespace internal;
  g_random_order.store(switches.read_random_order, std::memory_order_relaxed);
  g_split_words.store(switches.read_split_words, std::memory_order_relaxed);
  g_pause_ns.store(switches.read_pause_ns, std::memory_order_relaxed);
  g_seed.store(switches.seed, std::memory_order_relaxed);
  g_threads.store(0, std::memory_order_relaxed);
  g_generation.fetch_add(1, std::memory_order_release);
  g_hostile_reads.store(switches.HostileReads(), std::memory_order_release);
}

}  // namespace verbena::softverbs
