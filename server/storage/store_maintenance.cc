// Store: what happens to items without a request: they are moved, and they end.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/relaxed_copy.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/compactor.h"
#include "server/storage/eviction.h"
#include "server/storage/expiry.h"
#include "server/storage/index.h"
#include "server/storage/item_parts.h"
#include "server/storage/pins.h"
#include "server/storage/publish.h"
#include "server/storage/store.h"
#include "server/storage/store_worker.h"

namespace verbena::storage {
namespace {

using layout::ItemHeader;
using layout::KeyHash;

// Memory that is freed before it is worth moving items together.
constexpr uint64_t kEvictedBetweenCompactions = 256 * kKiB;

// The check of the same header and body in another place. The body is hashed again only where the
// XOR of the parts cannot be taken back: 1 stands for 0 as well.
uint64_t MovedCheck(const ItemHeader& header, const uint8_t* body, uint64_t from, uint64_t to,
                    uint64_t seed) {
  const uint64_t body_check = header.check == 1
                                  ? layout::BodyCheck(body, header.size() - sizeof(header), seed)
                                  : header.check ^ layout::HeaderCheck(header, from, seed);
  return layout::CombineChecks(layout::HeaderCheck(header, to, seed), body_check);
}

}  // namespace

// The copy of an item that may be overwritten in place (up to kMaxStaged) is made under the
// bucket's lock. A larger one is copied ahead of the lock and published only if the block still
// holds the same version: whoever writes to it meanwhile, over the item (PutOverOld) or after it
// was freed, leaves another version there or none in this bucket. Only a move could bring the same
// one back, and nobody else moves.
MoveResult Store::TryMoveItem(int worker, KeyHash hash, uint64_t offset,
                              absl::FunctionRef<bool()> stop) {
  assert(worker >= 0 && worker <= options_.workers);
  ItemHeader header;
  {
    ChangeScope scope(*index_, hash);
    if (!scope.FindBlock(offset) || pins_->IsPinned(offset)) return MoveResult::kGone;
    header = scope.item();
  }
  const Block block = allocator_->Allocate(worker, header.size());
  if (!block) return MoveResult::kNoMemory;
  uint8_t* const target = region_.At(block.offset);
  const uint8_t* const source = region_.At(offset);
  StoreRelease(CheckWord(target), 0);
  const auto copy = [&](uint64_t from, uint64_t size) {
    CopyShared(target + from, source + from, size);
  };
  const bool large = header.size() > kMaxStaged;
  for (uint64_t done = sizeof(header.check); large && done < header.size();) {
    if (stop()) {
      allocator_->Free(worker, block);
      return MoveResult::kStopped;
    }
    const uint64_t piece = std::min(header.size() - done, Compactor::kCopiedAtOnce);
    copy(done, piece);
    done += piece;
  }
  layout::Slot old;
  {
    ChangeScope scope(*index_, hash);
    if (!scope.FindBlock(offset) || scope.item().version != header.version ||
        pins_->IsPinned(offset)) {
      scope.Release();
      allocator_->Free(worker, block);
      return MoveResult::kGone;
    }
    if (!large) copy(sizeof(header.check), header.size() - sizeof(header.check));
    old = scope.slot();
    const layout::Slot slot = layout::Slot::Make(old.fingerprint(), block.size_class, block.offset);
    const uint64_t check = MovedCheck(scope.item(), target + sizeof(header), offset, block.offset,
                                      region_.hash_seed());
    scope.Replace(slot, check);
    TellMoved(hash, target, old, slot, /*changed=*/false);
  }
  FreeBlock(worker, old);
  return MoveResult::kMoved;
}

bool Store::RemoveItemIf(int worker, KeyHash hash, uint64_t offset,
                         absl::FunctionRef<bool()> agree) {
  assert(worker >= 0 && worker <= options_.workers);
  ChangeScope scope(*index_, hash);
  if (!scope.FindBlock(offset) || !agree()) return false;
  RemoveFound(scope, worker, hash);
  return true;
}

// Finds the key's item. One whose time is over is removed: it is not there for any operation that
// comes after, whoever looks first.
bool Store::Find(ChangeScope& scope, int worker, KeyHash hash, std::string_view key) {
  if (!scope.Find(key)) return false;
  if (expiry_->empty() || !expiry_->IsOver(hash, scope.slot().offset(), MonotonicNanos())) {
    return true;
  }
  FreeBlock(worker, TakeOutFound(scope, worker, hash));
  workers_[static_cast<size_t>(worker)].expired.Add(1);
  return scope.Find(key);  // it is not there, and the scope has looked where there is room
}

// Gives the item in the block at `offset` the time that a change has for it. Under its lock. True
// if the caller has to call Expiry::Wake when it has let go of that.
bool Store::SetDue(KeyHash hash, uint64_t offset, const PutOptions& options) {
  if (options.keep_due) return false;
  if (options.due_ns != kNever) return expiry_->Set(hash, offset, options.due_ns);
  if (!expiry_->empty()) expiry_->Clear(hash, offset);
  return false;
}

absl::StatusOr<ExpireResult> Store::Expire(int worker, std::string_view key, int64_t due_ns) {
  PutOptions options;
  options.due_ns = due_ns;
  return LookAtDue(worker, key, options);
}

absl::StatusOr<ExpireResult> Store::Due(int worker, std::string_view key) {
  PutOptions options;
  options.keep_due = true;
  return LookAtDue(worker, key, options);
}

// Says when the item ends, and sets that as `options` have it.
absl::StatusOr<ExpireResult> Store::LookAtDue(int worker, std::string_view key,
                                              const PutOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, 0));
  const KeyHash hash = index_->Hash(key);
  ChangeScope scope(*index_, hash);
  ExpireResult result;
  result.found = Find(scope, worker, hash, key);
  if (!result.found) return result;
  const uint64_t offset = scope.slot().offset();
  result.version = scope.item().version;
  result.due_ns = expiry_->DueOf(hash, offset).value_or(kNever);
  const bool wake = SetDue(hash, offset, options);
  scope.Release();
  if (wake) expiry_->Wake();
  return result;
}

