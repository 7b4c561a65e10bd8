// What the index costs while the number of keys doubles: memory, fill, and READs of cold lookups.
// VERBENA_GROWTH_KEYS names the number to begin with (16000000 takes 6.4 GB and some minutes).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "common/layout/bucket.h"
#include "common/layout/directory.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

#ifdef VERBENA_FULL_TESTS
constexpr uint64_t kUsualFirst = 2'000'000;
#else
constexpr uint64_t kUsualFirst = 150'000;
#endif
constexpr uint64_t kKeySize = 16;
constexpr uint64_t kValueSize = 100;

// READs that a client without cache needs, the directory's not counted.
struct ColdReads {
  double present = 0;  // mean over the keys
  double absent = 0;   // mean over the hashes
};

const layout::Bucket& BucketAt(const Region& region, uint64_t offset) {
  return *reinterpret_cast<const layout::Bucket*>(region.At(offset));
}

// A present key takes its bucket, the overflow buckets as far as its own, and its block. An absent
// one takes the whole chain and the header again, and a block for each slot that happens to have
// its fingerprint.
ColdReads CountColdReads(const Region& region) {
  constexpr double kSameFingerprint = 1.0 / (1 << layout::kFingerprintBits);
  std::set<uint64_t> segments;
  uint64_t keys = 0;
  uint64_t reads = 0;
  double absent = 0;
  for (const uint64_t word : region.directory()) {
    const layout::DirectoryEntry entry{word};
    const uint64_t segment = entry.segment_offset();
    if (!segments.insert(segment).second) continue;
    const double share = 1.0 / static_cast<double>(uint64_t{1} << entry.depth());
    for (uint32_t index = 0; index < layout::kBuckets; ++index) {
      uint64_t depth = 1;
      double absent_reads = 2;
      const layout::Bucket* bucket = &BucketAt(region, segment + layout::BucketOffset(index));
      for (;; ++depth) {
        for (const layout::Slot slot : bucket->slots) {
          if (slot.empty()) continue;
          ++keys;
          reads += depth + 1;
          absent_reads += kSameFingerprint;
        }
        if (bucket->header.link() == 0) break;
        absent_reads += 1;
        bucket = &BucketAt(region, segment + layout::OverflowOffset(bucket->header.link()));
      }
      absent += share * absent_reads / layout::kBuckets;
    }
  }
  return {static_cast<double>(reads) / static_cast<double>(keys), absent};
}

uint64_t FirstKeys() {
  const char* const text = std::getenv("VERBENA_GROWTH_KEYS");
  return text == nullptr ? kUsualFirst : std::strtoull(text, nullptr, 10);
}

TEST(GrowthTest, OverADoublingOfTheKeys) {
  const uint64_t first = FirstKeys();
  ASSERT_GE(first, 100'000u) << "VERBENA_GROWTH_KEYS";
  const std::unique_ptr<Store> store = MakeStore(first * 2 * 200 + 16 * kMiB);
  ASSERT_NE(store, nullptr);
  const std::string value(kValueSize, 'v');
  constexpr double kItem = kKeySize + kValueSize;
  double fill = 0;
  double bytes = 0;
  double worst_bytes = 0;
  ColdReads worst;
  int samples = 0;
  uint64_t next_sample = first;
  for (uint64_t keys = 1; keys <= 2 * first; ++keys) {
    const std::string key = absl::StrCat("user", 100'000'000'000 + keys);
    ASSERT_EQ(key.size(), kKeySize);
    ASSERT_TRUE(store->Put(0, key, AsBytes(value)).ok());
    if (keys < next_sample) continue;
    next_sample += first / 32;
    ++samples;
    const StoreStats stats = store->Stats();
    const double item_bytes =
        static_cast<double>(stats.used_bytes) / static_cast<double>(stats.items);
    fill += stats.mean_fill;
    bytes += item_bytes;
    worst_bytes = std::max(worst_bytes, item_bytes);
    const ColdReads reads = CountColdReads(store->region());
    worst.present = std::max(worst.present, reads.present);
    worst.absent = std::max(worst.absent, reads.absent);
    if (std::getenv("VERBENA_GROWTH_KEYS") != nullptr) {
      std::cout << keys << " keys: fill " << stats.mean_fill << ", bytes of an item " << item_bytes
                << ", READs present " << reads.present << ", absent " << reads.absent << std::endl;
    }
  }
  fill /= samples;
  bytes /= samples;
  std::cout << "from " << first << " to " << 2 * first << " keys: mean fill " << fill
            << ", bytes of an item " << bytes << ", at worst " << worst_bytes
            << ", READs at worst: present " << worst.present << ", absent " << worst.absent << "\n";
  EXPECT_GE(fill, 0.50);
  EXPECT_LE(worst.present, 2.1);
  EXPECT_LE(worst.absent, 2.1);
  EXPECT_LE(bytes, 1.42 * kItem);
  EXPECT_LE(worst_bytes, 1.50 * kItem);
}

}  // namespace
}  // namespace verbena::storage
