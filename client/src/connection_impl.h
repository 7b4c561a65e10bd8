// What is behind Connection. One object, eight files: connection_setup.cc (connecting),
// connection_gets.cc (one-sided GETs and the poll loop), connection_changes.cc (changes and calls),
// connection_takes.cc (get-and-delete), connection_pins.cc (items that the server keeps),
// connection_scans.cc (scans, times to live, reports of reads), connection_poll.cc (messages,
// waiting, deadlines, the end) and connection_events.cc (within an event loop of the caller's).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "client/src/fixed_ring.h"
#include "client/src/large_buffers.h"
#include "client/src/lookup.h"
#include "client/src/operation.h"
#include "client/src/request_queue.h"
#include "client/src/shared_cache.h"
#include "client/src/waiter.h"
#include "common/layout/item.h"
#include "common/wire/messages.h"
#include "verbena/connection.h"

namespace verbena {

class Connection::Impl {
  friend class client::RawReads;

 public:
  using Endpoint = client::Endpoint;
  using Lookup = client::Lookup;
  using Operation = client::Operation;
  using OperationKind = client::OperationKind;
  using SyncCall = client::SyncCall;

  // `cache` is what connections of one client to one server share; null: the connection has one of
  // its own, of Options::cache_bytes.
  static absl::StatusOr<std::unique_ptr<Impl>> Connect(
      std::string_view server, const Options& options,
      std::shared_ptr<client::SharedCache> cache = nullptr);
  ~Impl();

  absl::Status Get(std::string_view key, std::string* value, uint64_t* version);
  absl::StatusOr<ChangeResult> Put(std::string_view key, std::string_view value,
                                   const PutOptions& options, uint64_t* present);
  absl::StatusOr<ChangeResult> Delete(std::string_view key, const Condition& condition,
                                      uint64_t* present);
  absl::StatusOr<ChangeResult> Add(std::string_view key, int64_t summand,
                                   const Condition& condition);
  absl::StatusOr<ChangeResult> Append(std::string_view key, std::string_view suffix,
                                      const Condition& condition);
  absl::Status GetAndDelete(std::string_view key, std::string* value, uint64_t* version);
  // Without a time: takes it away.
  absl::StatusOr<ChangeResult> Expire(std::string_view key,
                                      const std::optional<std::chrono::milliseconds>& ttl);
  absl::StatusOr<std::optional<std::chrono::milliseconds>> Ttl(std::string_view key);
  absl::Status Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items);
  absl::Status Ping();
  absl::StatusOr<std::string> Info();

  absl::Status SubmitGet(std::string_view key, GetCallback&& callback);
  absl::Status SubmitPut(std::string_view key, std::string_view value, ChangeCallback&& callback,
                         const PutOptions& options);
  absl::Status SubmitDelete(std::string_view key, ChangeCallback&& callback,
                            const Condition& condition);
  absl::Status SubmitAdd(std::string_view key, int64_t summand, ChangeCallback&& callback,
                         const Condition& condition);
  absl::Status SubmitAppend(std::string_view key, std::string_view suffix,
                            ChangeCallback&& callback, const Condition& condition);
  absl::Status SubmitExpire(std::string_view key,
                            const std::optional<std::chrono::milliseconds>& ttl,
                            ChangeCallback&& callback);
  absl::Status SubmitGetAndDelete(std::string_view key, GetCallback&& callback);

  int Poll();
  int PollAndArm();
  int Wait(std::chrono::nanoseconds timeout);
  void Drain();
  int event_fd() const { return waiter_->fd(); }

  size_t in_flight() const { return pool_.used(); }
  absl::Status status() const { return dead_; }
  const Endpoint& endpoint() const { return *endpoint_; }
  uint32_t region_rkey() const { return read_list_.front().wr.rdma.rkey; }
  uint64_t slice_size() const { return context_->shape.size; }
  uint64_t server_epoch() const { return context_->shape.epoch; }
  const ServerLimits& limits() const { return limits_; }
  const ConnectionStats& stats() const;

 private:
  // READs posted with one doorbell at most.
  static constexpr uint32_t kReadList = 32;
  // Completions taken at once.
  static constexpr uint32_t kPollBatch = 32;
  // Room for the key of each operation. An odd number of cache lines, as for other strides here.
  static constexpr size_t kKeyStride = 65 * 64;
  static_assert(kKeyStride >= layout::kMaxKeySize);
  // How often a GET, or a get-and-delete, is sent to the server, when what it names cannot be read
  // in time.
  static constexpr uint16_t kMaxAsks = 64;

