#include "server/storage/store.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
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
#include "server/storage/ordered_index.h"
#include "server/storage/pins.h"
#include "server/storage/publish.h"
#include "server/storage/store_worker.h"

namespace verbena::storage {
namespace {

using layout::ItemHeader;
using layout::KeyHash;

// How often a failed allocation compacts, see AllocateBlock.
constexpr int kMostTries = 4;

std::span<const uint8_t> KeyBytes(std::string_view key) {
  return {reinterpret_cast<const uint8_t*>(key.data()), key.size()};
}

bool CopyIfItFits(std::span<const uint8_t> value, std::span<uint8_t> out) {
  if (value.size() > out.size()) return false;
  if (!value.empty()) std::memcpy(out.data(), value.data(), value.size());
  return true;
}

// What a condition says to the key that `scope` has looked for.
PutResult Present(const ChangeScope& scope, bool found, const Condition& condition) {
  const uint64_t version = found ? scope.item().version : 0;
  return {version, found, Judge(condition, found, version)};
}

}  // namespace

PreparedPut::PreparedPut(PreparedPut&& other) noexcept { *this = std::move(other); }

PreparedPut& PreparedPut::operator=(PreparedPut&& other) noexcept {
  std::swap(store_, other.store_);
  std::swap(worker_, other.worker_);
  std::swap(key_len_, other.key_len_);
  std::swap(value_len_, other.value_len_);
  std::swap(sealed_, other.sealed_);
  std::swap(body_check_, other.body_check_);
  std::swap(options_, other.options_);
  std::swap(is_prepared_run_, other.is_prepared_run_);
  std::swap(filled_, other.filled_);
  std::swap(body_hash_, other.body_hash_);
  std::swap(slot_, other.slot_);
  std::swap(hash_, other.hash_);
  return *this;
}

PreparedPut::~PreparedPut() {
  if (store_ == nullptr) return;
  store_->NoLongerPrepared(*this);
  store_->FreeBlock(worker_, slot_);
}

std::span<uint8_t> PreparedPut::value() const {
  return {store_->region_.At(value_offset()), value_len_};
}

uint64_t PreparedPut::value_offset() const { return slot_.offset() + kBodyOffset + key_len_; }

void PreparedPut::Filled(uint64_t bytes) {
  assert(!sealed_ && filled_ + bytes <= value_len_);
  const uint8_t* const value = this->value().data();
  if (body_hash_ == nullptr) {
    body_hash_ = std::make_unique<layout::BodyHash>(store_->region_.hash_seed());
    body_hash_->Add({value - key_len_, key_len_});
  }
  body_hash_->Add({value + filled_, bytes});
  filled_ += bytes;
}

Store::Store(Region region, const StoreOptions& options)
    : region_(std::move(region)),
      options_(options),
      allocator_(std::make_unique<Allocator>(region_, options.workers + 1)),
      pins_(std::make_unique<Pins>(options.max_pins,
                                   (region_.heap_end() - region_.heap_begin()) / 4)),
      compactor_(std::make_unique<Compactor>(*this, *allocator_)),
      expiry_(std::make_unique<Expiry>(options.expiry_tick_ns, MonotonicNanos(),
                                       options.wake_for_expiry)),
      workers_(std::make_unique<Worker[]>(static_cast<size_t>(options.workers + 1))),
      listeners_{expiry_.get()} {
  if (options.ordered_index) {
    ordered_index_ = std::make_unique<OrderedIndex>(region_);
    listeners_.push_back(ordered_index_.get());
  }
}

Store::~Store() = default;

absl::StatusOr<std::unique_ptr<Store>> Store::Create(Region region, const StoreOptions& options) {
  if (options.workers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.workers, " workers are out of range: there must be at least 1"));
  }
  if (options.max_pins < 1 || options.max_pins > UINT16_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.max_pins, " pins are out of range: there must be 1 to ", UINT16_MAX));
  }
  if (options.max_value_size < 1 || options.max_value_size > layout::kMaxValueSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a largest value of ", FormatSize(options.max_value_size),
        " is out of range: it must be between 1B and ", FormatSize(layout::kMaxValueSize)));
  }
  std::unique_ptr<Store> store(new Store(std::move(region), options));
  VERBENA_ASSIGN_OR_RETURN(store->index_, Index::Create(store->region_, *store->allocator_));
  if (options.evict) {
    VERBENA_ASSIGN_OR_RETURN(store->eviction_, Eviction::Create(store->region_.size()));
    store->AddListener(store->eviction_.get());
  }
  return store;
}

