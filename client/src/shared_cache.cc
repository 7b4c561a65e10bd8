#include "client/src/shared_cache.h"

#include <cassert>
#include <cstring>

#include "common/layout/bucket.h"
#include "common/layout/key_hash.h"

namespace verbena::client {
namespace {

layout::Bucket BucketAt(std::span<const uint8_t> segment, uint64_t offset) {
  layout::Bucket bucket;
  std::memcpy(&bucket, segment.data() + offset, sizeof(bucket));
  return bucket;
}

}  // namespace

void IndexCache::StoreSegment(SegmentRef segment, std::span<const uint8_t> bytes) {
  assert(bytes.size() == layout::kSegmentSize);
  for (uint32_t i = 0; i < layout::kBuckets; ++i) {
    layout::Bucket bucket = BucketAt(bytes, layout::BucketOffset(i));
    const layout::BucketHeader cover = bucket.header;
    // Any hash that the bucket serves.
    const layout::KeyHash hash{(cover.prefix() << (64 - layout::kPrefixBits)) | i};
    if (!cover.Covers(hash)) continue;
    uint32_t index = i;
    // Bounded, since what was READ may lead in circles.
    for (uint32_t chain = 0; chain <= layout::kOverflowBuckets; ++chain) {
      const uint32_t link = bucket.header.link();
      if (link > layout::kOverflowBuckets) break;
      buckets.Store(segment.frame, index, hash, cover, bucket);
      if (link == 0) break;
      index = BucketCache::OverflowIndex(link);
      bucket = BucketAt(bytes, layout::OverflowOffset(link));
    }
  }
}

}  // namespace verbena::client
