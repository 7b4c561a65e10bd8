#include "server/storage/timing_wheel.h"

#include <algorithm>

namespace verbena::storage {

TimingWheel::Id TimingWheel::Add(const Timer& timer) {
  Id id = free_;
  if (id != kNone) {
    free_ = nodes_[id].next;
  } else {
    id = static_cast<Id>(nodes_.size());
    nodes_.emplace_back();
  }
  nodes_[id].timer = timer;
  Link(id, ListFor(timer.tick));
  ++size_;
  return id;
}

void TimingWheel::Remove(Id id) {
  Unlink(id);
  nodes_[id].list = kFreeList;
  nodes_[id].next = free_;
  free_ = id;
  --size_;
}

void TimingWheel::RotateDue() {
  const Id id = due_head_;
  if (id == kNone || id == due_tail_) return;
  Unlink(id);
  Link(id, kDueList);
}

// One that is further ahead than the wheel reaches waits in the last slot and is placed again when
// that comes round.
uint32_t TimingWheel::ListFor(uint64_t tick) const {
  if (tick <= now_) return kDueList;
  const uint64_t placed = std::min(tick, now_ + kMostAhead);
  // The highest group of 8 bits in which the tick differs from now is its level: in all higher
  // groups the wheel already stands where the timer wants it.
  unsigned level = kLevels - 1;
  while (level > 0 && (placed ^ now_) >> (kLevelBits * level) == 0) --level;
  const uint64_t slot = placed >> (kLevelBits * level) & (kSlots - 1);
  return static_cast<uint32_t>(level * kSlots + slot);
}

void TimingWheel::Link(Id id, uint32_t list) {
  Node& node = nodes_[id];
  node.list = list;
  if (list == kDueList) {  // in order
    node.next = kNone;
    node.previous = due_tail_;
    (due_tail_ != kNone ? nodes_[due_tail_].next : due_head_) = id;
    due_tail_ = id;
    ++due_count_;
    return;
  }
  ++counts_[list];
  Id& head = slots_[list];
  node.previous = kNone;
  node.next = head;
  if (head != kNone) nodes_[head].previous = id;
  head = id;
}

void TimingWheel::Unlink(Id id) {
  const Node& node = nodes_[id];
  const bool due = node.list == kDueList;
  if (node.previous != kNone) {
    nodes_[node.previous].next = node.next;
  } else {
    (due ? due_head_ : slots_[node.list]) = node.next;
  }
  if (node.next != kNone) {
    nodes_[node.next].previous = node.previous;
  } else if (due) {
    due_tail_ = node.previous;
  }
  if (due) {
    --due_count_;
  } else {
    --counts_[node.list];
  }
}

// Places up to `most` timers of a slot anew. Returns how many.
uint64_t TimingWheel::Spread(uint32_t list, uint64_t most) {
  uint64_t moved = 0;
  for (; moved < most && slots_[list] != kNone; ++moved) {
    const Id id = slots_[list];
    Unlink(id);
    Link(id, ListFor(nodes_[id].timer.tick));
  }
  return moved;
}

// now_ does not go on before the slots that begin there are empty. Meanwhile nothing is put into
// these: a timer goes into the slot at which the wheel stands in one case only, if it lies further
// ahead than the wheel reaches and now_ is in the middle of a slot of the last level (ListFor). So
// each step leaves fewer timers there, and none is left behind.
uint64_t TimingWheel::Advance(uint64_t tick, uint64_t most) {
  uint64_t used = 0;
  for (;;) {
    // The widest first.
    while (unspread_levels_ > 0) {
      const unsigned level = unspread_levels_ - 1;
      const unsigned shift = kLevelBits * level;
      if ((now_ & ((uint64_t{1} << shift) - 1)) == 0) {
        const auto list = static_cast<uint32_t>(level * kSlots + (now_ >> shift & (kSlots - 1)));
        used += Spread(list, most - used);
        if (used == most) return used;
      }
      --unspread_levels_;
    }
    if (now_ >= tick) return used;
    // Straight to where something can be.
    now_ = std::min(NextSlot(), tick);
    unspread_levels_ = kLevels;
    if (++used >= most) return most;
  }
}

// A slot behind the one at which the level stands comes with the level's next round, and so does
// that one itself if now() is in the middle of it (Advance).
uint64_t TimingWheel::DueBy(uint64_t tick) const {
  uint64_t sum = due_count_;
  for (unsigned level = 0; level < kLevels && sum < size_; ++level) {
    const unsigned shift = kLevelBits * level;
    const uint64_t at = now_ >> shift;
    const uint64_t first = at << shift == now_ ? at : at + 1;
    for (uint64_t slot = first; slot < first + kSlots && slot << shift <= tick; ++slot) {
      const auto list = static_cast<uint32_t>(level * kSlots + slot % kSlots);
      sum += slot < tick >> shift ? counts_[list] : DueInSlot(list, tick);
    }
  }
  return sum;
}

// Of the slot in which `tick` lies.
uint64_t TimingWheel::DueInSlot(uint32_t list, uint64_t tick) const {
  uint64_t seen = 0;
  uint64_t due = 0;
  for (Id id = slots_[list]; id != kNone && seen < kMostSeen; id = nodes_[id].next) {
    ++seen;
    if (nodes_[id].timer.tick <= tick) ++due;
  }
  return seen == 0 ? 0 : counts_[list] * due / seen;
}

uint64_t TimingWheel::NextTick() const {
  return due_count_ > 0 || unspread_levels_ > 0 ? now_ : NextSlot();
}

// When the next slot that has timers begins. Those of a level ahead of where it stands all begin
// before those of the levels above.
uint64_t TimingWheel::NextSlot() const {
  if (size_ == due_count_) return UINT64_MAX;
  for (unsigned level = 0; level < kLevels; ++level) {
    const unsigned shift = kLevelBits * level;
    const uint64_t at = now_ >> shift;
    // The level's slots ahead of where it stands, until it comes round.
    for (uint64_t slot = (at & (kSlots - 1)) + 1; slot < kSlots; ++slot) {
      if (slots_[level * kSlots + slot] == kNone) continue;
      return (at - (at & (kSlots - 1)) + slot) << shift;
    }
  }
  // All that is left has been placed beyond the last level's round.
  const unsigned shift = kLevelBits * kLevels;
  return ((now_ >> shift) + 1) << shift;
}

}  // namespace verbena::storage
