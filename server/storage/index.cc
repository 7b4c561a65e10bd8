#include "server/storage/index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/relaxed_copy.h"
#include "server/storage/publish.h"

namespace verbena::storage {
namespace {

using layout::Bucket;
using layout::BucketHeader;
using layout::KeyHash;
using layout::Slot;

constexpr uint32_t kAllBuckets = layout::kBuckets + layout::kOverflowBuckets;

// A segment in private memory.
struct SegmentImage {
  std::array<Bucket, kAllBuckets> buckets{};
};
static_assert(sizeof(SegmentImage) == layout::kSegmentSize);

// Position of the overflow bucket that `link` names in a segment's array of buckets.
constexpr uint32_t OverflowIndex(uint32_t link) { return layout::kBuckets + link - 1; }

uint64_t* SlotWord(Bucket* bucket, uint32_t slot) { return &bucket->slots[slot].bits; }

void StoreHeader(Bucket* bucket, BucketHeader header) {
  StoreRelease(&bucket->header.bits, header.bits);
}

// nullptr if there is none.
uint64_t* FirstEmpty(Bucket* bucket) {
  for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
    if (bucket->slots[i].empty()) return SlotWord(bucket, i);
  }
  return nullptr;
}

bool AllEmpty(const Bucket& bucket) {
  return std::all_of(bucket.slots.begin(), bucket.slots.end(),
                     [](Slot slot) { return slot.empty(); });
}

}  // namespace

// What a split does, worked out before anything is stored.
struct Index::SplitPlan {
  SegmentImage image;                         // the new segment
  uint32_t overflow_used = 0;                 // its overflow buckets 1 to this
  std::array<uint16_t, kAllBuckets> moved{};  // bit i: slot i of this bucket moves

  void Add(uint32_t bucket, Slot slot) {
    Bucket* at = &image.buckets[bucket];
    for (;;) {
      for (Slot& room : at->slots) {
        if (!room.empty()) continue;
        room = slot;
        return;
      }
      if (at->header.link() == 0) {
        // Cannot run out: a chain here is at most as long as the chain that its slots come from.
        at->header = at->header.WithLink(++overflow_used);
      }
      at = &image.buckets[OverflowIndex(at->header.link())];
    }
  }
};

Index::Index(const Region& region, Allocator& allocator, SegmentTable segments)
    : region_(region),
      allocator_(allocator),
      segments_(std::move(segments)),
      directory_(region.directory().data()),
      directory_depth_(region.directory_depth()),
      seed_(region.hash_seed()) {}

absl::StatusOr<std::unique_ptr<Index>> Index::Create(const Region& region, Allocator& allocator) {
  VERBENA_ASSIGN_OR_RETURN(SegmentTable segments, SegmentTable::Create(region));
  std::unique_ptr<Index> index(new Index(region, allocator, std::move(segments)));
  const uint64_t first = allocator.AllocateSegment();
  if (first == 0) return allocator.OutOfMemory("the first segment", layout::kSegmentSize);
  auto* data = new (&index->segments_.At(first)) SegmentData;
  const auto start = static_cast<uint64_t>(UnixNanos());
  for (Stripe& stripe : data->stripes) {
    stripe.InitLocked(start);
    stripe.Unlock();
  }
  const auto image = std::make_unique<SegmentImage>();  // depth 0: all headers are 0
  CopyToShared(region.At(first), image.get(), sizeof(*image));
  index->StoreEntries(KeyHash{0}, 0, first);
  return index;
}

IndexUsage Index::Usage() const {
  return {segment_count_.load(std::memory_order_relaxed), splits_.load(std::memory_order_relaxed),
          overflow_buckets_.load(std::memory_order_relaxed)};
}

