// The operations in flight on a connection: what each is, and a fixed pool of them.
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/src/endpoint.h"
#include "client/src/large_buffers.h"
#include "client/src/lookup.h"
#include "common/verbs/wr_id.h"
#include "common/wire/messages.h"
#include "verbena/connection.h"

namespace verbena::client {

enum class OperationKind : uint8_t {
  kGet,
  kPut,
  kDelete,
  kAdd,
  kAppend,
  kTake,  // get-and-delete
  kPing,
  kInfo,
  kExpire,  // and kPersist
  kTtl,
  kScan,     // asks for the keys of a scan
  kScanGet,  // fetches the values of a scan
  kGetInto,  // into memory of the caller's
  kTouch,    // a report of keys that were read, which nobody waits for
  kRawRead,  // a READ of something that is no item, while connecting
};

struct BatchRun;

// What the operations of one call about several have in common.
struct OperationGroup {
  int64_t timeout_ns = 0;        // of the call as a whole; 0: none
  int64_t deadline = INT64_MAX;  // MonotonicNanos() at which it is over
  bool late = false;             // the time of one was over: no further one is begun
  BatchRun* run = nullptr;       // of an asynchronous call, which is told when one has ended
};

// Where a synchronous call, or the run of an asynchronous one about several operations, waits for
// an operation's outcome.
struct SyncCall {
  bool done = false;
  absl::Status status;
  uint64_t version = 0;  // of a GET
  ChangeResult change;
  std::string* value = nullptr;     // where the value goes; may be null
  OperationGroup* group = nullptr;  // that it belongs to, if any
};

// How far a get-and-delete has come. Nearly always the server answers the first request with the
// value. One that does not fit the answer is got first, and deleted if it is still the same.
enum class TakeStage : uint8_t { kTaking, kGetting, kDeleting };

struct Registration;
struct ScanRun;

// What an operation is used for.
enum class OperationUse : uint8_t {
  kNone,
  kAny,
  kPlainGet,  // a kGet with a callback of its own, so without a SyncCall: that to its end
};

// What each use of an operation sets anew: eight bytes, so that one store does it.
struct OperationFlags {
  OperationKind kind = OperationKind::kGet;
  OperationUse use = OperationUse::kNone;
  bool late = false;         // its deadline has passed
  bool read_queued = false;  // `step` waits to be posted
  TakeStage take_stage = TakeStage::kTaking;
  // Set when the connection is lost: whether it waits for a request's answer, and whether that
  // request was sent at least once.
  bool asked = false;
  bool sent = false;
  uint8_t asks = 0;  // how often a GET, or a get-and-delete, was sent to the server; info: again
};
static_assert(sizeof(OperationFlags) == 8);

struct Operation : OperationFlags {
  bool in_use() const { return use != OperationUse::kNone; }

  uint32_t slot = 0;  // in the pool; never changes, nor do the next two
  ReadSink* sink = nullptr;
  char* key_memory = nullptr;  // room for the longest key
  uint64_t read_id = 0;        // of its READs, as a WrId; another one with each use
  SyncCall* sync = nullptr;    // null: asynchronous
  // When the operation was first seen in flight (MonotonicNanos), 0 if not yet: its deadline counts
  // from there. Set by the scan for deadlines, so that starting an operation reads no clock.
  int64_t first_seen = 0;
  int64_t timeout_ns = 0;  // until its deadline; 0: as long as the connection's options say
  std::string_view key;    // in the slot's key memory, or of the caller of a synchronous call
  std::string_view value;  // a large PUT's: the caller's; kTake: what was got
  Lookup::Step step{};     // the READ that waits to be posted
  LargeBuffers::Buffer* space = nullptr;
  uint64_t pin = 0;  // of the item that it READs, 0 for none
  GetCallback on_get;
  ChangeCallback on_change;
  Lookup lookup;
  wire::OperationHeader request{};             // a large PUT's, a get-and-delete's
  std::string held;                            // kTake: a value that came in a message; kInfo: text
  std::span<std::byte> into;                   // kGetInto: where the value goes
  std::shared_ptr<Registration> registration;  // of the memory that it is in: kGetInto, kPut
  std::shared_ptr<ScanRun> scan;               // kScan, kScanGet
  size_t scan_key = 0;                         // kScanGet: which of the answer's keys it fetches
};

// One operation more than may be in flight: while its callback runs, an operation is finished but
// still has its slot, and the callback may start another one. (Callbacks do not nest.) And one
// extra operation of the connection's own, which does not count as being in flight.
class OperationPool {
 public:
  explicit OperationPool(uint32_t depth)
      : depth_(depth),
        slots_(SlotsFor(depth)),
        operations_(SlotsFor(depth)),
        free_(new Operation*[SlotsFor(depth)]) {
    for (uint32_t slot = SlotsFor(depth); slot > 0; --slot) {
      operations_[slot - 1].slot = slot - 1;
      operations_[slot - 1].read_id = FirstReadId(slot - 1);
      Free(operations_[slot - 1]);
    }
  }
  static constexpr uint32_t SlotsFor(uint32_t depth) { return depth + 2; }