absl::Status Store::CheckSizes(std::string_view key, uint64_t value_len) const {
  if (key.empty() || key.size() > layout::kMaxKeySize) {
    return absl::InvalidArgumentError(absl::StrCat("a key of ", key.size(),
                                                   " bytes is out of range: keys have 1 to ",
                                                   layout::kMaxKeySize, " bytes"));
  }
  if (value_len > options_.max_value_size) {
    return absl::InvalidArgumentError(absl::StrCat("a value of ", value_len,
                                                   " bytes is too long: values have at most ",
                                                   options_.max_value_size, " bytes"));
  }
  return absl::OkStatus();
}

// The buckets of all keys are on their way before the first of them is looked at for its item.
void Store::Prefetch(std::span<const std::string_view> keys) const {
  constexpr size_t kAtOnce = 32;
  std::array<KeyHash, kAtOnce> hashes;
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kAtOnce))) {
    const size_t count = std::min(keys.size(), kAtOnce);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = index_->Hash(keys[i]);
      index_->Prefetch(hashes[i]);
    }
    for (size_t i = 0; i < count; ++i) index_->PrefetchItem(hashes[i]);
  }
}

absl::StatusOr<PutResult> Store::Put(int worker, std::string_view key,
                                     std::span<const uint8_t> value, const PutOptions& options) {
  assert(worker >= 0 && worker <= options_.workers);
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, value.size()));
  const KeyHash hash = index_->Hash(key);
  const uint64_t size = layout::ItemSize(key.size(), value.size());
  if (size > kMaxStaged) return PutElsewhere(worker, hash, key, value, options, nullptr);
  index_->Prefetch(hash);

  // While lock and bucket are on their way. The buffer is the item as it will lie in the block.
  uint8_t* staged = workers_[static_cast<size_t>(worker)].staging.data();
  ItemHeader header = MakeHeader(0, key.size(), value.size(), options.flags);
  std::memcpy(staged + kBodyOffset, key.data(), key.size());
  if (!value.empty()) {
    std::memcpy(staged + kBodyOffset + key.size(), value.data(), value.size());
  }
  index_->PrefetchItem(hash);
  const layout::SeededXxh3& seed = index_->seed();
  const uint64_t body_check = layout::BodyCheck(staged + kBodyOffset, size - kBodyOffset, seed);
  {
    ChangeScope scope(*index_, hash);
    const bool found = Find(scope, worker, hash, key);
    if (options.condition.require != Require::kNothing) {
      const PutResult present = Present(scope, found, options.condition);
      if (present.outcome != Outcome::kDone) return present;
    }
    if (found && scope.slot().size_class() == layout::SizeClassFor(size) &&
        !pins_->IsPinned(scope.slot().offset())) {
      const uint32_t old_value_len = scope.item().value_len;
      header.version = scope.NextVersion();
      std::memcpy(staged, &header, sizeof(header));
      const uint64_t check = layout::CombineChecks(
          layout::HeaderCheck(header, scope.slot().offset(), seed), body_check);
      uint8_t* block = scope.block();
      OverwriteInPlace(block, check, [=] { CopyToShared(block + 8, staged + 8, size - 8); });
      const bool wake = SetDue(hash, scope.slot().offset(), options);
      scope.Release();
      if (wake) expiry_->Wake();
      workers_[static_cast<size_t>(worker)].live_bytes.Add(value.size() - old_value_len);
      return PutResult{header.version, true};
    }
  }
  return PutElsewhere(worker, hash, key, value, options, &body_check);
}

// `body_check` is null if it is not known yet.
absl::StatusOr<PutResult> Store::PutElsewhere(int worker, KeyHash hash, std::string_view key,
                                              std::span<const uint8_t> value,
                                              const PutOptions& options,
                                              const uint64_t* body_check) {
  absl::StatusOr<PreparedPut> put = PrepareBlock(worker, hash, key, value.size(), options);
  if (!put.ok()) {
    // An item too large to be staged can still go over an old one of its class, and its condition
    // has not been judged.
    if (body_check == nullptr) {
      if (const auto refused = Refused(worker, key, options.condition)) return *refused;
      PutResult result;
      if (PutOverOld(worker, hash, key, value, options, &result)) return result;
    }
    return std::move(put).status();
  }
  CopyToShared(put->value().data(), value.data(), value.size());
  if (body_check != nullptr) {
    put->body_check_ = *body_check;
    put->sealed_ = true;
  }
  return Publish(*std::move(put));
}

