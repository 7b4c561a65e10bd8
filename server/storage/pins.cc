#include "server/storage/pins.h"

#include <cassert>
#include <mutex>

namespace verbena::storage {

// All memory is taken here: Pin runs under a bucket's lock.
Pins::Pins(uint32_t most, uint64_t most_bytes) : most_bytes_(most_bytes), entries_(most) {
  assert(most >= 1 && most < (uint32_t{1} << kIndexBits));
  unused_.reserve(most);
  for (uint32_t i = most; i > 0; --i) unused_.push_back(i - 1);
  blocks_.reserve(most);
}

uint64_t Pins::Pin(Block block, uint64_t bytes) {
  const std::lock_guard lock(lock_);
  if (unused_.empty()) return 0;
  auto found = blocks_.find(block.offset);
  if (found == blocks_.end()) {
    const bool fits = bytes <= most_bytes_ && usage_.bytes <= most_bytes_ - bytes;
    if (!fits && !blocks_.empty()) return 0;
    found = blocks_.emplace(block.offset, Pinned{.bytes = bytes}).first;
    usage_.bytes += bytes;
    ++usage_.blocks;
    pinned_blocks_.store(blocks_.size(), std::memory_order_relaxed);
  }
  ++found->second.count;
  ++usage_.pins;
  const uint32_t index = unused_.back();
  unused_.pop_back();
  Entry& entry = entries_[index];
  entry.used = true;
  entry.block = block;
  return (entry.generation << kIndexBits) | index;
}

// The load, here and in Defer, cannot miss a pin that matters: that was made under a lock which the
// caller has held since. It acquires what Unpin has released: who finds the last pin gone may write
// over what has been read under it.
bool Pins::IsPinned(uint64_t offset) const {
  if (pinned_blocks_.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(lock_);
  return blocks_.contains(offset);
}

bool Pins::Defer(uint64_t offset) {
  if (pinned_blocks_.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(lock_);
  const auto found = blocks_.find(offset);
  if (found == blocks_.end()) return false;
  assert(!found->second.freed);
  found->second.freed = true;
  ++usage_.freed_blocks;
  usage_.freed_bytes += found->second.bytes;
  return true;
}

bool Pins::Unpin(uint64_t id, std::optional<Block>* free) {
  free->reset();
  const uint64_t index = id & ((uint64_t{1} << kIndexBits) - 1);
  const std::lock_guard lock(lock_);
  if (index >= entries_.size()) return false;
  Entry& entry = entries_[index];
  if (!entry.used || entry.generation != id >> kIndexBits) return false;
  entry.used = false;
  ++entry.generation;
  unused_.push_back(static_cast<uint32_t>(index));
  --usage_.pins;
  const auto found = blocks_.find(entry.block.offset);
  if (--found->second.count > 0) return true;
  if (found->second.freed) {
    *free = entry.block;
    --usage_.freed_blocks;
    usage_.freed_bytes -= found->second.bytes;
  }
  --usage_.blocks;
  usage_.bytes -= found->second.bytes;
  blocks_.erase(found);
  pinned_blocks_.store(blocks_.size(), std::memory_order_release);
  return true;
}

PinUsage Pins::Usage() const {
  const std::lock_guard lock(lock_);
  return usage_;
}

std::vector<uint64_t> Pins::Blocks() const {
  const std::lock_guard lock(lock_);
  std::vector<uint64_t> offsets;
  offsets.reserve(blocks_.size());
  for (const auto& [offset, pinned] : blocks_) offsets.push_back(offset);
  return offsets;
}

}  // namespace verbena::storage