  // GETs for one that is reported to a server that evicts, and how many go in a report: so there is
  // a message for about a thousand GETs.
  static constexpr uint32_t kTouchEvery = 16;
  static constexpr size_t kTouchesInReport = 64;

  // Two buffers for the largest value that servers allow by default are kept for the next time: to
  // make one anew takes longer than to fill it.
  static constexpr uint64_t kLargeBufferBytes = uint64_t{144} << 20;

  // Operations that the request queue has at most: those of the pool, and one that releases a pin,
  // whose number is the last.
  static constexpr uint32_t RequestSlots(uint32_t depth) {
    return client::OperationPool::SlotsFor(depth) + 1;
  }
  uint32_t release_slot() const { return RequestSlots(options_.depth) - 1; }

  // How long a waiting call has been polling in vain.
  struct Spin {
    uint32_t empty_polls = 0;
    int64_t sleep_at = 0;  // 0: not decided yet
  };

  Impl(std::unique_ptr<Endpoint> endpoint, std::unique_ptr<client::Waiter> waiter,
       const Options& options, std::shared_ptr<client::SharedCache> cache);

  // Setup.
  absl::Status Greet(int64_t deadline);
  absl::Status TakeWelcome(const wire::Welcome& welcome);
  absl::Status OpenSlice(const wire::Welcome& welcome);
  // READs `length` bytes, at most a sink's block; the bytes stay until the next operation.
  absl::StatusOr<const uint8_t*> ReadRaw(uint64_t offset, uint32_t length);

  // Operations.
  absl::Status CheckKey(std::string_view key) const {
    if (!key.empty() && key.size() <= limits_.max_key_size) return absl::OkStatus();
    return KeyError(key);
  }
  absl::Status KeyError(std::string_view key) const;
  absl::Status CheckValue(std::string_view value) const;
  absl::Status CheckSubmit(std::string_view key) const;
  std::string_view KeepKey(const Operation& op, std::string_view key);
  void StartGet(Operation& op, std::string_view key);
  void StartPut(Operation& op, const wire::OperationHeader& header, std::string_view key,
                std::string_view value);
  // InvalidArgument for a condition that the operation does not know.
  static absl::StatusOr<wire::OperationHeader> RequestFor(wire::OpCode code,
                                                          const Condition& condition);
  static absl::StatusOr<wire::OperationHeader> PutRequest(const PutOptions& options);
  absl::Status CheckSuffix(std::string_view suffix) const;
  absl::Status SubmitChange(OperationKind kind, const wire::OperationHeader& header,
                            std::string_view key, std::string_view value,
                            ChangeCallback&& callback);
  absl::StatusOr<ChangeResult> RequestChange(OperationKind kind,
                                             const wire::OperationHeader& header,
                                             std::string_view key, std::string_view value,
                                             uint64_t* present);
  static absl::StatusOr<ChangeResult> Outcome(SyncCall& call, uint64_t* present);
  absl::Status Request(OperationKind kind, wire::OpCode code, std::string_view key,
                       std::string_view value, SyncCall* call);
  // Waits for a free place; an error if the connection is dead.
  absl::StatusOr<Operation*> AcquireSync(OperationKind kind, SyncCall* call);
  void FinishSync(SyncCall* call);
  static absl::Status CheckTtl(std::chrono::milliseconds ttl);
  static absl::StatusOr<wire::OperationHeader> ExpireRequest(
      const std::optional<std::chrono::milliseconds>& ttl);

  // Scans. One answer of the server: the keys are views into its bytes.
  struct ScanAnswer {
    std::string bytes;
    std::vector<wire::FoundKey> keys;
    bool more = false;
  };
  absl::Status AskForKeys(std::string_view start, bool after, std::string_view prefix,
                          uint64_t limit, ScanAnswer* answer);
  absl::Status Fetch(const std::vector<wire::FoundKey>& keys, bool keys_only,
                     std::vector<ScanItem>* items);
  void StartGetAt(Operation& op, std::string_view key, layout::Slot slot);
  void NoteTouch(layout::KeyHash hash);

