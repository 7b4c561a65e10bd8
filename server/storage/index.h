// The index of a slice: directory, segments, buckets, and the locks around them.
//
// The words that remote readers see (directory, bucket headers, slots) are in the slice; the locks,
// counters and lists of free overflow buckets are private (segment_table.h). An operation on a key
// is a ChangeScope: it finds and locks the key's bucket, and what it does to the bucket's slots
// follows publish.h.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/relaxed_copy.h"
#include "common/layout/bucket.h"
#include "common/layout/directory.h"
#include "common/layout/item.h"
#include "common/layout/slot_match.h"
#include "common/layout/xxh3.h"
#include "server/storage/allocator.h"
#include "server/storage/region.h"
#include "server/storage/segment_table.h"

namespace verbena::storage {

struct IndexUsage {
  uint64_t segments = 0;
  uint64_t splits = 0;
  uint64_t overflow_buckets = 0;  // linked to a bucket
};

// Thread-safe.
class Index {
 public:
  // Sets up the directory with one segment for all keys. Region and allocator must outlive the
  // Index.
  static absl::StatusOr<std::unique_ptr<Index>> Create(const Region& region, Allocator& allocator);

  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  layout::KeyHash Hash(std::string_view key) const { return layout::KeyHash::Of(key, seed_); }
  // The slice's, for all of its hashes.
  const layout::SeededXxh3& seed() const { return seed_; }

  // Starts to fetch what a ChangeScope of this hash will need first: lock and bucket.
  void Prefetch(layout::KeyHash hash) const {
    const uint64_t segment = SegmentOf(hash);
    __builtin_prefetch(&segments_.At(segment).stripes[hash.bucket()], 1);
    const uint8_t* bucket = region_.At(segment + layout::BucketOffset(hash.bucket()));
    __builtin_prefetch(bucket, 1);
    __builtin_prefetch(bucket + 64, 1);
  }

  // The second step, some time after Prefetch: starts to fetch the block that an item with this
  // hash would lie in, as far as a look into the bucket without its lock can tell.
  void PrefetchItem(layout::KeyHash hash) const {
    const layout::Bucket* bucket = BucketAt(SegmentOf(hash) + layout::BucketOffset(hash.bucket()));
    // Without a branch for each slot: nobody could guess them, and a wrong guess would hold up all
    // that the processor could do while the bucket is on its way.
    for (uint32_t mask = layout::MatchSlots(*bucket, hash.fingerprint()); mask != 0;
         mask &= mask - 1) {
      const layout::Slot slot{
          LoadRelaxed(&bucket->slots[static_cast<size_t>(std::countr_zero(mask))].bits)};
      // Of an empty slot the block would be the region's header; a prefetch of that costs nothing.
      const uint8_t* block = region_.At(slot.offset());
      for (int line = 0; line < kPrefetchedLines; ++line) {
        __builtin_prefetch(block + line * kCacheLine, 1);
      }
    }
  }

  // Splits the segment of `hash`, unless its depth is not `depth` any more because somebody else
  // has split it. ResourceExhausted if there is no memory for a segment or the directory is full;
  // then nothing has changed. The caller holds no bucket.
  absl::Status Split(layout::KeyHash hash, unsigned depth);

  IndexUsage Usage() const;
  // Segments of this local depth cannot be split.
  unsigned directory_depth() const { return directory_depth_; }

 private:
  friend class ChangeScope;

  static constexpr int kCacheLine = 64;
  static constexpr int kPrefetchedLines = 3;

  // The keys of a segment with hash bit `depth` (counted from the top) set, as a segment.
  struct SplitPlan;

  Index(const Region& region, Allocator& allocator, SegmentTable segments);

  // The segment that the directory names; it may have been split meanwhile.
  uint64_t SegmentOf(layout::KeyHash hash) const {
    const uint64_t word = LoadAcquire(&directory_[hash.directory_index(directory_depth_)]);
    return layout::DirectoryEntry{word}.segment_offset();
  }
  layout::Bucket* BucketAt(uint64_t offset) const {
    return reinterpret_cast<layout::Bucket*>(region_.At(offset));
  }
  layout::KeyHash HashOfItem(layout::Slot slot) const;
  void StoreEntries(layout::KeyHash hash, unsigned depth, uint64_t segment_offset);
  void PlanBucket(uint64_t segment, uint32_t bucket, unsigned depth, SplitPlan& plan) const;
  void PrefetchItems(uint64_t segment, uint32_t bucket) const;
  void RemoveMoved(uint64_t segment, SegmentData& data, const SplitPlan& plan);
  void UnlinkEmptyTail(uint64_t segment, SegmentData& data, uint32_t bucket);

  const Region& region_;
  Allocator& allocator_;
  const SegmentTable segments_;
  uint64_t* const directory_;
  const unsigned directory_depth_;
  const layout::SeededXxh3 seed_;
  std::atomic<uint64_t> segment_count_{1};
  std::atomic<uint64_t> splits_{0};
  std::atomic<uint64_t> overflow_buckets_{0};
};

// Holds the lock of a key's bucket: nobody else changes the bucket's slots or items, moves them to
// another segment or reads them for an answer. The parts of an operation on one key:
//
//   ChangeScope scope(index, hash);
//   if (scope.Find(key)) { ... scope.item(), scope.NextVersion(), scope.Replace(...) ... }
//   else if (scope.EnsureSlot()) { ... scope.Insert(...) ... }
//   else { depth = scope.depth(); scope.Release(); index.Split(hash, depth); and again }
//
// Short: no waiting, no system calls and no second ChangeScope while one is held.
class ChangeScope {
 public:
  ChangeScope(Index& index, layout::KeyHash hash);
  ~ChangeScope() { Release(); }
  ChangeScope(const ChangeScope&) = delete;
  ChangeScope& operator=(const ChangeScope&) = delete;

  // Looks for the key's item. After true, slot() and what follows it may be used.
  bool Find(std::string_view key);

  // Looks for an item with the scope's hash, whatever its key. True and false as from Find.
  bool FindHash();
  // Looks for the item with the scope's hash in the block at `offset`. True and false as from Find.
  bool FindBlock(uint64_t offset);

  layout::Slot slot() const { return {*slot_word_}; }
  uint8_t* block() const { return index_.region_.At(slot().offset()); }
  layout::ItemHeader item() const;

  // After Find was false: finds or makes an empty slot. False if the segment has to be split.
  bool EnsureSlot();

  uint64_t NextVersion() { return stripe_->NextVersion(); }
  // Local depth of the bucket's segment.
  unsigned depth() const { return primary_->header.depth(); }

  // See publish.h. Insert after EnsureSlot, the others after Find.
  void Insert(layout::Slot slot, uint64_t check);
  void Replace(layout::Slot slot, uint64_t check);
  void Remove();

  // Unlocks. Nothing else may be called afterwards.
  void Release() {
    if (stripe_ != nullptr) stripe_->Unlock();
    stripe_ = nullptr;
  }

 private:
  Index& index_;
  const layout::KeyHash hash_;
  uint64_t segment_ = 0;  // offset
  SegmentData* data_ = nullptr;
  Stripe* stripe_ = nullptr;
  layout::Bucket* primary_ = nullptr;
  uint64_t* slot_word_ = nullptr;       // the item's slot, or an empty one
  layout::Bucket* found_in_ = nullptr;  // the bucket of slot_word_
  uint64_t* empty_word_ = nullptr;      // the first empty slot that Find passed
  layout::Bucket* tail_ = nullptr;      // the last bucket of the chain
};

}  // namespace verbena::storage
