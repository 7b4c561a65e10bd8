#include "server/storage/ordered_index.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "common/base/relaxed_copy.h"
#include "common/base/spinlock.h"
#include "common/layout/item.h"

namespace verbena::storage {
namespace {

using layout::ItemHeader;
using layout::KeyHash;
using layout::Slot;

// The first eight bytes as a number that orders as they do; missing ones are 0.
uint64_t FirstBytes(std::string_view key) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, key.data(), std::min(key.size(), sizeof(bytes)));
  return __builtin_bswap64(bytes);
}

struct Entry {
  uint64_t first;
  uint64_t slot;  // Slot::bits
};
static_assert(sizeof(Entry) == 16);

// The key in a block that may be overwritten in place meanwhile: by an item of the same key.
class SharedKey {
 public:
  SharedKey(const Region& region, uint64_t slot) : block_(region.At(Slot{slot}.offset())) {
    ItemHeader header;
    CopyFromShared(&header, block_, sizeof(header));
    size_ = header.key_len;
  }

  // As memcmp and the lengths order; `from` bytes are known to be equal.
  std::strong_ordering Compare(std::string_view other, size_t from) const {
    std::array<char, 64> piece;
    const size_t common = std::min(size_, other.size());
    for (size_t at = std::min(from, common); at < common;) {
      const size_t n = std::min(common - at, piece.size());
      CopyFromShared(piece.data(), block_ + sizeof(ItemHeader) + at, n);
      const int order = std::memcmp(piece.data(), other.data() + at, n);
      if (order != 0) return order <=> 0;
      at += n;
    }
    return size_ <=> other.size();
  }

  void CopyTo(std::string* key) const {
    key->resize(size_);
    CopyFromShared(key->data(), block_ + sizeof(ItemHeader), size_);
  }

 private:
  const uint8_t* block_;
  size_t size_;
};

// A key that is looked for.
struct Probe {
  explicit Probe(std::string_view looked_for) : key(looked_for), first(FirstBytes(looked_for)) {}
  std::string_view key;
  uint64_t first;
};

// Orders entries by their keys. Two entries of a tree never have the same key.
struct ByKey {
  using is_transparent = void;
  const Region* region;

  std::strong_ordering Compare(const Entry& entry, const Probe& probe) const {
    if (entry.first != probe.first) return entry.first <=> probe.first;
    return SharedKey(*region, entry.slot).Compare(probe.key, sizeof(entry.first));
  }
  bool operator()(const Entry& a, const Probe& b) const { return Compare(a, b) < 0; }
  bool operator()(const Probe& a, const Entry& b) const { return Compare(b, a) > 0; }
  bool operator()(const Entry& a, const Entry& b) const {
    if (a.first != b.first) return a.first < b.first;
    if (a.slot == b.slot) return false;
    std::string key;
    SharedKey(*region, b.slot).CopyTo(&key);
    return SharedKey(*region, a.slot).Compare(key, sizeof(a.first)) < 0;
  }
};

// Counts what a tree's nodes take.
template <typename T>
class CountingAllocator {
 public:
  using value_type = T;

  explicit CountingAllocator(uint64_t* bytes) : bytes_(bytes) {}
  template <typename U>
  CountingAllocator(const CountingAllocator<U>& other) : bytes_(other.bytes_) {}  // NOLINT

  T* allocate(size_t n) {
    *bytes_ += n * sizeof(T);
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* pointer, size_t n) {
    *bytes_ -= n * sizeof(T);
    std::allocator<T>().deallocate(pointer, n);
  }
  friend bool operator==(const CountingAllocator&, const CountingAllocator&) = default;

 private:
  template <typename U>
  friend class CountingAllocator;
  uint64_t* bytes_;
};

using Tree = absl::btree_set<Entry, ByKey, CountingAllocator<Entry>>;

}  // namespace

struct alignas(128) OrderedIndex::Shard {
  mutable SpinLock lock;
  uint64_t bytes = 0;
  std::optional<Tree> tree;

  Tree& entries() { return *tree; }
  const Tree& entries() const { return *tree; }
};

OrderedIndex::OrderedIndex(const Region& region)
    : region_(region), shards_(std::make_unique<Shard[]>(kShards)) {
  for (size_t i = 0; i < kShards; ++i) {
    shards_[i].tree.emplace(ByKey{&region_}, CountingAllocator<Entry>(&shards_[i].bytes));
  }
}