// Sets all directory entries whose upper `depth` bits are those of `hash`.
void Index::StoreEntries(KeyHash hash, unsigned depth, uint64_t segment_offset) {
  const uint64_t count = uint64_t{1} << (directory_depth_ - depth);
  const uint64_t first = hash.directory_index(depth) * count;
  const uint64_t word = layout::DirectoryEntry::Make(segment_offset, depth).bits;
  for (uint64_t i = 0; i < count; ++i) StoreRelease(&directory_[first + i], word);
}

KeyHash Index::HashOfItem(Slot slot) const {
  const uint8_t* block = region_.At(slot.offset());
  layout::ItemHeader header;
  std::memcpy(&header, block, sizeof(header));
  return Hash({reinterpret_cast<const char*>(block) + sizeof(header), header.key_len});
}

void Index::PrefetchItems(uint64_t segment, uint32_t bucket) const {
  for (const Slot slot : BucketAt(segment + layout::BucketOffset(bucket))->slots) {
    if (slot.empty()) continue;
    __builtin_prefetch(region_.At(slot.offset()));
    __builtin_prefetch(region_.At(slot.offset()) + 48);  // the end of a short key
  }
}

// Adds the slots of a bucket that move to the plan.
void Index::PlanBucket(uint64_t segment, uint32_t bucket, unsigned depth, SplitPlan& plan) const {
  const uint64_t moves = uint64_t{1} << (63 - depth);
  uint32_t position = bucket;
  for (;;) {
    const Bucket* old = BucketAt(segment + layout::BucketOffset(position));
    for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
      const Slot slot = old->slots[i];
      if (slot.empty() || (HashOfItem(slot).bits & moves) == 0) continue;
      plan.Add(bucket, slot);
      plan.moved[position] = static_cast<uint16_t>(plan.moved[position] | (1u << i));
    }
    if (old->header.link() == 0) return;
    position = OverflowIndex(old->header.link());
  }
}

// The order of a split's stores (see publish.h for what readers do):
//  1. The new segment is filled, headers included, while nothing leads to it.
//  2. The directory entries. From here readers may come to a moved key through either segment; its
//     item is the same, and cannot change, since all locks of both segments are held.
//  3. The headers of the old segment. From here a reader that finds nothing in an old bucket sees
//     in the header, which it reads again last, that the bucket does not speak for the key any
//     more.
//  4. Only then the moved slots are emptied. Before step 3 that would make present keys look
//  absent.
// After that the locks are released: no change may be made through the new segment while a reader
// can still come to the key's old slot and believe it, nor while the new segment is not complete.
absl::Status Index::Split(KeyHash hash, unsigned depth) {
  const uint64_t segment = SegmentOf(hash);
  SegmentData& data = segments_.At(segment);
  for (Stripe& stripe : data.stripes) stripe.Lock();
  const auto unlock = [](SegmentData& locked) {
    for (Stripe& stripe : locked.stripes) stripe.Unlock();
  };
  const BucketHeader header = BucketAt(segment)->header;
  if (header.depth() != depth || !header.Covers(hash)) {
    unlock(data);
    return absl::OkStatus();
  }
  if (depth == directory_depth_) {
    unlock(data);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the directory of depth ", directory_depth_, " is full: no room for another key like this",
        " one, with ", segment_count_.load(std::memory_order_relaxed), " segments; use more memory",
        " (the directory grows with it) or fewer keys"));
  }
  const uint64_t new_segment = allocator_.AllocateSegment();
  if (new_segment == 0) {
    unlock(data);
    return allocator_.OutOfMemory("a segment of the index", layout::kSegmentSize);
  }

  const auto plan = std::make_unique<SplitPlan>();
  constexpr uint32_t kAhead = 2;
  for (uint32_t bucket = 0; bucket < kAhead; ++bucket) PrefetchItems(segment, bucket);
  for (uint32_t bucket = 0; bucket < layout::kBuckets; ++bucket) {
    if (bucket + kAhead < layout::kBuckets) PrefetchItems(segment, bucket + kAhead);
    PlanBucket(segment, bucket, depth, *plan);
  }
  const KeyHash old_hash{hash.bits & ~(uint64_t{1} << (63 - depth))};
  const KeyHash new_hash{hash.bits | uint64_t{1} << (63 - depth)};
  for (uint32_t bucket = 0; bucket < layout::kBuckets; ++bucket) {
    BucketHeader& filled = plan->image.buckets[bucket].header;
    filled = BucketHeader::Make(depth + 1, new_hash.prefix(), filled.link());
  }
  auto* new_data = new (&segments_.At(new_segment)) SegmentData;
  for (uint32_t bucket = 0; bucket < layout::kBuckets; ++bucket) {
    new_data->stripes[bucket].InitLocked(data.stripes[bucket].version());
  }
  const uint64_t overflow_bits = (uint64_t{1} << plan->overflow_used) - 1;
  new_data->free_overflow.store(static_cast<uint32_t>(~overflow_bits), std::memory_order_relaxed);
  overflow_buckets_.fetch_add(plan->overflow_used, std::memory_order_relaxed);

  CopyToShared(region_.At(new_segment), &plan->image, sizeof(plan->image));  // 1
  StoreEntries(new_hash, depth + 1, new_segment);                            // 2
  StoreEntries(old_hash, depth + 1, segment);
  for (uint32_t bucket = 0; bucket < layout::kBuckets; ++bucket) {  // 3
    Bucket* old = BucketAt(segment + layout::BucketOffset(bucket));
    StoreHeader(old, BucketHeader::Make(depth + 1, old_hash.prefix(), old->header.link()));
  }
  RemoveMoved(segment, data, *plan);  // 4

  segment_count_.fetch_add(1, std::memory_order_relaxed);
  splits_.fetch_add(1, std::memory_order_relaxed);
  unlock(*new_data);
  unlock(data);
  return absl::OkStatus();
}

