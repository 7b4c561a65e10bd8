// Marks that the bucket cache puts on slots of its copies, so that what keeps going stale is not
// served. Where a slot names another block each time it is looked for, a cached one costs a READ in
// vain; then the bucket is better READ at once.
//
//   plain     as the server has it
//   struck    it was stale when it was last used: once more, and it is withheld. Using it takes the
//             mark off, so that two times in a row are counted and no others.
//   withheld  not served, with a score of 1 to 15. The bucket is READ for each lookup then, which
//             tells without further cost whether the copy would have been right: if so the score
//             falls by 1 and at 0 the slot is served again, else it grows by 2. So slots that
//             change more often than with every third lookup stay withheld.
//
// Marks are size classes that no slot of the server has (a copy that somehow leads to a lookup with
// its mark on names no block that can be read): values, no state beside the copies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/layout/size_class.h"
#include "common/layout/slot.h"

namespace verbena::client {

class SlotMarks {
 public:
  static bool IsStruck(layout::Slot slot) {
    return slot.size_class() >= kStruck && slot.size_class() <= kStruckRun;
  }
  static bool IsWithheld(layout::Slot slot) { return slot.size_class() >= kWithheld; }

  static layout::Slot Strike(layout::Slot slot) {
    const uint32_t size_class = slot.size_class();
    return With(slot, size_class == layout::kRunClass ? kStruckRun : kStruck + size_class);
  }
  // A struck slot without its mark.
  static layout::Slot Forgive(layout::Slot slot) {
    const uint32_t size_class = slot.size_class();
    return With(slot, size_class == kStruckRun ? layout::kRunClass : size_class - kStruck);
  }

  // What to keep of `fresh`, a slot that has just been READ, where the copy had `old` in its place.
  // `wanted`: the lookup that has READ it was for a key of its fingerprint; `struck`: and it had
  // used the copy although it was struck.
  static layout::Slot Update(layout::Slot old, layout::Slot fresh, bool wanted, bool struck) {
    // What the server may not have must not pass for a mark.
    if (!layout::IsValidClass(fresh.size_class())) return {};
    if (fresh.empty() || old.empty() || old.fingerprint() != fresh.fingerprint()) return fresh;
    const bool same = old.offset() == fresh.offset();
    if (IsWithheld(old)) {
      uint32_t score = old.size_class() - kWithheld;
      if (wanted) score = same ? score - 1 : std::min(score + 2, kMaxScore);
      return score == 0 ? fresh : With(fresh, kWithheld + score);
    }
    if (wanted && !same) {
      return struck || IsStruck(old) ? With(fresh, kWithheld + kFirstScore) : Strike(fresh);
    }
    return IsStruck(old) ? Strike(fresh) : fresh;
  }

 private:
  static constexpr uint32_t kStruck = 128;
  static constexpr uint32_t kStruckRun = kStruck + layout::kSizeClasses;
  static constexpr uint32_t kWithheld = 240;  // + score
  static constexpr uint32_t kMaxScore = 15;
  static constexpr uint32_t kFirstScore = 2;
  static_assert(layout::kSizeClasses <= kStruck && kStruckRun < layout::kRunClass &&
                layout::kRunClass < kWithheld && kWithheld + kMaxScore < 256);

  static layout::Slot With(layout::Slot slot, uint32_t size_class) {
    return layout::Slot::Make(slot.fingerprint(), size_class, slot.offset());
  }
};

}  // namespace verbena::client