OrderedIndex::~OrderedIndex() = default;

OrderedIndex::Shard& OrderedIndex::ShardOf(KeyHash hash) const {
  return shards_[hash.fingerprint() % kShards];
}

void OrderedIndex::OnInserted(KeyHash hash, std::string_view key, Slot slot) {
  Shard& shard = ShardOf(hash);
  const Probe probe(key);
  const std::lock_guard lock(shard.lock);
  shard.entries().insert(shard.entries().lower_bound(probe), Entry{probe.first, slot.bits});
}

// The key keeps its place: only the slot of the entry changes.
void OrderedIndex::OnMoved(KeyHash hash, std::string_view key, Slot /*from*/, Slot to,
                           bool /*changed*/) {
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const auto found = shard.entries().find(Probe(key));
  if (found != shard.entries().end()) const_cast<Entry&>(*found).slot = to.bits;
}

void OrderedIndex::OnRemoved(KeyHash hash, std::string_view key, Slot /*slot*/) {
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const auto found = shard.entries().find(Probe(key));
  if (found != shard.entries().end()) shard.entries().erase(found);
}

uint64_t OrderedIndex::size() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    sum += shards_[i].entries().size();
  }
  return sum;
}

uint64_t OrderedIndex::memory() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    sum += sizeof(Shard) + shards_[i].bytes;
  }
  return sum;
}

OrderedIndex::Cursor::Cursor(const OrderedIndex& index, const Range& range)
    : index_(index),
      prefix_(range.prefix),
      start_(range.start),
      after_(range.after),
      read_ahead_(4),
      lanes_(kShards) {
  // Keys before the prefix are not looked at.
  if (prefix_ > start_) {
    start_ = prefix_;
    after_ = false;
  }
}

// Reads further keys of a shard, behind those that it has given. Later rounds read more at a time,
// so that a long scan seldom comes back to a tree and a short one copies little.
void OrderedIndex::Cursor::Fill(size_t shard) {
  Lane& lane = lanes_[shard];
  const bool first = lane.keys.empty();
  const std::string from = first ? start_ : std::move(lane.keys.back().key);
  const bool after = first ? after_ : true;
  lane.keys.clear();
  lane.next = 0;
  const Shard& from_shard = index_.shards_[shard];
  const std::lock_guard lock(from_shard.lock);
  auto at = after ? from_shard.entries().upper_bound(Probe(from))
                  : from_shard.entries().lower_bound(Probe(from));
  while (at != from_shard.entries().end() && lane.keys.size() < read_ahead_) {
    Found& found = lane.keys.emplace_back();
    SharedKey(index_.region_, at->slot).CopyTo(&found.key);
    found.slot = Slot{at->slot};
    if (!found.key.starts_with(prefix_)) {
      lane.keys.pop_back();
      lane.more = false;
      return;
    }
    ++at;
  }
  lane.more = at != from_shard.entries().end();
}

bool OrderedIndex::Cursor::Less(size_t left, size_t right) const {
  const Lane& a = lanes_[left];
  const Lane& b = lanes_[right];
  return a.keys[a.next].key > b.keys[b.next].key;  // std's heaps have the greatest on top
}

const OrderedIndex::Found* OrderedIndex::Cursor::Next() {
  const auto less = [this](size_t left, size_t right) { return Less(left, right); };
  if (!begun_) {
    begun_ = true;
    for (size_t shard = 0; shard < kShards; ++shard) {
      Fill(shard);
      if (!lanes_[shard].keys.empty()) heap_.push_back(shard);
    }
    std::make_heap(heap_.begin(), heap_.end(), less);
  } else {
    // The key that was given last is on top.
    std::pop_heap(heap_.begin(), heap_.end(), less);
    const size_t shard = heap_.back();
    Lane& lane = lanes_[shard];
    if (++lane.next == lane.keys.size() && lane.more) {
      read_ahead_ = std::min<size_t>(read_ahead_ + 1, 64);
      Fill(shard);
    }
    if (lane.next < lane.keys.size()) {
      std::push_heap(heap_.begin(), heap_.end(), less);
    } else {
      heap_.pop_back();
    }
  }
  if (heap_.empty()) return nullptr;
  const Lane& lane = lanes_[heap_.front()];
  return &lane.keys[lane.next];
}

}  // namespace verbena::storage