void Index::RemoveMoved(uint64_t segment, SegmentData& data, const SplitPlan& plan) {
  for (uint32_t position = 0; position < kAllBuckets; ++position) {
    Bucket* old = BucketAt(segment + layout::BucketOffset(position));
    for (uint32_t bits = plan.moved[position]; bits != 0; bits &= bits - 1) {
      StoreRelease(SlotWord(old, static_cast<uint32_t>(std::countr_zero(bits))), 0);
    }
  }
  for (uint32_t bucket = 0; bucket < layout::kBuckets; ++bucket) {
    UnlinkEmptyTail(segment, data, bucket);
  }
}

// Gives back the empty overflow buckets at the end of a chain; never one in the middle. A reader
// with an old link goes on with what the overflow bucket is used for next. It misses no key that
// was there all the time: such a key keeps its slot, so that neither its bucket nor one before it
// in the chain can be given back meanwhile.
void Index::UnlinkEmptyTail(uint64_t segment, SegmentData& data, uint32_t bucket) {
  for (;;) {
    Bucket* before = nullptr;
    Bucket* tail = BucketAt(segment + layout::BucketOffset(bucket));
    while (tail->header.link() != 0) {
      before = tail;
      tail = BucketAt(segment + layout::OverflowOffset(tail->header.link()));
    }
    if (before == nullptr || !AllEmpty(*tail)) return;
    const uint32_t link = before->header.link();
    StoreHeader(before, before->header.WithLink(0));
    data.free_overflow.fetch_or(1u << (link - 1), std::memory_order_release);
    overflow_buckets_.fetch_sub(1, std::memory_order_relaxed);
  }
}

ChangeScope::ChangeScope(Index& index, KeyHash hash) : index_(index), hash_(hash) {
  for (;;) {
    segment_ = index.SegmentOf(hash);
    data_ = &index.segments_.At(segment_);
    primary_ = index.BucketAt(segment_ + layout::BucketOffset(hash.bucket()));
    Stripe& stripe = data_->stripes[hash.bucket()];
    stripe.Lock();
    // The segment may have been split between the look into the directory and the lock.
    if (primary_->header.Covers(hash)) {
      stripe_ = &stripe;
      return;
    }
    stripe.Unlock();
  }
}