std::optional<PutResult> Store::Refused(int worker, std::string_view key,
                                        const Condition& condition) {
  if (condition.require == Require::kNothing) return std::nullopt;
  const KeyHash hash = index_->Hash(key);
  ChangeScope scope(*index_, hash);
  const PutResult present = Present(scope, Find(scope, worker, hash, key), condition);
  if (present.outcome == Outcome::kDone) return std::nullopt;
  return present;
}

bool Store::PutOverOld(int worker, KeyHash hash, std::string_view key,
                       std::span<const uint8_t> value, const PutOptions& options,
                       PutResult* result) {
  const uint32_t size_class = layout::SizeClassFor(layout::ItemSize(key.size(), value.size()));
  if (size_class == layout::kRunClass) return false;
  const uint64_t body_check = BodyCheckOfParts(KeyBytes(key), value, region_.hash_seed());
  ChangeScope scope(*index_, hash);
  const bool found = Find(scope, worker, hash, key);
  *result = Present(scope, found, options.condition);
  if (result->outcome != Outcome::kDone) return true;
  if (!found || scope.slot().size_class() != size_class || pins_->IsPinned(scope.slot().offset())) {
    return false;
  }
  const bool wake = SetDue(hash, scope.slot().offset(), options);
  *result = OverwriteFound(scope, worker, 0, value, options.flags, body_check);
  if (wake) expiry_->Wake();
  return true;
}

// Writes over the item that `scope` has found, which keeps its size class: the first `keep` bytes
// of its value stay, `tail` comes behind them. `body_check` is the new body's. Releases the scope.
PutResult Store::OverwriteFound(ChangeScope& scope, int worker, uint64_t keep,
                                std::span<const uint8_t> tail, uint16_t flags,
                                uint64_t body_check) {
  const ItemHeader old = scope.item();
  const ItemHeader header = MakeHeader(scope.NextVersion(), old.key_len, keep + tail.size(), flags);
  const uint64_t check = layout::CombineChecks(
      layout::HeaderCheck(header, scope.slot().offset(), index_->seed()), body_check);
  uint8_t* const block = scope.block();
  OverwriteInPlace(block, check, [&] {
    StoreHeader(block, header);
    // The key is the same.
    CopyToShared(block + kBodyOffset + old.key_len + keep, tail.data(), tail.size());
  });
  scope.Release();
  workers_[static_cast<size_t>(worker)].live_bytes.Add(uint64_t{header.value_len} - old.value_len);
  return {header.version, true};
}

// Before memory is out, what is free in too small pieces is put together. The caller holds no
// bucket. That may have to be done more than once, since others take what was made free. A store
// that evicts is full all the time, and would look for such pieces with every other put: it first
// evicts (EvictFor).
Block Store::AllocateBlock(int worker, uint64_t bytes) {
  Block block = allocator_->Allocate(worker, bytes);
  if (block) return block;
  if (eviction_ != nullptr) return EvictFor(worker, bytes);
  for (int i = 0; i < kMostTries && !block && compactor_->MakeRoom(worker, bytes); ++i) {
    block = allocator_->Allocate(worker, bytes);
  }
  return block;
}

// A block with check = 0, header and key.
absl::StatusOr<PreparedPut> Store::PrepareBlock(int worker, KeyHash hash, std::string_view key,
                                                uint64_t value_len, const PutOptions& options) {
  const uint64_t size = layout::ItemSize(key.size(), value_len);
  const Block block = AllocateBlock(worker, size);
  if (!block) {
    workers_[static_cast<size_t>(worker)].failed_allocations.Add(1);
    return allocator_->OutOfMemory("an item", size);
  }
  PreparedPut put;
  put.store_ = this;
  put.worker_ = worker;
  put.options_ = options;
  put.key_len_ = static_cast<uint16_t>(key.size());
  put.value_len_ = static_cast<uint32_t>(value_len);
  put.slot_ = layout::Slot::Make(hash.fingerprint(), block.size_class, block.offset);
  put.hash_ = hash;
  if (block.size_class == layout::kRunClass) {
    put.is_prepared_run_ = true;
    prepared_runs_.Add(block.offset);
  }
  uint8_t* at = region_.At(block.offset);
  StoreRelease(CheckWord(at), 0);
  StoreHeader(at, MakeHeader(0, key.size(), value_len, options.flags));
  CopyToShared(at + kBodyOffset, key.data(), key.size());
  return put;
}

