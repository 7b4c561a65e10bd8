// When items end: their times to live, in timing wheels outside the slice.
//
// A time belongs to the block in which its item lies (a live item's block is no other's), and
// follows the item when it is moved. Nothing of it is in the item, so that setting a time changes
// nothing for readers; the server alone decides when an item has ended, and until it has removed
// the item everybody may still read it.
//
// The times are spread over shards by the key's hash, each with a lock that ranks below the
// buckets' locks. While no item has a time, all questions cost one load.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/storage/item_listener.h"

namespace verbena::storage {

struct ExpiryStats {
  uint64_t timers = 0;  // items that have a time to live
  // Of these, due and not yet removed; see TimingWheel::DueBy.
  uint64_t overdue = 0;
  uint64_t memory = 0;  // bytes
  // Timers that one TakeDue has moved and handed out under one hold of a lock, at most.
  uint64_t most_at_once = 0;
};

// Thread-safe. Times are in nanoseconds of MonotonicNanos.
class Expiry : public ItemListener {
 public:
  // `tick_ns`: how exactly times are kept by the wheel; an item is never found due too early.
  // `wake` is called by Wake; it must only post a wake-up. May be empty.
  Expiry(int64_t tick_ns, int64_t now_ns, std::function<void()> wake = {});
  ~Expiry() override;

  // The caller of the next four holds the lock of the key's bucket, which names `offset`.

  // Gives the item a time, in place of the one it had. True if it is earlier than what NextLook
  // said last: then the caller calls Wake once it holds no lock any more.
  [[nodiscard]] bool Set(layout::KeyHash hash, uint64_t offset, int64_t due_ns);
  // Takes its time away. Returns whether it had one.
  bool Clear(layout::KeyHash hash, uint64_t offset);
  std::optional<int64_t> DueOf(layout::KeyHash hash, uint64_t offset) const;
  bool IsOver(layout::KeyHash hash, uint64_t offset, int64_t now_ns) const {
    if (empty()) return false;
    const std::optional<int64_t> due = DueOf(hash, offset);
    return due.has_value() && *due <= now_ns;
  }

  // Has the thread that called NextLook look again. From any thread; makes a system call.
  void Wake() {
    if (wake_) wake_();
  }

  bool empty() const { return timers_.load(std::memory_order_relaxed) == 0; }

  // An item that was due when it was looked at; it may have been changed, moved or removed since.
  struct DueItem {
    layout::KeyHash hash;
    uint64_t offset = 0;
  };
  // Turns the wheels on and appends up to `most` of the items that are due. Those that are not
  // removed come again with later calls, behind the others. One thread at a time.
  //
  // Where very many timers lie in one slot of a wheel, the wheel stands there for several calls:
  // one moves at most kMostMoved of a shard, so that who waits for the shard's lock (with a
  // bucket's lock held) does not wait for all of them. What is due behind them is late by these
  // calls, and never early.
  static constexpr uint64_t kMostMoved = 256;
  void TakeDue(int64_t now_ns, size_t most, std::vector<DueItem>* items);
  // When TakeDue is worth calling next: now_ns if items are due or a wheel is behind, INT64_MAX if
  // none has a time.
  int64_t NextLook(int64_t now_ns);

  ExpiryStats Stats(int64_t now_ns) const;
  // How long ago the oldest of the times was over that TakeDue could have come to by now, 0 if
  // there is none: what removal is behind. An item is late by no more than this and a tick. Those
  // handed out and not removed stand behind the others. Where a wheel has not gone through a slot
  // yet, it counts from a tick ahead of that, so it may say too much: by a tick and as long as the
  // wheel stands there. ns. Bounded work.
  int64_t Lateness(int64_t now_ns) const;

  void OnInserted(layout::KeyHash, std::string_view, layout::Slot) override {}
  void OnMoved(layout::KeyHash hash, std::string_view key, layout::Slot from, layout::Slot to,
               bool changed) override;
  void OnRemoved(layout::KeyHash hash, std::string_view, layout::Slot slot) override {
    if (!empty()) Clear(hash, slot.offset());
  }

 private:
  static constexpr size_t kShards = 16;
  struct Shard;

  Shard& ShardOf(layout::KeyHash hash) const;
  // Ticks are counted so that one that has come lies wholly in the past.
  uint64_t TickOf(int64_t due_ns) const;
  uint64_t NowTick(int64_t now_ns) const;

  const int64_t tick_ns_;
  const int64_t start_ns_;
  const std::function<void()> wake_;
  std::atomic<uint64_t> timers_{0};
  // Whoever sets a time before this one has the thread woken that called NextLook.
  std::atomic<int64_t> sleeps_until_{INT64_MIN};
  std::unique_ptr<Shard[]> shards_;
  size_t next_shard_ = 0;  // where TakeDue goes on
};

}  // namespace verbena::storage
