// What is known of a server's index, for all connections of a client at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "client/src/bucket_cache.h"
#include "client/src/segment_map.h"
#include "client/src/slice_shape.h"

namespace verbena::client {

// What is known of the index of one slice, of one incarnation of its server. Thread-safe.
struct IndexCache {
  IndexCache(const SliceShape& slice, uint64_t cache_bytes)
      : shape(slice), buckets(cache_bytes), segments(slice, buckets.frames()) {}

  const SliceShape shape;
  BucketCache buckets;
  SegmentMap segments;
  // Takes in a segment that has just been READ whole. Nothing in `bytes` is trusted.
  void StoreSegment(SegmentRef segment, std::span<const uint8_t> bytes);

  std::atomic<bool> preloaded{false};  // somebody READs the whole index into it, or has done so
};

// Gives connections to one server the same IndexCache. Of another incarnation of the server nothing
// that is known holds any more: the first connection that meets it begins anew, and so does each
// other one when it connects again; what they had before goes with the last that uses it.
// Thread-safe.
class SharedCache {
 public:
  // Each IndexCache holds copies of at most `cache_bytes` bytes.
  explicit SharedCache(uint64_t cache_bytes) : cache_bytes_(cache_bytes) {}

  // The cache for a slice: the one that others have got if it is of the same slice and incarnation,
  // else a new one. To be asked each time that a connection has been made.
  std::shared_ptr<IndexCache> For(const SliceShape& shape) {
    const std::lock_guard lock(mutex_);
    if (index_ == nullptr || index_->shape != shape) {
      index_ = std::make_shared<IndexCache>(shape, cache_bytes_);
    }
    return index_;
  }

  // Forgets what is known: who asks from now on begins anew.
  void Clear() {
    const std::lock_guard lock(mutex_);
    index_ = nullptr;
  }

 private:
  const uint64_t cache_bytes_;
  std::mutex mutex_;
  std::shared_ptr<IndexCache> index_;
};

}  // namespace verbena::client