bool ChangeScope::Find(std::string_view key) {
  empty_word_ = nullptr;
  for (Bucket* bucket = primary_;;) {
    for (uint32_t mask = layout::MatchSlots(*bucket, hash_.fingerprint()); mask != 0;
         mask &= mask - 1) {
      const auto i = static_cast<uint32_t>(std::countr_zero(mask));
      const Slot slot = bucket->slots[i];
      if (slot.empty()) continue;
      const uint8_t* block = index_.region_.At(slot.offset());
      layout::ItemHeader header;
      std::memcpy(&header, block, sizeof(header));
      if (header.key_len == key.size() &&
          layout::SameKey(block + sizeof(header), key.data(), key.size())) {
        slot_word_ = SlotWord(bucket, i);
        found_in_ = bucket;
        return true;
      }
    }
    if (empty_word_ == nullptr && (empty_word_ = FirstEmpty(bucket)) != nullptr) {
      found_in_ = bucket;
    }
    tail_ = bucket;
    if (bucket->header.link() == 0) return false;
    bucket = index_.BucketAt(segment_ + layout::OverflowOffset(bucket->header.link()));
  }
}

bool ChangeScope::FindHash() {
  for (Bucket* bucket = primary_;;) {
    for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
      const Slot slot = bucket->slots[i];
      if (slot.empty() || slot.fingerprint() != hash_.fingerprint()) continue;
      if (index_.HashOfItem(slot) != hash_) continue;
      slot_word_ = SlotWord(bucket, i);
      found_in_ = bucket;
      return true;
    }
    if (bucket->header.link() == 0) return false;
    bucket = index_.BucketAt(segment_ + layout::OverflowOffset(bucket->header.link()));
  }
}

bool ChangeScope::FindBlock(uint64_t offset) {
  for (Bucket* bucket = primary_;;) {
    for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
      const Slot slot = bucket->slots[i];
      if (slot.empty() || slot.offset() != offset) continue;
      // A bucket has keys of several hashes, and the block may have gone from one to another.
      if (index_.HashOfItem(slot) != hash_) return false;
      slot_word_ = SlotWord(bucket, i);
      found_in_ = bucket;
      return true;
    }
    if (bucket->header.link() == 0) return false;
    bucket = index_.BucketAt(segment_ + layout::OverflowOffset(bucket->header.link()));
  }
}

layout::ItemHeader ChangeScope::item() const {
  layout::ItemHeader header;
  std::memcpy(&header, block(), sizeof(header));
  return header;
}

bool ChangeScope::EnsureSlot() {
  slot_word_ = empty_word_;
  if (slot_word_ != nullptr) return true;
  uint32_t free = data_->free_overflow.load(std::memory_order_acquire);
  do {
    if (free == 0) return false;
  } while (!data_->free_overflow.compare_exchange_weak(free, free & (free - 1),
                                                       std::memory_order_acquire));
  const auto link = static_cast<uint32_t>(std::countr_zero(free)) + 1;
  // A free overflow bucket is empty and has no link, so it can be linked at once.
  found_in_ = index_.BucketAt(segment_ + layout::OverflowOffset(link));
  slot_word_ = SlotWord(found_in_, 0);
  StoreHeader(tail_, tail_->header.WithLink(link));
  index_.overflow_buckets_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ChangeScope::Insert(Slot slot, uint64_t check) {
  PublishInsert(slot_word_, slot, index_.region_.At(slot.offset()), check);
}

void ChangeScope::Replace(Slot slot, uint64_t check) {
  PublishReplace(slot_word_, block(), slot, index_.region_.At(slot.offset()), check);
}

void ChangeScope::Remove() {
  PublishDelete(slot_word_, block());
  if (found_in_ != primary_) index_.UnlinkEmptyTail(segment_, *data_, hash_.bucket());
}

}  // namespace verbena::storage
