// The store of one slice: changes and lookups by key. No networking.
//
// A change has two halves. *Prepare* checks the request and writes the new item into a block that
// no reader accepts (check = 0). *Publish* makes it visible, with the stores in the order that
// remote readers rely on (publish.h), and is short. Between the halves no lock is held, so that a
// change may wait there for whatever has to happen first. Put() is both at once and the fast path:
// it overwrites the old item in place where that is possible, without allocating.
//
// Thread-safe. `worker` (0 to workers) selects caches and counters that only one thread may use at
// a time; different workers run at the same time. The last one, maintenance_worker(), is for the
// one thread that keeps house (expiry, compaction) beside those that serve.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/layout/body_hash.h"
#include "common/layout/item.h"
#include "common/layout/slot.h"
#include "server/storage/change.h"
#include "server/storage/item_listener.h"
#include "server/storage/prepared_runs.h"
#include "server/storage/region.h"
#include "server/storage/store_stats.h"

namespace verbena::storage {

class Allocator;
struct Block;
class ChangeScope;
class Compactor;
class Eviction;
class Expiry;
class Index;
class OrderedIndex;
class Pins;
class Store;

struct StoreOptions {
  // Threads that change or look up, each under an index of its own; one for maintenance is added.
  int workers = 1;
  // Bytes, at most layout::kMaxValueSize.
  uint64_t max_value_size = 1024 * 1024;
  // Whether the keys are kept in order too, for scans; costs some 20 bytes of memory a key, outside
  // the slice.
  bool ordered_index = false;
  // Whether items are evicted when the region is full; else changes are refused.
  bool evict = false;
  // How exactly times to live are kept; 1 ns or more.
  int64_t expiry_tick_ns = 100'000'000;
  // See Expiry: wakes the thread that calls RemoveDue. May be empty.
  std::function<void()> wake_for_expiry = {};
  // Pins at once, 1 to 65535. What is pinned is at most a quarter of the heap, or one item.
  uint32_t max_pins = 1024;
};

struct GetResult {
  bool found = false;
  // Whether the value was copied out; false if it is longer than the room given.
  bool copied = false;
  uint16_t flags = 0;
  uint32_t value_len = 0;
  uint64_t version = 0;
  // Where the item lies (class and offset of its block; Slot::offset() is from the slice's base).
  // The item's size is layout::ItemSize(key size, value_len). Good until the key's next change.
  layout::Slot slot;
  // With the fields above, the header of the item.
  uint64_t check = 0;
  // GetOrPin: until this is given to Unpin, key and value stay where they are; 0 if not pinned.
  uint64_t pin = 0;
};

// What came of moving an item.
enum class MoveResult {
  kMoved,
  kGone,      // no such item lies there (any more), it has changed meanwhile, or it is pinned
  kNoMemory,  // no other block could be had
  kStopped,   // the caller wanted no more of it
};

// A change that has been checked and written, and is not visible. Move-only; dropping it gives the
// block back. Must not outlive the Store, and belongs to the worker that prepared it.
class PreparedPut {
 public:
  PreparedPut() = default;
  PreparedPut(PreparedPut&& other) noexcept;
  PreparedPut& operator=(PreparedPut&& other) noexcept;
  ~PreparedPut();

  // The value's bytes in the slice. After PreparePutInto they are to be filled before Publish; a
  // device may do that. Not to be written after PreparePut.
  std::span<uint8_t> value() const;
  // Offset of value() from the slice's base.
  uint64_t value_offset() const;
  bool valid() const { return store_ != nullptr; }
  // Ahead of Publish: when the item is to end, in place of what it was prepared with.
  void set_due_ns(int64_t due_ns) { options_.due_ns = due_ns; }

  // After PreparePutInto: the next `bytes` of value() are there and will not change any more. They
  // are hashed, at 5 to 30 GB/s, which Publish need not do then. Nothing has to be said of them.
  void Filled(uint64_t bytes);

 private:
  friend class Store;

