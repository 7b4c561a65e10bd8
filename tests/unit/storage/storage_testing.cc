#include "tests/unit/storage/storage_testing.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/relaxed_copy.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"

namespace verbena::storage {
namespace {

using layout::Bucket;
using layout::BucketHeader;
using layout::KeyHash;
using layout::Slot;

// Collects what the walk over a store finds.
class Walk {
 public:
  explicit Walk(const Store& store)
      : region_(store.region()),
        depth_(region_.directory_depth()),
        seed_(region_.hash_seed()),
        stats_(store.Stats()) {}

  absl::Status Run() {
    const std::span<const uint64_t> directory = region_.directory();
    for (uint64_t i = 0; i < directory.size();) {
      const layout::DirectoryEntry entry{directory[i]};
      if (entry.depth() > depth_) return Wrong("directory entry ", i, " is too deep");
      const uint64_t count = uint64_t{1} << (depth_ - entry.depth());
      if (i % count != 0) return Wrong("directory entry ", i, " is out of place");
      for (uint64_t j = i; j < i + count; ++j) {
        if (directory[j] != directory[i]) return Wrong("directory entry ", j, " differs");
      }
      const KeyHash hash{depth_ == 0 ? 0 : i << (64 - depth_)};
      VERBENA_RETURN_IF_ERROR(CheckSegment(entry, hash));
      i += count;
    }
    VERBENA_RETURN_IF_ERROR(CheckOverlaps());
    return CheckCounts();
  }

 private:
  template <typename... Parts>
  static absl::Status Wrong(const Parts&... parts) {
    return absl::InternalError(absl::StrCat(parts...));
  }

  const Bucket& BucketAt(uint64_t offset) const {
    return *reinterpret_cast<const Bucket*>(region_.At(offset));
  }