absl::StatusOr<PreparedPut> Store::PreparePut(int worker, std::string_view key,
                                              std::span<const uint8_t> value,
                                              const PutOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(PreparedPut put, PreparePutInto(worker, key, value.size(), options));
  CopyToShared(put.value().data(), value.data(), value.size());
  Seal(put);
  return put;
}

absl::StatusOr<PreparedPut> Store::PreparePutInto(int worker, std::string_view key,
                                                  uint64_t value_len, const PutOptions& options) {
  assert(worker >= 0 && worker <= options_.workers);
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, value_len));
  return PrepareBlock(worker, index_->Hash(key), key, value_len, options);
}

void Store::Seal(PreparedPut& put) const {
  if (put.sealed_) return;
  if (put.filled_ > 0) {
    put.Filled(put.value_len_ - put.filled_);
    put.body_check_ = put.body_hash_->Check();
  } else {
    put.body_check_ = layout::BodyCheck(region_.At(put.slot_.offset()) + kBodyOffset,
                                        uint64_t{put.key_len_} + put.value_len_, index_->seed());
  }
  put.sealed_ = true;
}

absl::StatusOr<PutResult> Store::Publish(PreparedPut&& prepared) {
  assert(prepared.store_ == this);
  PreparedPut put = std::move(prepared);
  index_->Prefetch(put.hash_);
  Seal(put);
  Worker& worker = workers_[static_cast<size_t>(put.worker_)];
  uint8_t* block = region_.At(put.slot_.offset());
  const std::string_view key(AsChars(block) + kBodyOffset, put.key_len_);
  ItemHeader header = MakeHeader(0, put.key_len_, put.value_len_, put.options_.flags);
  for (int tries = 0;;) {
    ChangeScope scope(*index_, put.hash_);
    const bool existed = Find(scope, put.worker_, put.hash_, key);
    if (put.options_.condition.require != Require::kNothing) {
      const PutResult present = Present(scope, existed, put.options_.condition);
      if (present.outcome != Outcome::kDone) return present;
    }
    if (!existed && !scope.EnsureSlot()) {
      const unsigned depth = scope.depth();
      scope.Release();
      if (absl::Status split = index_->Split(put.hash_, depth); !split.ok()) {
        // A directory that is full stays so, whatever memory there is.
        if (depth < index_->directory_depth() && tries++ < kMostTries &&
            (compactor_->MakeRoomForSegment(put.worker_) || EvictForSegment(put.worker_))) {
          continue;
        }
        worker.failed_allocations.Add(1);
        return split;
      }
      continue;
    }
    header.version = scope.NextVersion();
    StoreHeader(block, header);
    const uint64_t check = layout::CombineChecks(
        layout::HeaderCheck(header, put.slot_.offset(), index_->seed()), put.body_check_);
    bool wake = false;
    if (!existed) {
      for (ItemListener* listener : listeners_) listener->OnInserted(put.hash_, key, put.slot_);
      wake = SetDue(put.hash_, put.slot_.offset(), put.options_);
      scope.Insert(put.slot_, check);
      scope.Release();
      worker.items.Add(1);
      worker.live_bytes.Add(uint64_t{put.key_len_} + put.value_len_);
      NoLongerPrepared(put);
      put.store_ = nullptr;  // the block belongs to the index now
    } else {
      const layout::Slot old = scope.slot();
      const uint32_t old_value_len = scope.item().value_len;
      scope.Replace(put.slot_, check);
      TellMoved(put.hash_, block, old, put.slot_, /*changed=*/true);
      wake = SetDue(put.hash_, put.slot_.offset(), put.options_);
      scope.Release();
      worker.live_bytes.Add(uint64_t{put.value_len_} - old_value_len);
      put.slot_ = old;  // freed instead, when `put` goes
    }
    if (wake) expiry_->Wake();
    return PutResult{header.version, existed};
  }
}

void Store::NoLongerPrepared(PreparedPut& put) {
  if (std::exchange(put.is_prepared_run_, false)) prepared_runs_.Remove(put.slot_.offset());
}

void Store::FreeBlock(int worker, layout::Slot slot) {
  if (pins_->Defer(slot.offset())) return;
  allocator_->Free(worker, {slot.offset(), slot.size_class()});
}

