// The keys of a slice in their order, for scans. Outside the slice.
//
// The keys are spread over shards by their hashes, each a B-tree with a lock of its own that ranks
// below the buckets' locks; a scan merges the shards. An entry has the key's first eight bytes and
// the slot that names the item, 16 bytes in all: where the first bytes do not tell two keys apart,
// the keys in the items do. An entry leaves its tree, or names the item's new block, before the old
// block is freed, so that the block of every entry holds the entry's key.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/storage/item_listener.h"
#include "server/storage/region.h"

namespace verbena::storage {

// Thread-safe.
class OrderedIndex : public ItemListener {
 public:
  // The region must outlive it.
  explicit OrderedIndex(const Region& region);
  ~OrderedIndex() override;

  struct Found {
    std::string key;
    layout::Slot slot;  // of the item, when the key was looked at
  };

  // From where to where to scan, in the order of the keys' bytes.
  struct Range {
    std::string_view start = {};   // the first key; empty for the beginning
    bool after = false;            // begin behind `start`, with the next key
    std::string_view prefix = {};  // only keys that begin so; empty for all
  };

  // Calls visit(const Found&) for the keys of the range in their order, until there are no more or
  // it returns false. No snapshot: a key that is there from before the call until its end is
  // visited, one that is not there at any time of it is not, and one that comes or goes meanwhile
  // may be. No lock is held during a visit.
  template <typename Visit>
  void Scan(const Range& range, Visit&& visit) const;

  uint64_t size() const;
  // Bytes of memory that the entries take.
  uint64_t memory() const;

  void OnInserted(layout::KeyHash hash, std::string_view key, layout::Slot slot) override;
  void OnMoved(layout::KeyHash hash, std::string_view key, layout::Slot from, layout::Slot to,
               bool changed) override;
  void OnRemoved(layout::KeyHash hash, std::string_view key, layout::Slot slot) override;

  // Where a scan stands: merges the shards' keys, some of each at a time.
  class Cursor {
   public:
    Cursor(const OrderedIndex& index, const Range& range);
    // The next key; null after the last one. Good until the next call.
    const Found* Next();

   private:
    struct Lane {
      std::vector<Found> keys;  // read ahead
      size_t next = 0;
      bool more = true;  // there may be others behind them
    };

    void Fill(size_t shard);
    bool Less(size_t left, size_t right) const;

    const OrderedIndex& index_;
    std::string prefix_;
    std::string start_;
    bool after_;
    size_t read_ahead_;  // keys of a shard at a time
    std::vector<Lane> lanes_;
    std::vector<size_t> heap_;  // of the shards that have a key, by their next one
    bool begun_ = false;
  };

 private:
  static constexpr size_t kShards = 8;
  struct Shard;

  Shard& ShardOf(layout::KeyHash hash) const;

  const Region& region_;
  std::unique_ptr<Shard[]> shards_;
};

template <typename Visit>
void OrderedIndex::Scan(const Range& range, Visit&& visit) const {
  Cursor cursor(*this, range);
  while (const Found* found = cursor.Next()) {
    if (!visit(*found)) return;
  }
}

}  // namespace verbena::storage
