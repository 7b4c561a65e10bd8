// A hierarchical timing wheel: things that are due at a tick, in lists by when they are due.
//
// Level l has 256 slots of 256^l ticks each. A timer lies in the lowest level whose slots reach its
// tick; when the wheel comes to a slot of a higher level, its timers are spread over the lower
// ones. Adding and removing take constant time; each timer is touched at most once a level. Timers
// that are due lie in a list of their own until they are removed. (Varghese and Lauck, "Hashed and
// Hierarchical Timing Wheels", SOSP 1987, scheme 7.)
//
// A slot may hold any number of timers, so the wheel is turned in steps of bounded work: it stands
// where it has come to, in the middle of a slot perhaps, until the next step goes on there.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace verbena::storage {

class TimingWheel {
 public:
  using Id = uint32_t;
  static constexpr Id kNone = UINT32_MAX;
  static constexpr uint64_t kMostSeen = 1024;

  // What a timer carries.
  struct Timer {
    uint64_t tick = 0;  // due then
    uint64_t hash = 0;
    uint64_t offset = 0;
  };

  explicit TimingWheel(uint64_t now_tick) : now_(now_tick) { slots_.fill(kNone); }

  // A timer whose tick is not ahead of now() is due at once.
  Id Add(const Timer& timer);
  void Remove(Id id);
  const Timer& At(Id id) const { return nodes_[id].timer; }
  // Changes what the timer carries but for its tick.
  void SetOffset(Id id, uint64_t offset) { nodes_[id].timer.offset = offset; }

  // Goes on towards `tick`: moves up to `most` timers (1 or more) and as many slots. Returns how
  // much of that it has used; if less than `most` it has arrived, and all timers due until then are
  // on the list of those due. Else now() is `tick` or earlier, and the next call goes on there.
  uint64_t Advance(uint64_t tick, uint64_t most = UINT64_MAX);

  // The timers that are due, each until it is removed: the first one, and putting it last, so that
  // one that cannot be dealt with does not hold up the others.
  Id FirstDue() const { return due_head_; }
  void RotateDue();
  uint64_t due() const { return due_count_; }
  // Timers that are due by `tick`, found or not. Exact, but where a slot in which `tick` lies, and
  // that Advance has not spread, has more than kMostSeen timers: of these it is estimated from so
  // many. Bounded work.
  uint64_t DueBy(uint64_t tick) const;

  // The earliest tick at which Advance may find a timer due; UINT64_MAX if there is none, now() if
  // some are due or a slot is not done with. Never too late; it may be too early, by the width of a
  // slot of a higher level.
  uint64_t NextTick() const;

  uint64_t size() const { return size_; }
  // The tick that it has come to.
  uint64_t now() const { return now_; }
  // Bytes of memory held.
  uint64_t memory() const { return nodes_.capacity() * sizeof(Node) + sizeof(*this); }

 private:
  static constexpr unsigned kLevelBits = 8;
  static constexpr uint64_t kSlots = uint64_t{1} << kLevelBits;
  static constexpr unsigned kLevels = 5;  // 2^40 ticks
  static constexpr uint64_t kMostAhead = (uint64_t{1} << (kLevelBits * kLevels)) - 1;
  static constexpr uint32_t kDueList = kLevels * kSlots;
  static constexpr uint32_t kFreeList = kDueList + 1;

  struct Node {
    Timer timer;
    Id next = kNone;
    Id previous = kNone;
    uint32_t list = kFreeList;  // slot, or kDueList
  };

  uint64_t NextSlot() const;
  uint64_t DueInSlot(uint32_t list, uint64_t tick) const;
  uint32_t ListFor(uint64_t tick) const;
  void Link(Id id, uint32_t list);
  void Unlink(Id id);
  uint64_t Spread(uint32_t list, uint64_t most);

  uint64_t now_;
  // Levels, from the lowest on, whose slots that begin at now_ may have timers to be spread still.
  unsigned unspread_levels_ = 0;
  uint64_t size_ = 0;
  std::vector<Node> nodes_;
  Id free_ = kNone;
  std::array<Id, kLevels * kSlots> slots_;  // heads
  std::array<uint32_t, kLevels * kSlots> counts_{};
  Id due_head_ = kNone;
  Id due_tail_ = kNone;
  uint64_t due_count_ = 0;
};

}  // namespace verbena::storage
