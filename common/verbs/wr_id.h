// Tagged slot numbers in place of pointers in wr_id: a completion that arrives for something that
// is gone is noticed, never followed.
//
//   bits 63..56  kind        what the request is; an enum of the user
//   bits 55..32  generation  of the slot; 1 and up, so that 0 is never a valid wr_id
//   bits 31..0   slot
//
// Thread-safety: WrId is a value. A SlotTable is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace verbena::verbs {

inline constexpr uint32_t kMaxGeneration = (1U << 24) - 1;

// A place in a SlotTable at a certain time.
struct SlotRef {
  uint32_t slot = 0;
  uint32_t generation = 0;  // 24 bits
  friend bool operator==(const SlotRef&, const SlotRef&) = default;
};

template <typename Kind>
struct WrId {
  static_assert(std::is_enum_v<Kind> && sizeof(Kind) == 1, "kinds are an enum of 8 bits");

  Kind kind{};
  SlotRef ref;

  WrId() = default;
  WrId(Kind k, SlotRef r) : kind(k), ref(r) {}
  explicit WrId(uint64_t bits)
      : kind(static_cast<Kind>(bits >> 56)),
        ref{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32) & kMaxGeneration} {}

  uint64_t bits() const {
    return uint64_t{static_cast<uint8_t>(kind)} << 56 |
           uint64_t{ref.generation & kMaxGeneration} << 32 | ref.slot;
  }
};

// A fixed number of slots of T. Memory is taken once, in the constructor. A slot's generation grows
// when it is released, so references to what was there before are refused (until it has been used
// 16 million times over).
template <typename T>
class SlotTable {
 public:
  SlotTable() = default;
  // Slots hold value-initialised T until they are first used. T must be movable or the table not
  // resized; references to slots stay valid while the table lives.
  explicit SlotTable(uint32_t capacity) : slots_(capacity) {
    free_.reserve(capacity);
    for (uint32_t slot = capacity; slot > 0; --slot) free_.push_back(slot - 1);
  }

  uint32_t capacity() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t used() const { return static_cast<uint32_t>(slots_.size() - free_.size()); }
  bool full() const { return free_.empty(); }

  // A slot that nobody has; nullopt if all are taken. Its T is as the last user left it.
  std::optional<SlotRef> Acquire() {
    if (free_.empty()) return std::nullopt;
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].in_use = true;
    return SlotRef{slot, slots_[slot].generation};
  }

  // The slot's T, or nullptr if the reference is out of range or of another time.
  T* Find(SlotRef ref) {
    if (ref.slot >= slots_.size()) return nullptr;
    Slot& slot = slots_[ref.slot];
    return slot.in_use && slot.generation == ref.generation ? &slot.value : nullptr;
  }

  // False (and nothing changed) if the reference is not to a slot in use.
  bool Release(SlotRef ref) {
    if (Find(ref) == nullptr) return false;
    Slot& slot = slots_[ref.slot];
    slot.in_use = false;
    slot.generation = slot.generation == kMaxGeneration ? 1 : slot.generation + 1;
    free_.push_back(ref.slot);
    return true;
  }

  // Calls visit(SlotRef, T&) for every slot in use; visit may release that slot.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].in_use) visit(SlotRef{i, slots_[i].generation}, slots_[i].value);
    }
  }

 private:
  struct Slot {
    uint32_t generation = 1;
    bool in_use = false;
    T value{};
  };

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace verbena::verbs
