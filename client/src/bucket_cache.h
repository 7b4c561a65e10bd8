// Copies of the index's buckets, in bounded memory.
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
// they say is a hint. Nothing is allocated after creation. Not thread-safe.
#pragma once

#include <cstdint>

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

  // Asks for the lines where the bucket is looked for first. Requires enabled(). Always inline,
  // since gcc takes a function that only prefetches for one without effect and drops its calls.
  [[gnu::always_inline]] void Prefetch(uint32_t frame, uint32_t index) const {
    const auto* bucket = reinterpret_cast<const char*>(At(frame, index));
    __builtin_prefetch(bucket);
    __builtin_prefetch(bucket + 64);
  }

  // A copy of bucket `index` of the segment that has home `frame` and serves `hash`, or nullptr.
  // Valid until the next Store. Requires enabled() and frame < frames().
  const layout::Bucket* Find(uint32_t frame, uint32_t index, layout::KeyHash hash) {
    layout::Bucket* home = At(frame, index);
    if (Serves(*home, hash)) return Touch(home);
    return ways_ == 1 ? nullptr : FindElsewhere(frame, index, hash);
  }

  // The link of a copy (0, or 1 to kOverflowBuckets).
  static uint32_t Link(const layout::Bucket& copy) { return copy.header.link() & kLinkMask; }

  // Keeps a copy of `bucket`, which has just been read, for the segment whose primary headers say
  // `cover`; it takes the place of an older copy that serves `hash`. `bucket.header.link()` must be
  // at most kOverflowBuckets.
  void Store(uint32_t frame, uint32_t index, layout::KeyHash hash, layout::BucketHeader cover,
             const layout::Bucket& bucket);

 private:
  // Bits of a copy's link that the server does not use.
  static constexpr uint32_t kLinkMask = 0xff;
  static constexpr uint32_t kFilled = 1u << 15;
  static constexpr uint32_t kReferenced = 1u << 14;
  static_assert(layout::kOverflowBuckets <= kLinkMask);

  layout::Bucket* At(uint32_t frame, uint32_t index) const {
    return buckets_ + (uint64_t{frame} * kFrameBuckets + index);
  }
  static bool Serves(const layout::Bucket& copy, layout::KeyHash hash) {
    return (copy.header.bits & kFilled) != 0 && copy.header.Covers(hash);
  }
  static layout::Bucket* Touch(layout::Bucket* copy) {
    // Written only when it changes something: a read-only line need not be written back.
    if ((copy->header.bits & kReferenced) == 0) copy->header.bits |= kReferenced;
    return copy;
  }
  const layout::Bucket* FindElsewhere(uint32_t frame, uint32_t index, layout::KeyHash hash);
  layout::Bucket* ChoosePlace(uint32_t frame, uint32_t index, layout::KeyHash hash);

  layout::Bucket* buckets_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  uint32_t frames_ = 0;  // a multiple of ways_
  uint32_t ways_ = 1;    // frames in a group
};

}  // namespace verbena::client