  absl::Status CheckSegment(layout::DirectoryEntry entry, KeyHash hash) {
    ++segments_;
    const uint64_t segment = entry.segment_offset();
    extents_.emplace_back(segment, layout::kSegmentSize);
    std::set<uint32_t> linked;
    for (uint32_t bucket = 0; bucket < layout::kBuckets; ++bucket) {
      const BucketHeader header = BucketAt(segment + layout::BucketOffset(bucket)).header;
      if (header != BucketHeader::Make(entry.depth(), hash.prefix(), header.link())) {
        return Wrong("segment ", segment, " bucket ", bucket, ": header");
      }
      VERBENA_RETURN_IF_ERROR(CheckChain(segment, bucket, linked));
    }
    overflow_ += linked.size();
    for (uint32_t link = 1; link <= layout::kOverflowBuckets; ++link) {
      const Bucket& free = BucketAt(segment + layout::OverflowOffset(link));
      if (linked.count(link) > 0) continue;
      if (free.header.bits != 0) return Wrong("segment ", segment, ": free bucket has a header");
      for (const Slot slot : free.slots) {
        if (!slot.empty()) return Wrong("segment ", segment, ": free bucket is not empty");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckChain(uint64_t segment, uint32_t index, std::set<uint32_t>& linked) {
    const BucketHeader primary = BucketAt(segment + layout::BucketOffset(index)).header;
    std::set<std::string_view> keys;
    const Bucket* bucket = &BucketAt(segment + layout::BucketOffset(index));
    for (bool overflow = false;; overflow = true) {
      bool empty = true;
      for (const Slot slot : bucket->slots) {
        if (slot.empty()) continue;
        empty = false;
        VERBENA_RETURN_IF_ERROR(CheckItem(slot, primary, index, keys));
      }
      const uint32_t link = bucket->header.link();
      if (link == 0) {
        return overflow && empty ? Wrong("segment ", segment, ": empty overflow bucket kept")
                                 : absl::OkStatus();
      }
      if (link > layout::kOverflowBuckets || !linked.insert(link).second) {
        return Wrong("segment ", segment, " bucket ", index, ": link ", link);
      }
      bucket = &BucketAt(segment + layout::OverflowOffset(link));
      if (bucket->header.bits >> BucketHeader::kLinkBits != 0) {
        return Wrong("segment ", segment, ": overflow bucket with more than a link");
      }
    }
  }

  absl::Status CheckItem(Slot slot, BucketHeader primary, uint32_t bucket,
                         std::set<std::string_view>& keys) {
    const uint64_t offset = slot.offset();
    if (!layout::IsValidClass(slot.size_class())) return Wrong("slot with class of no meaning");
    if (offset < region_.heap_begin() || offset + sizeof(layout::ItemHeader) > region_.heap_end()) {
      return Wrong("slot leads out of the heap");
    }
    layout::ItemHeader header;
    std::memcpy(&header, region_.At(offset), sizeof(header));
    const uint64_t size = header.size();
    if (offset + size > region_.heap_end()) return Wrong("item reaches beyond the heap");
    const std::string_view key(reinterpret_cast<const char*>(region_.At(offset)) + sizeof(header),
                               header.key_len);
    uint64_t judged_size = 0;
    if (layout::JudgeItem(region_.At(offset), size, offset, key, seed_, &judged_size) !=
        layout::ItemState::kAccepted) {
      return Wrong("item at ", offset, " is not valid");
    }
    const KeyHash hash = KeyHash::Of(key, seed_);
    if (!primary.Covers(hash) || hash.bucket() != bucket ||
        hash.fingerprint() != slot.fingerprint()) {
      return Wrong("item at ", offset, " is in the wrong place");
    }
    if (layout::SizeClassFor(size) != slot.size_class()) return Wrong("item of another class");
    if (!keys.insert(key).second) return Wrong("a key stands in two slots");
    const uint64_t room = slot.size_class() == layout::kRunClass
                              ? PageHeap::RunBytes(size)
                              : layout::BlockSize(slot.size_class());
    extents_.emplace_back(offset, room);
    ++items_;
    live_bytes_ += uint64_t{header.key_len} + header.value_len;
    block_bytes_ += room;
    return absl::OkStatus();
  }

  absl::Status CheckOverlaps() {
    std::sort(extents_.begin(), extents_.end());
    for (size_t i = 1; i < extents_.size(); ++i) {
      if (extents_[i - 1].first + extents_[i - 1].second > extents_[i].first) {
        return Wrong("blocks at ", extents_[i - 1].first, " and ", extents_[i].first, " overlap");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckCounts() const {
    const std::pair<uint64_t, uint64_t> counts[] = {
        {items_, stats_.items},
        {live_bytes_, stats_.live_bytes},
        {block_bytes_, stats_.block_bytes},
        {segments_, stats_.segments},
        {segments_, stats_.splits + 1},
        {overflow_, stats_.overflow_buckets},
        {stats_.heap_pages,
         stats_.free_pages + stats_.segment_pages + stats_.slab_pages + stats_.run_pages},
    };
    for (size_t i = 0; i < std::size(counts); ++i) {
      if (counts[i].first == counts[i].second) continue;
      return Wrong("count ", i, ": ", counts[i].first, " found, but ", counts[i].second, " told");
    }
    return absl::OkStatus();
  }

  const Region& region_;
  const unsigned depth_;
  const uint64_t seed_;
  const StoreStats stats_;
  std::vector<std::pair<uint64_t, uint64_t>> extents_;  // offset, size
  uint64_t segments_ = 0;
  uint64_t overflow_ = 0;
  uint64_t items_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t block_bytes_ = 0;
};

}  // namespace

std::string MustGet(Store& store, std::string_view key) {
  std::string value;
  const absl::StatusOr<GetResult> got = store.Get(0, key, &value);
  EXPECT_TRUE(got.ok() && got->found) << key;
  return value;
}

bool Has(Store& store, std::string_view key) {
  std::string value;
  return store.Get(0, key, &value)->found;
}

layout::Slot SlotOf(Store& store, std::string_view key) {
  return store.Get(0, key, std::span<uint8_t>())->slot;
}

std::vector<std::string> FillUp(Store& store, const std::vector<size_t>& sizes) {
  std::vector<std::string> keys;
  for (const size_t size : sizes) {
    const std::string value(size, 'f');
    while (true) {
      const std::string key = absl::StrCat("filler", keys.size());
      if (!store.Put(0, key, AsBytes(value)).ok()) break;
      keys.push_back(key);
    }
  }
  return keys;
}

RecordedStoreTest::RecordedStoreTest() : CheckedStoreTest(MakeStore(32 * kMiB, 2)) {
  if (store_ != nullptr) store_->AddListener(&recorder_);
}

std::unique_ptr<Store> MakeStore(uint64_t size, int workers, uint64_t max_value_size) {
  StoreOptions options;
  options.workers = workers;
  options.max_value_size = max_value_size;
  return MakeStore(size, options);
}

std::unique_ptr<Store> MakeStore(uint64_t size, const StoreOptions& options) {
  RegionOptions region_options;
  region_options.size = size;
  region_options.want_huge_pages = false;
  region_options.pre_touch = false;
  absl::StatusOr<Region> region = Region::Create(region_options);
  EXPECT_TRUE(region.ok()) << region.status();
  if (!region.ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Create(*std::move(region), options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

absl::Status CheckInvariants(const Store& store) {
  VERBENA_RETURN_IF_ERROR(store.allocator().Validate());
  return Walk(store).Run();
}

std::string KeyFinder::Next() {
  for (;;) {
    std::string key = absl::StrCat("key-", next_++);
    const KeyHash hash = KeyHash::Of(key, seed_);
    if (prefix_bits_ > 0 && hash.bits >> (64 - prefix_bits_) != 0) continue;
    if (bucket_ >= 0 && hash.bucket() != static_cast<uint32_t>(bucket_)) continue;
    return key;
  }
}

ReferenceReader::ReadFunction ShuffledReads(std::span<const uint8_t> slice, uint64_t seed) {
  return [slice, random = std::mt19937_64(seed)](uint64_t offset, void* target,
                                                 uint64_t size) mutable {
    constexpr uint64_t kLine = 64;
    auto* to = static_cast<uint8_t*>(target);
    const uint64_t lines = (size + kLine - 1) / kLine;
    // Starts at a random line, goes forwards or backwards, and around the end.
    const uint64_t word = random();
    const bool backwards = (word & 1) != 0;
    const uint64_t start = (word >> 8) % lines;
    const uint64_t pause_at = (word >> 1 & 63) == 0 ? start / 2 : lines;
    for (uint64_t i = 0; i < lines; ++i) {
      const uint64_t line = (start + (backwards ? lines - i : i)) % lines;
      if (i == pause_at) sched_yield();
      const uint64_t from = line * kLine;
      CopyFromShared(to + from, slice.data() + offset + from, std::min(kLine, size - from));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
  };
}

ReferenceReader::ReferenceReader(ReadFunction read, uint64_t seed)
    : read_(std::move(read)), random_(seed) {
  read_(0, &header_, sizeof(header_));
  directory_.resize(size_t{1} << header_.directory_depth);
  read_(header_.directory_offset, directory_.data(), directory_.size() * sizeof(uint64_t));
}

uint64_t ReferenceReader::SegmentOf(KeyHash hash) {
  const uint64_t index = hash.directory_index(static_cast<unsigned>(header_.directory_depth));
  return layout::DirectoryEntry{directory_[index]}.segment_offset();
}

void ReferenceReader::RefreshEntry(KeyHash hash) {
  const uint64_t index = hash.directory_index(static_cast<unsigned>(header_.directory_depth));
  read_(header_.directory_offset + index * sizeof(uint64_t), &directory_[index], sizeof(uint64_t));
  ++counts_.stale_entries;
}

bool ReferenceReader::ReadItem(Slot slot, std::string_view key) {
  const uint64_t offset = slot.offset();
  uint64_t size = layout::FirstReadSize(slot.size_class());
  size = std::min(size, header_.heap_end - offset);
  block_.resize(size);
  read_(offset, block_.data(), size);
  uint64_t item_size = 0;
  layout::ItemState state =
      layout::JudgeItem(block_.data(), size, offset, key, header_.hash_seed, &item_size);
  if (slot.size_class() == layout::kRunClass && item_size > size &&
      item_size <= header_.heap_end - offset && state == layout::ItemState::kInvalid) {
    block_.resize(item_size);
    read_(offset + size, block_.data() + size, item_size - size);
    state = layout::JudgeItem(block_.data(), item_size, offset, key, header_.hash_seed, &item_size);
  }
  if (state != layout::ItemState::kAccepted) {
    ++counts_.not_accepted;
    return false;
  }
  layout::ItemHeader header;
  std::memcpy(&header, block_.data(), sizeof(header));
  value_.assign(reinterpret_cast<const char*>(block_.data()) + sizeof(header) + header.key_len,
                header.value_len);
  version_ = header.version;
  flags_ = header.flags;
  return true;
}

bool ReferenceReader::ReadChain(KeyHash hash, uint64_t segment) {
  chain_.clear();
  uint64_t offset = segment + layout::BucketOffset(hash.bucket());
  // A chain that changes while it is read may lead in circles.
  while (chain_.size() <= layout::kOverflowBuckets) {
    Bucket bucket;
    read_(offset, &bucket, sizeof(bucket));
    if (chain_.empty() && !bucket.header.Covers(hash)) return false;
    chain_.push_back(bucket);
    bucket_cache_[offset] = bucket;
    if (bucket.header.link() == 0) break;
    offset = segment + layout::OverflowOffset(bucket.header.link());
  }
  return true;
}

ReferenceReader::Outcome ReferenceReader::Lookup(std::string_view key) {
  const KeyHash hash = KeyHash::Of(key, header_.hash_seed);
  const uint64_t bucket_in_segment = layout::BucketOffset(hash.bucket());
  // The cached bucket: believed where it leads to a valid item, and for nothing else.
  if (random_() % 2 == 0) {
    const auto cached = bucket_cache_.find(SegmentOf(hash) + bucket_in_segment);
    if (cached != bucket_cache_.end() && cached->second.header.Covers(hash)) {
      for (const Slot slot : cached->second.slots) {
        if (slot.empty() || slot.fingerprint() != hash.fingerprint()) continue;
        if (!ReadItem(slot, key)) continue;
        ++counts_.from_cache;
        return Outcome::kFound;
      }
    }
  }
  for (int round = 0; round < 2;) {
    const uint64_t segment = SegmentOf(hash);
    if (!ReadChain(hash, segment)) {
      RefreshEntry(hash);
      continue;
    }
    bool matched = false;
    for (const Bucket& bucket : chain_) {
      for (const Slot slot : bucket.slots) {
        if (slot.empty() || slot.fingerprint() != hash.fingerprint()) continue;
        matched = true;
        if (ReadItem(slot, key)) return Outcome::kFound;
      }
    }
    if (matched || chain_.back().header.link() != 0) {
      ++round;
      continue;
    }
    BucketHeader again;
    read_(segment + bucket_in_segment, &again.bits, sizeof(again));
    if (again.Covers(hash)) return Outcome::kAbsent;
    RefreshEntry(hash);
  }
  ++counts_.undecided;
  return Outcome::kUndecided;
}

}  // namespace verbena::storage
