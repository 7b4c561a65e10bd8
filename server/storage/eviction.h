// Which item goes when the region is full: S3-FIFO over the keys' hashes.
//
// New keys enter a small queue, a tenth of all. What comes to its end without having been touched
// goes, and its hash is remembered for a while (the ghosts); what was touched, and a key that comes
// back while it is a ghost, enters the main queue. What comes to the end of that one goes too,
// unless it was touched: then it goes round once more for each touch. (Yang et al., "FIFO queues
// are all you need for cache eviction", SOSP 2023. Changed here: one touch is enough to leave the
// small queue, since the server does not see GETs and is told of a sample of them only.)
//
// The queues hold hashes, 8 bytes a key. A key that is removed leaves its entry behind, which is
// dropped when it comes to the end. How many of a hash's entries are left over so is counted, and
// when they are more than half of all, each key that comes or goes sweeps some. So what is kept is
// bounded by the keys that are there, also where the same keys come and go all the time.
// Touches are counted in a table by the hash, one byte for 64 bytes of the region (of which only
// touched pages take memory); keys that share a byte share their touches, which costs some accuracy
// and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/spinlock.h"
#include "server/storage/item_listener.h"

namespace verbena::storage {

struct EvictionStats {
  uint64_t touches = 0;
  uint64_t small = 0;     // entries of the small queue
  uint64_t main = 0;      // of the main queue
  uint64_t promoted = 0;  // from the small queue to the main one
  uint64_t revived = 0;   // came back while they were ghosts
  uint64_t memory = 0;    // bytes, at most
};

// Thread-safe. Its lock ranks below the buckets' locks.
class Eviction : public ItemListener {
 public:
  // What it is called, in flags and reports.
  static constexpr const char* kPolicy = "s3fifo";

  // ResourceExhausted if there is no memory for the table of touches.
  static absl::StatusOr<std::unique_ptr<Eviction>> Create(uint64_t region_bytes);

  // A key was read. Cheap, and no more than a hint.
  void Touch(layout::KeyHash hash);

  // The hash of the key that is to go next; its entry has left the queues, so the caller must
  // remove the key. Others may have done that meanwhile: ask again. nullopt if the queues are
  // empty.
  std::optional<layout::KeyHash> NextVictim();
  // The key that NextVictim has named cannot go now: it begins anew in the main queue.
  void Keep(layout::KeyHash hash);

  EvictionStats Stats() const;

  // For tests: checks the queues against the hashes of all keys that are there (see left_over_),
  // and names the first thing that is wrong. No key may be about to come or go.
  absl::Status Validate(std::span<const layout::KeyHash> there) const;

  void OnInserted(layout::KeyHash hash, std::string_view key, layout::Slot slot) override;
  void OnMoved(layout::KeyHash, std::string_view, layout::Slot, layout::Slot, bool) override {}
  void OnRemoved(layout::KeyHash hash, std::string_view key, layout::Slot slot) override;

 private:
  static constexpr uint8_t kMostTouches = 3;
  static constexpr uint64_t kLeastGhosts = 1024;
  // Entries that are looked at for one victim, under the lock; then the next one goes, touched or
  // not. Else the first victim after a time of reads only could mean a walk over all keys.
  static constexpr int kMostLookedAt = 1024;

  using Queue = std::deque<uint64_t>;
  struct Unmap {
    uint64_t bytes;
    void operator()(std::atomic<uint8_t>* table) const;
  };
  using TouchTable = std::unique_ptr<std::atomic<uint8_t>[], Unmap>;

  Eviction(unsigned touch_bits, TouchTable touches);

  std::atomic<uint8_t>& TouchesOf(uint64_t hash) { return touches_[hash >> touch_shift_]; }
  uint64_t Pop(Queue& queue);
  bool TakeGhost(uint64_t hash);
  void AddGhost(uint64_t hash);
  void CountLeftOver(uint64_t hash, int32_t change);
  bool TakeLeftOver(uint64_t hash);
  void SweepIfDue();

  const unsigned touch_shift_;
  const uint64_t touch_bytes_;
  const TouchTable touches_;
  std::atomic<uint64_t> touch_count_{0};

  mutable SpinLock lock_;  // of all that follows
  Queue small_;
  Queue main_;
  uint64_t live_ = 0;  // keys that are there
  // By hash, the entries whose keys are gone. Each removal adds one, by an eviction or not, and
  // NextVictim takes one off with the entry that it hands out, ahead of that key's removal; so a
  // number may be negative for a moment. Those of 0 are not kept.
  //
  // Invariant, for each hash: entries = keys that are there + left over. So no key is there without
  // an entry but those that were handed out and are about to be removed.
  absl::flat_hash_map<uint64_t, int32_t> left_over_;
  // The ghosts: a table by hash of (tag, number), where the number counts those that have become
  // ghosts; one is forgotten when as many have come after it as the main queue has entries.
  std::vector<uint64_t> ghosts_;
  uint32_t ghost_number_ = 0;
  uint64_t promoted_ = 0;
  uint64_t revived_ = 0;
};

}  // namespace verbena::storage
