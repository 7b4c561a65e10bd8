// Copies of the index's buckets, in bounded memory, shared by threads.
//
// The memory is cut into frames of a segment's shape (256 primary and 32 overflow buckets). Every
// segment that the client knows has a home frame (SegmentMap deals them out in turn), so that a
// bucket has one place to be looked for first; as long as there are no more segments than frames,
// the whole index is mirrored, each bucket at home, and a hit costs one cache miss (the two lines
// of the copy). With less memory than that, the four frames of a group share their buckets'
// places: a bucket may lie in any of them, and CLOCK among the four decides what is replaced.
//
// A copy has a header of its own: depth and prefix of the segment it was read from, also for an
// overflow bucket, so that it says by itself which hashes it serves. Copies may be stale: what
// they say is a hint. Slots that keep going stale are withheld (slot_marks.h).
//
// Thread-safe without locks. All words are read and written by themselves, as relaxed atomics, and
// nothing keeps a reader from seeing the header of one copy with slots of another, or some slots of
// an older one. Any such mixture is harmless:
//   - A slot is only ever used as the place of a READ, which is checked against the slice's bounds
//     first. What the READ brings is accepted if it verifies itself: its check fits its bytes, its
//     own place and the key. By the order of the server's stores (docs/design.md, section 5) a
//     block with such a check is the key's present item, however the reader came to look there; the
//     protocol's model lets readers have any slot whatever.
//   - A copy without the key's slot says nothing: absence is never concluded from copies.
//   - A link leads to a copy of this cache, at most kOverflowBuckets times, and that copy's slots
//     are as above. A header only chooses which copy is looked at.
//   - A mark that is wrong costs a READ, or saves none.
// So a mixture costs at most one READ in vain. What is then READ replaces the whole copy; two
// writers that replace one at the same time may leave another mixture, and the same holds of it.
// Nothing is allocated after creation.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/relaxed_copy.h"
#include "common/layout/bucket.h"

namespace verbena::client {

class BucketCache {
 public:
  // Buckets in a frame: index 0..255 are the primary ones, then the overflow buckets.
  static constexpr uint32_t kFrameBuckets = layout::kBuckets + layout::kOverflowBuckets;
  static constexpr uint64_t kFrameBytes = uint64_t{kFrameBuckets} * layout::kBucketSize;
  static constexpr uint32_t kWays = 4;

  // Uses at most `bytes` bytes; too few for a frame (36 KiB), or memory that cannot be had, make a
  // cache that holds nothing. Memory is taken from the system as it is used.
  explicit BucketCache(uint64_t bytes);
  ~BucketCache();
  BucketCache(const BucketCache&) = delete;
  BucketCache& operator=(const BucketCache&) = delete;

  uint32_t frames() const { return frames_; }
  bool enabled() const { return frames_ != 0; }

  static uint32_t OverflowIndex(uint32_t link) { return layout::kBuckets + link - 1; }

  // Where the bucket is looked for first, of which the lines are asked for. Requires enabled() and
  // frame < frames(). Always inline, since gcc takes a function that only prefetches for one
  // without effect and drops its calls.
  [[gnu::always_inline]] layout::Bucket* Prefetch(uint32_t frame, uint32_t index) const {
    layout::Bucket* const home = At(frame, index);
    __builtin_prefetch(home);
    __builtin_prefetch(reinterpret_cast<const char*>(home) + 64);
    return home;
  }
  // Whether what lies at home is a copy that serves `hash`, and has been used before: Find would
  // return it, unchanged.
  static bool ServesAtHome(const layout::Bucket& home, layout::KeyHash hash) {
    // Only what is filled is ever marked as used, and its header had a sensible depth when it was
    // stored; but whatever lies here, its slots only name places for READs.
    const layout::BucketHeader header = HeaderOf(home);
    return (header.bits & kReferenced) != 0 && header.AgreesWith(hash);
  }

  // A copy of bucket `index` of the segment that has home `frame` and serves `hash`, or nullptr.
  // Others may change it at any time: to be read in relaxed atomic words only. Requires enabled()
  // and frame < frames().
  layout::Bucket* Find(uint32_t frame, uint32_t index, layout::KeyHash hash) {
    layout::Bucket* home = At(frame, index);
    if (Serves(HeaderOf(*home), hash)) return Touch(home);
    return ways_ == 1 ? nullptr : FindElsewhere(frame, index, hash);
  }

  // The link of a copy (0, or 1 to kOverflowBuckets).
  static uint32_t Link(const layout::Bucket& copy) { return HeaderOf(copy).link() & kLinkMask; }

  // Keeps a copy of `bucket`, which has just been read, for the segment whose primary headers say
  // `cover`; it takes the place of an older copy that serves `hash`, from which it takes over the
  // marks. `bucket.header.link()` must be at most kOverflowBuckets. `struck`: the lookup, of a key
  // with this hash, has found the older copy stale and the slot struck.
  void Store(uint32_t frame, uint32_t index, layout::KeyHash hash, layout::BucketHeader cover,
             const layout::Bucket& bucket, bool struck = false);

  // Takes the mark off a struck slot of a copy, if the copy still has it.
  static void Forgive(layout::Bucket* copy, layout::Slot slot);

 private:
  // Bits of a copy's link that the server does not use.
  static constexpr uint32_t kLinkMask = 0xff;
  static constexpr uint32_t kFilled = 1u << 15;
  static constexpr uint32_t kReferenced = 1u << 14;
  static_assert(layout::kOverflowBuckets <= kLinkMask);

  layout::Bucket* At(uint32_t frame, uint32_t index) const {
    return buckets_ + (uint64_t{frame} * kFrameBuckets + index);
  }
  static layout::BucketHeader HeaderOf(const layout::Bucket& copy) {
    return {LoadRelaxed(&copy.header.bits)};
  }
  static bool Serves(layout::BucketHeader header, layout::KeyHash hash) {
    return (header.bits & kFilled) != 0 && header.Covers(hash);
  }
  // Written only when it changes something: a line that is only read stays in all caches.
  static layout::Bucket* Touch(layout::Bucket* copy) {
    if ((HeaderOf(*copy).bits & kReferenced) == 0) [[unlikely]] {
      std::atomic_ref(copy->header.bits).fetch_or(kReferenced, std::memory_order_relaxed);
    }
    return copy;
  }
  layout::Bucket* FindElsewhere(uint32_t frame, uint32_t index, layout::KeyHash hash);
  layout::Bucket* ChoosePlace(uint32_t frame, uint32_t index, layout::KeyHash hash);

  layout::Bucket* buckets_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  uint32_t frames_ = 0;  // a multiple of ways_
  uint32_t ways_ = 1;    // frames in a group
};

}  // namespace verbena::client