  // What the lookup's next step asks for.
  void Act(Operation& op, const Lookup::Step& step);
  void ActOtherwise(Operation& op, const Lookup::Step& step);
  void QueueRead(Operation& op);
  void Ask(Operation& op);
  void GetSpace(Operation& op);
  void UseSpace(Operation& op);
  // Gives the operation's large buffer back; it must have one.
  void DropSpace(Operation& op);
  void ServeSpaceWaiters();
  void TakePin(Operation& op, uint64_t pin);
  void DropPin(Operation& op);
  void SendRelease();
  void OnReleased();
  void OnResult(Operation& op, const wire::Result& result);
  void OnChangeResult(Operation& op, const wire::Result& result);
  static client::LocatedItem ItemAt(const wire::Location& location, std::string_view key);
  void OnGetResult(Operation& op, const wire::Result& result);
  // What a lookup, or the server's answer to it, has found.
  void Found(Operation& op, const GetResult& got);
  void FinishGet(Operation& op, const absl::Status& status, const GetResult& result);
  void HandOver(Operation& op, const absl::Status& status, const GetResult& result);
  void EndGet(Operation& op, const absl::Status& status, const GetResult& result);
  // Get-and-delete.
  void StartTake(Operation& op);
  void StartTakenGet(Operation& op);
  void OnTakeResult(Operation& op, const wire::Result& result);
  void OnTakeDeleted(Operation& op, const wire::Result& result);
  void DeleteWhatWasGot(Operation& op, const GetResult& got);
  void FinishChange(Operation& op, const absl::Status& status, const ChangeResult& result);
  void FinishCall(Operation& op, const absl::Status& status, std::string_view value);
  // Ends the operation with an error, whatever it is.
  void FinishWithError(Operation& op, const absl::Status& status);
  static absl::Status ResultError(const wire::Result& result);

  // Posting and completions.
  void Flush();
  void FlushRequests();
  void PostReads();
  void PostReadList(uint32_t count);
  bool BeginLookup(Operation& op);
  void FillRead(uint32_t i, Operation& op);
  // Returns the number of completions that were taken.
  int PollOnce();
  void OnReadCompletion(const client::WrId& id);
  void OnOtherCompletion(const ibv_wc& wc);
  void OnReceive(uint32_t buffer, uint32_t length);

  // Waiting and the end. A turn polls once and sleeps if it is time to; false when `deadline` has
  // passed.
  bool Turn(Spin& spin, int64_t deadline);
  void SleepUntil(int64_t deadline);
  void Maintain(int64_t now);
  void ScanDeadlines(int64_t now);
  int64_t EarliestDeadline();
  // The connection is dead from here on; what is in flight is failed by FailOperations.
  void Fail(absl::Status why);
  void FailOperations();
  // What is left to do for a dead connection, once or more often.
  void Bury();
  absl::Status StatusFor(const Operation& op) const;

  Options options_;
  std::unique_ptr<client::Waiter> waiter_;
  std::unique_ptr<Endpoint> endpoint_;
  client::LargeBuffers large_buffers_;
  client::OperationPool pool_;
  client::RequestQueue requests_;
  std::unique_ptr<char[]> keys_;  // kKeyStride bytes for each operation
  const std::shared_ptr<client::SharedCache> shared_cache_;
  std::optional<client::LookupContext> context_;
  ServerLimits limits_;
  uint64_t region_address_ = 0;
  bool touches_wanted_ = false;
  uint32_t touch_countdown_ = kTouchEvery;  // GETs until the next one that is noted
  uint64_t touch_random_ = 1;
  std::vector<uint64_t> touches_;
  int64_t timeout_ns_ = 0;  // of an operation

  absl::Status dead_;
  bool cancelled_ = false;
  const absl::Status not_found_;  // made once, since a text needs memory

  client::FixedRing<Operation*> starts_;         // lookups not yet begun
  client::FixedRing<Operation*> reads_;          // with a READ to be posted
  client::FixedRing<Operation*> space_waiters_;  // for a large buffer
  bool space_freed_ = false;
  std::vector<uint64_t> releases_;  // pins to be given back
  bool release_sent_ = false;       // one is on its way
  bool release_due_ = false;        // and has not left yet
  uint32_t reads_in_flight_ = 0;
  uint32_t lkey_;  // of the endpoint's memory
  std::array<ibv_send_wr, kReadList> read_list_;
  std::array<ibv_sge, kReadList> read_sges_;

  uint64_t next_look_ = 0;    // CheapTicks at which to look at the clock
  int64_t last_events_ = 0;   // when the connection manager was last asked
  int64_t last_scan_ = 0;     // when deadlines were last looked at
  bool late_before_ = false;  // the last look found one that had passed
  int64_t scan_interval_ns_;  // between two scans
  uint64_t callbacks_ = 0;
  mutable ConnectionStats stats_;
};

}  // namespace verbena