  Store* store_ = nullptr;
  int worker_ = 0;
  uint16_t key_len_ = 0;
  uint32_t value_len_ = 0;
  bool sealed_ = false;  // body_check_ is known
  uint64_t body_check_ = 0;
  PutOptions options_;
  bool is_prepared_run_ = false;                 // see Store::prepared_runs_
  uint64_t filled_ = 0;                          // bytes of the value, with the key in `body_hash_`
  std::unique_ptr<layout::BodyHash> body_hash_;  // null until the first of them
  layout::Slot slot_;                            // the complete slot: fingerprint, class, offset
  layout::KeyHash hash_;
};

class Store {
 public:
  // Takes over a freshly formatted region. InvalidArgument for options out of range;
  // ResourceExhausted if there is no memory for what is kept beside the region.
  static absl::StatusOr<std::unique_ptr<Store>> Create(Region region, const StoreOptions& options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Errors of all changes: InvalidArgument for an empty or too long key or a too long value (naming
  // size and limit); ResourceExhausted if there is no room for the item, for a segment or in the
  // directory (naming the size asked for and the space left). After an error nothing has changed.
  //
  // A change whose condition does not hold is no error: its result has another outcome than kDone,
  // says what is there, and nothing has changed. The condition is judged under the bucket's lock
  // that the change is made under: what it says is true at the instant of the change.

  absl::StatusOr<PutResult> Put(int worker, std::string_view key, std::span<const uint8_t> value,
                                const PutOptions& options = {});

  absl::StatusOr<PreparedPut> PreparePut(int worker, std::string_view key,
                                         std::span<const uint8_t> value,
                                         const PutOptions& options = {});
  // For a value that arrives later, in PreparedPut::value().
  absl::StatusOr<PreparedPut> PreparePutInto(int worker, std::string_view key, uint64_t value_len,
                                             const PutOptions& options = {});
  // What Publish would answer now if the condition does not hold of the key, else nothing. For a
  // put that there is no memory for: the condition is the answer that its caller can act on.
  std::optional<PutResult> Refused(int worker, std::string_view key, const Condition& condition);
  // Judges the condition that the change was prepared with. The only error is ResourceExhausted
  // (the index cannot grow), for a new key only.
  absl::StatusOr<PutResult> Publish(PreparedPut&& put);

  // Takes the value for a number, and stores its sum with `summand`. Numbers are decimal text: an
  // optional minus and digits, no zeros ahead (only "0" itself), no spaces, in the range of
  // int64_t; else the outcome is kNotANumber. An absent key counts as 0. kOverflow if the sum is
  // out of range. The item keeps its flags.
  absl::StatusOr<AddResult> Add(int worker, std::string_view key, int64_t summand,
                                const Condition& condition = {});
  // Puts `suffix` behind the value; an absent key gets it as its value. InvalidArgument if the
  // whole is too long. The item keeps its flags.
  absl::StatusOr<PutResult> Append(int worker, std::string_view key,
                                   std::span<const uint8_t> suffix,
                                   const Condition& condition = {});

  // Copies the value into `out` if it fits; else only says what and where it is.
  absl::StatusOr<GetResult> Get(int worker, std::string_view key, std::span<uint8_t> out);
  // The same with a string that is made to fit. `*out` is unchanged if there is no such key.
  absl::StatusOr<GetResult> Get(int worker, std::string_view key, std::string* out);
  // As the first, but an item whose value does not fit is pinned (unless there are too many pins):
  // its block keeps key and value, whatever becomes of the item, until Unpin. Whoever has pinned it
  // has to see to that, or the block is lost.
  absl::StatusOr<GetResult> GetOrPin(int worker, std::string_view key, std::span<uint8_t> out);
  // False if `pin` is none, or not any more. `worker` need not be the one that has pinned.
  bool Unpin(int worker, uint64_t pin);

  // A key that is not there is no error.
  absl::StatusOr<DeleteResult> Delete(int worker, std::string_view key,
                                      const Condition& condition = {});
  // Deletes and copies the value into `out`, in one step. If it does not fit there (kTooLong) the
  // item stays.
  absl::StatusOr<DeleteResult> Take(int worker, std::string_view key, std::span<uint8_t> out,
                                    const Condition& condition = {});

  // Sets when the item ends, kNever to take the time away. That is no change of the item: it keeps
  // its version, and readers notice nothing. A Put sets or takes away the time with the value.
  absl::StatusOr<ExpireResult> Expire(int worker, std::string_view key, int64_t due_ns);
  absl::StatusOr<ExpireResult> Due(int worker, std::string_view key);
  // Removes up to `most` items whose time is over. An item is removed before, too, by an operation
  // that comes upon it. Returns how many were looked at. One thread at a time.
  size_t RemoveDue(int worker, int64_t now_ns, size_t most);
  Expiry& expiry() { return *expiry_; }
  // Starts to fetch what operations on these keys will look at first: a hint. From any thread.
  void Prefetch(std::span<const std::string_view> keys) const;
  // A key with this hash was read: a hint for eviction, if there is any. From any thread.
  void Touch(layout::KeyHash hash);
  bool evicts() const { return options_.evict; }
  // Null without StoreOptions::ordered_index.
  const OrderedIndex* ordered_index() const { return ordered_index_.get(); }

  // Has the listener told of all changes from now on; before the store is used by any thread. It
  // must outlive the store.
  void AddListener(ItemListener* listener) { listeners_.push_back(listener); }

  // Moves the item in the block at `offset`, of a key with this hash, to another block, where
  // readers find it under the same version. False, and nothing has changed, if no such item lies
  // there (any more), it has changed meanwhile, it is pinned, or there is no memory. Only one
  // thread at a time may move.
  bool MoveItem(int worker, layout::KeyHash hash, uint64_t offset) {
    return TryMoveItem(worker, hash, offset, [] { return false; }) == MoveResult::kMoved;
  }
  // While a large item is copied, `stop` is asked now and then; if it says so, nothing has changed.
  MoveResult TryMoveItem(int worker, layout::KeyHash hash, uint64_t offset,
                         absl::FunctionRef<bool()> stop);
  // Removes the item in the block at `offset`, of a key with this hash, if it (still) lies there
  // and `agree`, called under the bucket's lock, returns true: how items expire and are evicted.
  // Returns whether an item was removed.
  bool RemoveItemIf(int worker, layout::KeyHash hash, uint64_t offset,
                    absl::FunctionRef<bool()> agree);

  // Cheap: no walk over the data.
  StoreStats Stats() const;

  const Region& region() const { return region_; }
  int workers() const { return options_.workers; }
  int maintenance_worker() const { return options_.workers; }
  uint64_t max_value_size() const { return options_.max_value_size; }

  // For tests and administration.
  Allocator& allocator() { return *allocator_; }
  const Allocator& allocator() const { return *allocator_; }
  Compactor& compactor() { return *compactor_; }
  const Index& index() const { return *index_; }
  // Null without StoreOptions::evict.
  const Eviction* eviction() const { return eviction_.get(); }

 private:
  friend class PreparedPut;
  struct Worker;
  struct Edited;
  struct Found;
  using ValueBytes = std::span<const uint8_t>;  // of the item found, good under its lock only

  Store(Region region, const StoreOptions& options);

  Block AllocateBlock(int worker, uint64_t bytes);
  absl::Status CheckSizes(std::string_view key, uint64_t value_len) const;
  absl::StatusOr<PreparedPut> PrepareBlock(int worker, layout::KeyHash hash, std::string_view key,
                                           uint64_t value_len, const PutOptions& options);
  absl::StatusOr<PutResult> PutElsewhere(int worker, layout::KeyHash hash, std::string_view key,
                                         std::span<const uint8_t> value, const PutOptions& options,
                                         const uint64_t* body_check);
  bool PutOverOld(int worker, layout::KeyHash hash, std::string_view key,
                  std::span<const uint8_t> value, const PutOptions& options, PutResult* result);
  PutResult OverwriteFound(ChangeScope& scope, int worker, uint64_t keep,
                           std::span<const uint8_t> tail, uint16_t flags, uint64_t body_check);
  void Seal(PreparedPut& put) const;
  absl::StatusOr<DeleteResult> DeleteIf(int worker, std::string_view key,
                                        const Condition& condition,
                                        absl::FunctionRef<bool(ValueBytes)> take);
  bool Find(ChangeScope& scope, int worker, layout::KeyHash hash, std::string_view key);
  absl::StatusOr<ExpireResult> LookAtDue(int worker, std::string_view key,
                                         const PutOptions& options);
  [[nodiscard]] bool SetDue(layout::KeyHash hash, uint64_t offset, const PutOptions& options);
  uint64_t EvictOne(int worker);
  Block EvictFor(int worker, uint64_t bytes);
  bool CanMakePlaceFor(uint64_t bytes) const;
  bool EvictForSegment(int worker);
  layout::Slot TakeOutFound(ChangeScope& scope, int worker, layout::KeyHash hash);
  void RemoveFound(ChangeScope& scope, int worker, layout::KeyHash hash);
  absl::StatusOr<PutResult> Edit(int worker, std::string_view key, const Condition& condition,
                                 absl::FunctionRef<Outcome(bool found, ValueBytes, Edited*)> edit);
  PutResult EditInPlace(ChangeScope& scope, int worker, uint64_t keep,
                        std::span<const uint8_t> tail);
  absl::StatusOr<PreparedPut> PrepareEdited(int worker, layout::KeyHash hash, std::string_view key,
                                            const Found& old, const Edited& edited);
  void TellMoved(layout::KeyHash hash, uint8_t* block, layout::Slot from, layout::Slot to,
                 bool changed);
  template <typename CopyOut>
  absl::StatusOr<GetResult> GetWith(int worker, std::string_view key, bool pin, CopyOut copy_out);
  void FreeBlock(int worker, layout::Slot slot);
  void NoLongerPrepared(PreparedPut& put);

  Region region_;
  StoreOptions options_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<Pins> pins_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Compactor> compactor_;
  std::unique_ptr<Expiry> expiry_;
  std::unique_ptr<OrderedIndex> ordered_index_;
  std::unique_ptr<Eviction> eviction_;
  PreparedRuns prepared_runs_;
  std::unique_ptr<Worker[]> workers_;  // the maintenance worker's last
  std::vector<ItemListener*> listeners_;
};

}  // namespace verbena::storage
