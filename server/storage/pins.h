// Blocks that must stay as they are for a while, because a remote reader copies them that could not
// copy them between two changes of their key.
//
// A pinned block is not written to, and when its item is replaced or removed the block is not given
// back to the allocator: its `check` becomes 0 as ever, all else stays, and whoever lets go of it
// last frees it. Until then its bytes count as used.
//
// Why nobody writes to a pinned block or frees it: a block is pinned under the lock of the bucket
// whose slot names it (Pin). Whoever would overwrite it in place or move it holds that lock as well
// and asks IsPinned; whoever frees it has taken its slot away under that lock, so no pin can come
// after, and asks Defer. The lock orders each of these behind the Pin. After Defer the block is
// known to nobody but this table, so its offset cannot come back before the last Unpin.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/spinlock.h"
#include "server/storage/allocator.h"

namespace verbena::storage {

struct PinUsage {
  uint64_t pins = 0;
  uint64_t blocks = 0;        // that are pinned
  uint64_t bytes = 0;         // of the items in them
  uint64_t freed_blocks = 0;  // of these, blocks that only pins keep from being free
  uint64_t freed_bytes = 0;
};

// Thread-safe.
class Pins {
 public:
  // At most `most` pins (1 to 65535), of items of at most `most_bytes` together; but one block can
  // always be pinned.
  Pins(uint32_t most, uint64_t most_bytes);

  // Pins the block of an item of `bytes`. The caller holds the lock of the bucket whose slot names
  // it. Returns the pin's id, which is used only once; 0 if there are too many.
  uint64_t Pin(Block block, uint64_t bytes);

  // Whether the block at `offset` is pinned. The caller holds the lock of the bucket whose slot
  // names it. Costs a load where nothing is pinned.
  bool IsPinned(uint64_t offset) const;

  // Of a block that is to be freed, which no slot names any more: true if it is pinned, and then
  // the last Unpin returns it. Costs a load where nothing is pinned.
  bool Defer(uint64_t offset);

  // Lets go. False for an id that names no pin (any more). `*free` is the block that the caller has
  // to free now, if any.
  bool Unpin(uint64_t id, std::optional<Block>* free);

  PinUsage Usage() const;
  // Offsets of all pinned blocks.
  std::vector<uint64_t> Blocks() const;

 private:
  struct Entry {
    uint64_t generation = 1;
    bool used = false;
    Block block;
  };
  struct Pinned {
    uint32_t count = 0;
    bool freed = false;
    uint64_t bytes = 0;
  };

  static constexpr unsigned kIndexBits = 16;

  const uint64_t most_bytes_;
  mutable SpinLock lock_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> unused_;                  // of entries_
  absl::flat_hash_map<uint64_t, Pinned> blocks_;  // by offset
  PinUsage usage_;
  // blocks_.size(), to be read without the lock.
  std::atomic<uint64_t> pinned_blocks_{0};
};

}  // namespace verbena::storage
