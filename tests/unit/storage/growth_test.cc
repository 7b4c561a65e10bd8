// What the index costs while the number of keys doubles: memory, fill, and READs of cold lookups.
// VERBENA_GROWTH_KEYS names the number to begin with, and VERBENA_GROWTH_VALUE_SIZE the bytes of a
// value (16000000 keys with values of 100 bytes take 6.4 GB and some minutes, 50000000 with 8 bytes
// 10 GB). Then the figures of each sample and the latencies of the PUTs are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
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
constexpr uint64_t kUsualValueSize = 100;

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

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Every 16th latency, so that 100 million of them take little memory.
class Latencies {
 public:
  void Add(int64_t nanos) {
    if (count_++ % 16 == 0) nanos_.push_back(nanos);
  }
  void Print() {
    std::sort(nanos_.begin(), nanos_.end());
    for (const double percent : {50.0, 99.9, 99.99}) {
      const double at = percent / 100 * static_cast<double>(nanos_.size());
      std::cout << "PUT p" << percent << " " << nanos_[static_cast<size_t>(at)] << " ns\n";
    }
  }

 private:
  uint64_t count_ = 0;
  std::vector<int64_t> nanos_;
};

// In a region that is touched beforehand and has huge pages if there are any, for latencies.
std::unique_ptr<Store> MakeStoreOfAServer(uint64_t size) {
  RegionOptions options;
  options.size = size;
  absl::StatusOr<Region> region = Region::Create(options);
  EXPECT_TRUE(region.ok()) << region.status();
  if (!region.ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Create(*std::move(region), {});
  return store.ok() ? *std::move(store) : nullptr;
}

TEST(GrowthTest, OverADoublingOfTheKeys) {
  const uint64_t first = FromEnvironment("VERBENA_GROWTH_KEYS", kUsualFirst);
  const uint64_t value_size = FromEnvironment("VERBENA_GROWTH_VALUE_SIZE", kUsualValueSize);
  const bool verbose = std::getenv("VERBENA_GROWTH_KEYS") != nullptr;
  ASSERT_GE(first, 100'000u) << "VERBENA_GROWTH_KEYS";
  const uint64_t size = first * 2 * (value_size + 100) + 16 * kMiB;
  const std::unique_ptr<Store> store = verbose ? MakeStoreOfAServer(size) : MakeStore(size);
  ASSERT_NE(store, nullptr);
  const std::string value(value_size, 'v');
  const auto item = static_cast<double>(kKeySize + value_size);
  Latencies latencies;
  double fill = 0;
  double bytes = 0;
  double worst_bytes = 0;
  ColdReads worst;
  int samples = 0;
  uint64_t next_sample = first;
  for (uint64_t keys = 1; keys <= 2 * first; ++keys) {
    const std::string key = absl::StrCat("user", 100'000'000'000 + keys);
    ASSERT_EQ(key.size(), kKeySize);
    const int64_t begin = verbose ? MonotonicNanos() : 0;
    ASSERT_TRUE(store->Put(0, key, AsBytes(value)).ok());
    if (verbose) latencies.Add(MonotonicNanos() - begin);
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
    if (verbose) {
      std::cout << keys << " keys: fill " << stats.mean_fill << ", bytes of an item " << item_bytes
                << ", READs present " << reads.present << ", absent " << reads.absent << std::endl;
    }
  }
  fill /= samples;
  bytes /= samples;
  std::cout << "from " << first << " to " << 2 * first << " keys: mean fill " << fill
            << ", bytes of an item " << bytes << ", at worst " << worst_bytes
            << ", READs at worst: present " << worst.present << ", absent " << worst.absent << "\n";
  if (verbose) latencies.Print();
  EXPECT_GE(fill, 0.50);
  EXPECT_LE(worst.present, 2.1);
  EXPECT_LE(worst.absent, 2.1);
  // The index takes 16 bytes an item at least, which is more of a smaller one.
  if (value_size < kUsualValueSize) return;
  EXPECT_LE(bytes, 1.42 * item);
  EXPECT_LE(worst_bytes, 1.50 * item);
}

}  // namespace
}  // namespace verbena::storage