bool Store::Unpin(int worker, uint64_t pin) {
  assert(worker >= 0 && worker <= options_.workers);
  std::optional<Block> block;
  if (!pins_->Unpin(pin, &block)) return false;
  if (block.has_value()) allocator_->Free(worker, *block);
  return true;
}

absl::StatusOr<GetResult> Store::Get(int worker, std::string_view key, std::span<uint8_t> out) {
  return GetWith(worker, key, /*pin=*/false,
                 [out](ValueBytes value) { return CopyIfItFits(value, out); });
}

absl::StatusOr<GetResult> Store::GetOrPin(int worker, std::string_view key,
                                          std::span<uint8_t> out) {
  return GetWith(worker, key, /*pin=*/true,
                 [out](ValueBytes value) { return CopyIfItFits(value, out); });
}

absl::StatusOr<GetResult> Store::Get(int worker, std::string_view key, std::string* out) {
  return GetWith(worker, key, /*pin=*/false, [out](ValueBytes value) {
    out->assign(AsChars(value.data()), value.size());
    return true;
  });
}

template <typename CopyOut>
absl::StatusOr<GetResult> Store::GetWith(int worker, std::string_view key, bool pin,
                                         CopyOut copy_out) {
  assert(worker >= 0 && worker <= options_.workers);
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, 0));
  const KeyHash hash = index_->Hash(key);
  index_->Prefetch(hash);
  GetResult result;
  ChangeScope scope(*index_, hash);
  if (!Find(scope, worker, hash, key)) return result;
  Touch(hash);  // what is not there must not count as read: other keys share the counter
  const ItemHeader header = scope.item();
  result.found = true;
  result.flags = header.flags;
  result.value_len = header.value_len;
  result.version = header.version;
  result.slot = scope.slot();
  result.check = header.check;
  result.copied = copy_out(
      std::span<const uint8_t>(scope.block() + kBodyOffset + header.key_len, header.value_len));
  if (pin && !result.copied) {
    result.pin = pins_->Pin({result.slot.offset(), result.slot.size_class()}, header.size());
  }
  return result;
}

StoreStats Store::Stats() const {
  StoreStats stats;
  for (int i = 0; i <= options_.workers; ++i) {
    const Worker& worker = workers_[static_cast<size_t>(i)];
    stats.items += worker.items.value();
    stats.live_bytes += worker.live_bytes.value();
    stats.failed_allocations += worker.failed_allocations.value();
    stats.expired += worker.expired.value();
    stats.evicted += worker.evicted.value();
  }
  const IndexUsage index = index_->Usage();
  stats.segments = index.segments;
  stats.splits = index.splits;
  stats.overflow_buckets = index.overflow_buckets;
  stats.mean_fill =
      static_cast<double>(stats.items) /
      static_cast<double>(index.segments * layout::kBuckets * layout::kSlotsPerBucket);

  const int64_t now = MonotonicNanos();
  const ExpiryStats expiry = expiry_->Stats(now);
  stats.timers = expiry.timers;
  stats.overdue = expiry.overdue;
  stats.expiry_memory = expiry.memory;
  stats.expiry_lateness = expiry_->Lateness(now);
  if (eviction_ != nullptr) {
    const EvictionStats eviction = eviction_->Stats();
    stats.touches = eviction.touches;
    stats.eviction_memory = eviction.memory;
  }
  if (ordered_index_ != nullptr) {
    stats.ordered_keys = ordered_index_->size();
    stats.ordered_index_memory = ordered_index_->memory();
  }

  const HeapUsage heap = allocator_->Usage();
  stats.heap_pages = heap.pages;
  stats.free_pages = heap.free_pages;
  stats.segment_pages = heap.segment_pages;
  stats.slab_pages = heap.slab_pages;
  stats.run_pages = heap.run_pages;
  stats.class_bytes = heap.class_bytes;

  const PinUsage pins = pins_->Usage();
  stats.pins = pins.pins;
  stats.pinned_bytes = pins.freed_bytes;

  stats.slice_bytes = region_.size();
  stats.index_bytes = layout::kRegionHeaderSize + region_.directory().size_bytes() +
                      index.segments * layout::kSegmentSize;
  stats.left_over_bytes = heap.left_over_bytes;
  stats.class_blocks = allocator_->BlocksInUse();
  stats.compaction = compactor_->counters();
  stats.block_bytes = allocator_->UsedBytes();
  stats.used_bytes = stats.index_bytes + stats.block_bytes;
  return stats;
}

}  // namespace verbena::storage
