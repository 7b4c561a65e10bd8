#include "client/src/bucket_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "client/src/slot_marks.h"

namespace verbena::client {

using layout::Bucket;
using layout::BucketHeader;
using layout::KeyHash;
using layout::Slot;

BucketCache::BucketCache(uint64_t bytes) {
  uint64_t frames = std::min<uint64_t>(bytes / kFrameBytes, std::numeric_limits<uint32_t>::max());
  if (frames == 0) return;
  ways_ = static_cast<uint32_t>(std::min<uint64_t>(frames, kWays));
  frames -= frames % ways_;
  void* memory = mmap(nullptr, frames * kFrameBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  // Buckets are looked up at random: with huge pages one address translation less is missed. Only a
  // wish, and not for caches that would waste most of a huge page.
  mapped_bytes_ = frames * kFrameBytes;
  if (mapped_bytes_ >= (uint64_t{4} << 20)) madvise(memory, mapped_bytes_, MADV_HUGEPAGE);
  buckets_ = static_cast<Bucket*>(memory);
  frames_ = static_cast<uint32_t>(frames);
}

BucketCache::~BucketCache() {
  if (buckets_ != nullptr) munmap(buckets_, mapped_bytes_);
}

Bucket* BucketCache::FindElsewhere(uint32_t frame, uint32_t index, KeyHash hash) {
  const uint32_t group = frame - frame % ways_;
  for (uint32_t way = 0; way < ways_; ++way) {
    if (group + way == frame) continue;
    Bucket* copy = At(group + way, index);
    if (Serves(HeaderOf(*copy), hash)) return Touch(copy);
  }
  return nullptr;
}

// An older copy of the same bucket, else home if it is free, else CLOCK from home onwards: a copy
// that was used since the hand last passed gets a second chance.
Bucket* BucketCache::ChoosePlace(uint32_t frame, uint32_t index, KeyHash hash) {
  const uint32_t group = frame - frame % ways_;
  Bucket* free_place = nullptr;
  for (uint32_t i = 0; i < ways_; ++i) {
    Bucket* place = At(group + (frame - group + i) % ways_, index);
    const BucketHeader header = HeaderOf(*place);
    if (Serves(header, hash)) return place;
    if (free_place == nullptr && (header.bits & kFilled) == 0) free_place = place;
  }
  if (free_place != nullptr) return free_place;
  for (uint32_t i = 0; i < ways_; ++i) {
    Bucket* place = At(group + (frame - group + i) % ways_, index);
    if ((HeaderOf(*place).bits & kReferenced) == 0) return place;
    std::atomic_ref(place->header.bits)
        .fetch_and(~uint64_t{kReferenced}, std::memory_order_relaxed);
  }
  return At(frame, index);
}

void BucketCache::Store(uint32_t frame, uint32_t index, KeyHash hash, BucketHeader cover,
                        const Bucket& bucket, bool struck) {
  if (!enabled()) return;
  Bucket* place = ChoosePlace(frame, index, hash);
  const BucketHeader header = HeaderOf(*place);
  const bool same_bucket = Serves(header, hash);
  for (uint32_t i = 0; i < layout::kSlotsPerBucket; ++i) {
    const Slot fresh = bucket.slots[i];
    const Slot old = same_bucket ? Slot{LoadRelaxed(&place->slots[i].bits)} : Slot{};
    const bool wanted = fresh.fingerprint() == hash.fingerprint();
    StoreRelaxed(&place->slots[i].bits, SlotMarks::Update(old, fresh, wanted, struck).bits);
  }
  // A newcomer has to be used once more before it is worth keeping; what it replaces as an older
  // copy of itself has shown that already.
  const uint32_t referenced = same_bucket ? static_cast<uint32_t>(header.bits) & kReferenced : 0;
  StoreRelaxed(&place->header.bits,
               cover.WithLink((bucket.header.link() & kLinkMask) | kFilled | referenced).bits);
}

void BucketCache::Forgive(Bucket* copy, Slot slot) {
  for (Slot& place : copy->slots) {
    uint64_t expected = slot.bits;
    if (std::atomic_ref(place.bits)
            .compare_exchange_strong(expected, SlotMarks::Forgive(slot).bits,
                                     std::memory_order_relaxed)) {
      return;
    }
  }
}

}  // namespace verbena::client