size_t Store::RemoveDue(int worker, int64_t now_ns, size_t most) {
  std::vector<Expiry::DueItem> items;
  expiry_->TakeDue(now_ns, most, &items);
  for (const Expiry::DueItem& item : items) {
    const bool removed = RemoveItemIf(worker, item.hash, item.offset, [&] {
      return expiry_->IsOver(item.hash, item.offset, now_ns);
    });
    if (removed) workers_[static_cast<size_t>(worker)].expired.Add(1);
  }
  return items.size();
}

void Store::Touch(KeyHash hash) {
  if (eviction_ != nullptr) eviction_->Touch(hash);
}

// Evicts an item. Returns its bytes, 0 if there is none that can go. The caller holds no bucket.
//
// One that is pinned is being read, and its memory would not become free: it is passed over, and
// goes back to the queue when another was found, so that it does not come again meanwhile.
uint64_t Store::EvictOne(int worker) {
  std::vector<KeyHash> pinned;
  uint64_t freed = 0;
  while (const std::optional<KeyHash> hash = eviction_->NextVictim()) {
    ChangeScope scope(*index_, *hash);
    if (!scope.FindHash()) continue;  // deleted since
    if (pins_->IsPinned(scope.slot().offset())) {
      pinned.push_back(*hash);
      continue;
    }
    freed = scope.item().size();
    RemoveFound(scope, worker, *hash);
    workers_[static_cast<size_t>(worker)].evicted.Add(1);
    break;
  }
  for (const KeyHash hash : pinned) eviction_->Keep(hash);
  return freed;
}

// Whether there can be a block for an item of `bytes` when all has gone that can: neither what is
// prepared nor what is pinned. Else everything would go, and in vain.
bool Store::CanMakePlaceFor(uint64_t bytes) const {
  if (layout::SizeClassFor(bytes) != layout::kRunClass) return true;
  std::vector<uint64_t> fixed = pins_->Blocks();
  prepared_runs_.AppendTo(fixed);
  return allocator_->heap().HasPlaceFor(bytes, fixed);
}

// Evicts until there is a block for an item of `bytes`. While the mix of sizes stays as it is, the
// items that go leave blocks of the classes that are wanted; else they are moved together from time
// to time, so that their memory can be used for other sizes.
Block Store::EvictFor(int worker, uint64_t bytes) {
  if (!CanMakePlaceFor(bytes)) return {};
  uint64_t evicted = 0;
  uint64_t compact_at = bytes + kEvictedBetweenCompactions;
  for (;;) {
    const uint64_t freed = EvictOne(worker);
    evicted += freed;
    if (const Block block = allocator_->Allocate(worker, bytes); block) return block;
    if (freed != 0 && evicted < compact_at) continue;
    if (compactor_->MakeRoom(worker, bytes)) {
      if (const Block block = allocator_->Allocate(worker, bytes); block) return block;
    }
    if (freed == 0) return {};
    compact_at = evicted + kEvictedBetweenCompactions;
  }
}

// A segment takes a page. True if there may be one now.
bool Store::EvictForSegment(int worker) {
  if (eviction_ == nullptr) return false;
  uint64_t evicted = 0;
  for (uint64_t goal = 2 * layout::kPageSize;; goal *= 2) {
    uint64_t freed = 1;
    while (evicted < goal && freed != 0) evicted += freed = EvictOne(worker);
    if (compactor_->MakeRoomForSegment(worker) || allocator_->Usage().free_pages > 0) return true;
    if (freed == 0) return false;
  }
}

// Removes the item that `scope` has found; the block is the caller's to free. The scope holds its
// lock still.
layout::Slot Store::TakeOutFound(ChangeScope& scope, int worker, KeyHash hash) {
  const layout::Slot old = scope.slot();
  const uint8_t* const block = scope.block();
  const ItemHeader header = scope.item();
  scope.Remove();
  const std::string_view key(reinterpret_cast<const char*>(block) + sizeof(header), header.key_len);
  for (ItemListener* listener : listeners_) listener->OnRemoved(hash, key, old);
  Worker& own = workers_[static_cast<size_t>(worker)];
  own.items.Add(~uint64_t{0});
  own.live_bytes.Add(-(uint64_t{header.key_len} + header.value_len));
  return old;
}

// Removes the item that `scope` has found, releases the scope and then frees the block, which may
// wake the maintenance thread.
void Store::RemoveFound(ChangeScope& scope, int worker, KeyHash hash) {
  const layout::Slot old = TakeOutFound(scope, worker, hash);
  scope.Release();
  FreeBlock(worker, old);
}

// Tells the listeners that the item of which `block` is the new copy was moved.
void Store::TellMoved(KeyHash hash, uint8_t* block, layout::Slot from, layout::Slot to,
                      bool changed) {
  ItemHeader header;
  std::memcpy(&header, block, sizeof(header));
  const std::string_view key(reinterpret_cast<const char*>(block) + sizeof(header), header.key_len);
  for (ItemListener* listener : listeners_) listener->OnMoved(hash, key, from, to, changed);
}

}  // namespace verbena::storage
