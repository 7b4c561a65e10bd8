#include "server/storage/expiry.h"

#include <algorithm>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "common/base/spinlock.h"
#include "server/storage/timing_wheel.h"

namespace verbena::storage {

using layout::KeyHash;

struct alignas(128) Expiry::Shard {
  mutable SpinLock lock;
  struct Time {
    int64_t due_ns;
    TimingWheel::Id timer;
  };
  absl::flat_hash_map<uint64_t, Time> times;  // by the block's offset
  TimingWheel wheel{0};
  uint64_t most_at_once = 0;
};

Expiry::Expiry(int64_t tick_ns, int64_t now_ns, std::function<void()> wake)
    : tick_ns_(tick_ns),
      start_ns_(now_ns),
      wake_(std::move(wake)),
      shards_(std::make_unique<Shard[]>(kShards)) {}

Expiry::~Expiry() = default;

// The bits between prefix and fingerprint, and some of the fingerprint's.
Expiry::Shard& Expiry::ShardOf(KeyHash hash) const {
  return shards_[hash.bits >> (layout::kBucketBits + layout::kFingerprintBits - 2) & (kShards - 1)];
}

uint64_t Expiry::TickOf(int64_t due_ns) const {
  const int64_t ahead = std::max<int64_t>(0, due_ns - start_ns_);
  return static_cast<uint64_t>(ahead / tick_ns_ + (ahead % tick_ns_ != 0 ? 1 : 0));
}

uint64_t Expiry::NowTick(int64_t now_ns) const {
  return static_cast<uint64_t>(std::max<int64_t>(0, now_ns - start_ns_) / tick_ns_);
}

// A NextLook that has looked at this shard before the timer was there has set sleeps_until_ before
// it took the shard's lock, so that it is seen here; one that looks afterwards finds the timer. The
// store lets others be silent until the next look: the wake-up that is due stands for all.
bool Expiry::Set(KeyHash hash, uint64_t offset, int64_t due_ns) {
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const auto [found, added] = shard.times.try_emplace(offset);
  if (added) {
    timers_.fetch_add(1, std::memory_order_relaxed);
  } else {
    shard.wheel.Remove(found->second.timer);
  }
  found->second = {due_ns, shard.wheel.Add({TickOf(due_ns), hash.bits, offset})};
  if (due_ns >= sleeps_until_.load()) return false;
  sleeps_until_.store(INT64_MIN);
  return true;
}

bool Expiry::Clear(KeyHash hash, uint64_t offset) {
  if (empty()) return false;
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const auto found = shard.times.find(offset);
  if (found == shard.times.end()) return false;
  shard.wheel.Remove(found->second.timer);
  shard.times.erase(found);
  timers_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

std::optional<int64_t> Expiry::DueOf(KeyHash hash, uint64_t offset) const {
  if (empty()) return std::nullopt;
  const Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const auto found = shard.times.find(offset);
  if (found == shard.times.end()) return std::nullopt;
  return found->second.due_ns;
}

void Expiry::OnMoved(KeyHash hash, std::string_view /*key*/, layout::Slot from, layout::Slot to,
                     bool /*changed*/) {
  if (empty()) return;
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const auto found = shard.times.find(from.offset());
  if (found == shard.times.end()) return;
  const Shard::Time time = found->second;
  shard.times.erase(found);
  shard.times.insert_or_assign(to.offset(), time);
  shard.wheel.SetOffset(time.timer, to.offset());
}

void Expiry::TakeDue(int64_t now_ns, size_t most, std::vector<DueItem>* items) {
  const uint64_t tick = NowTick(now_ns);
  for (size_t turn = 0; turn < kShards && most > 0; ++turn) {
    Shard& shard = shards_[next_shard_];
    next_shard_ = (next_shard_ + 1) % kShards;
    const std::lock_guard lock(shard.lock);
    if (shard.wheel.size() == 0 && tick == shard.wheel.now()) continue;
    const uint64_t moved = shard.wheel.Advance(tick, kMostMoved);
    const uint64_t taken = std::min<uint64_t>(most, shard.wheel.due());
    shard.most_at_once = std::max(shard.most_at_once, moved + taken);
    for (uint64_t left = taken; left > 0; --left, --most) {
      const TimingWheel::Timer& timer = shard.wheel.At(shard.wheel.FirstDue());
      items->push_back({KeyHash{timer.hash}, timer.offset});
      shard.wheel.RotateDue();
    }
  }
}

// While the wheels are asked, every time that is set wakes: it may come to one already passed.
int64_t Expiry::NextLook(int64_t now_ns) {
  sleeps_until_.store(INT64_MAX);
  uint64_t next = UINT64_MAX;
  for (size_t i = 0; i < kShards; ++i) {
    const Shard& shard = shards_[i];
    const std::lock_guard lock(shard.lock);
    next = std::min(next, shard.wheel.NextTick());
  }
  constexpr uint64_t kMostNanos = uint64_t{1} << 62;
  if (next >= kMostNanos / static_cast<uint64_t>(tick_ns_)) return INT64_MAX;
  const int64_t look = std::max(now_ns, start_ns_ + static_cast<int64_t>(next) * tick_ns_);
  int64_t everything = INT64_MAX;
  sleeps_until_.compare_exchange_strong(everything, look);
  return look;
}

ExpiryStats Expiry::Stats(int64_t now_ns) const {
  ExpiryStats stats;
  const uint64_t tick = NowTick(now_ns);
  for (size_t i = 0; i < kShards; ++i) {
    const Shard& shard = shards_[i];
    const std::lock_guard lock(shard.lock);
    stats.timers += shard.wheel.size();
    stats.overdue += shard.wheel.DueBy(tick);
    stats.most_at_once = std::max(stats.most_at_once, shard.most_at_once);
    stats.memory += shard.wheel.memory() +
                    shard.times.capacity() * (sizeof(std::pair<uint64_t, Shard::Time>) + 1);
  }
  return stats;
}

int64_t Expiry::Lateness(int64_t now_ns) const {
  if (empty()) return 0;
  const auto tick = static_cast<int64_t>(NowTick(now_ns));
  int64_t lateness = 0;
  for (size_t i = 0; i < kShards; ++i) {
    const Shard& shard = shards_[i];
    const std::lock_guard lock(shard.lock);
    if (shard.wheel.size() == 0) continue;
    if (shard.wheel.due() > 0) {
      const TimingWheel::Timer& oldest = shard.wheel.At(shard.wheel.FirstDue());
      lateness = std::max(lateness, now_ns - shard.times.at(oldest.offset).due_ns);
      continue;
    }
    const uint64_t next = shard.wheel.NextTick();
    if (next > static_cast<uint64_t>(tick)) continue;
    // A time lies up to a tick ahead of the tick that it is due at.
    const int64_t earliest = start_ns_ + (static_cast<int64_t>(next) - 1) * tick_ns_;
    lateness = std::max(lateness, now_ns - earliest);
  }
  return lateness;
}

}  // namespace verbena::storage