  // In flight.
  uint32_t used() const { return used_; }
  bool full() const { return used_ >= depth_; }

  // The one that Acquire would give. Requires !full().
  Operation& Next() { return *free_[free_count_ - 1]; }
  // The most recently freed one, since its memory is likely to be in the cache. Requires !full().
  Operation& Acquire(OperationKind kind, int64_t timeout_ns = 0,
                     OperationUse use = OperationUse::kAny) {
    Operation& op = *free_[--free_count_];
    ++used_;
    static_cast<OperationFlags&>(op) = {.kind = kind, .use = use};
    op.sync = nullptr;
    op.first_seen = 0;
    op.timeout_ns = timeout_ns;
    return op;
  }
  // The connection's own operation; null while it is in flight.
  Operation* AcquireExtra(OperationKind kind) {
    if (extra_ != nullptr) return nullptr;
    extra_ = &Acquire(kind);
    --used_;
    return extra_;
  }
  // The operation is not in flight any more, but its slot is not used again before Free.
  void Finish(Operation& op) {
    if (&op == extra_) {
      extra_ = nullptr;
      op.use = OperationUse::kNone;
      NextGeneration(op);
    } else {
      FinishUsers(op);
    }
  }
  // The same of one that is not the connection's own.
  void FinishUsers(Operation& op) {
    --used_;
    op.use = OperationUse::kNone;
    NextGeneration(op);
  }
  void Free(Operation& op) { free_[free_count_++] = &op; }

  // The connection's own operation, if it is in flight.
  Operation* extra() { return extra_; }
  Operation& At(uint32_t slot) { return operations_[slot]; }
  // The operation whose READs have this id; nullptr if it is none's in flight. (One that is not in
  // use has an id that no READ in flight has had.)
  Operation* FindByRead(uint64_t id) {
    const auto slot = static_cast<uint32_t>(id);
    if (slot >= slots_) return nullptr;
    Operation& op = operations_[slot];
    return op.read_id == id ? &op : nullptr;
  }
  // nullptr if the reference is out of range or of an earlier use.
  Operation* Find(verbs::SlotRef ref) {
    Operation* const op = FindByRead(WrId(RequestKind::kRead, ref).bits());
    return op != nullptr && op->in_use() ? op : nullptr;
  }
  static verbs::SlotRef RefOf(const Operation& op) { return WrId(op.read_id).ref; }

  // Calls visit(Operation&) for each slot.
  template <typename Visit>
  void ForEachSlot(Visit&& visit) {
    for (Operation& op : operations_) visit(op);
  }
  // Calls visit(Operation&) for each one in flight; visit may finish it.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (Operation& op : operations_) {
      if (op.in_use()) visit(op);
    }
  }

 private:
  static uint64_t FirstReadId(uint32_t slot) { return WrId(RequestKind::kRead, {slot, 1}).bits(); }

  static void NextGeneration(Operation& op) {
    op.read_id += uint64_t{1} << 32;
    // After the last generation it runs over into the kind, which becomes even.
    static_assert(static_cast<int>(RequestKind::kRead) == 1);
    if ((op.read_id >> 56 & 1) == 0) [[unlikely]]
      op.read_id = FirstReadId(op.slot);
  }

  const uint32_t depth_;
  const uint32_t slots_;
  uint32_t used_ = 0;
  Operation* extra_ = nullptr;  // in flight
  std::vector<Operation> operations_;
  const std::unique_ptr<Operation*[]> free_;  // those that are, the most recently freed one last
  uint32_t free_count_ = 0;
};

}  // namespace verbena::client
