// What is behind Connection. One object, in files by what they are about: connection_setup.cc
// (connecting), connection_gets.cc (one-sided GETs and the poll loop), connection_buffers.cc
// (values in memory of the caller's), connection_changes.cc (changes and calls),
// connection_takes.cc (get-and-delete), connection_batches.cc (several operations at once),
// connection_runs.cc (the same asynchronously),
// connection_preload.cc (the index READ as a whole),
// connection_pins.cc (items that the server keeps), connection_scans.cc (scans, times to live,
// reports of reads), connection_poll.cc (messages, waiting, deadlines, the end),
// connection_recovery.cc (lost connections) and connection_events.cc (within an event loop of the
// caller's).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "client/src/fixed_ring.h"
#include "client/src/large_buffers.h"
#include "client/src/lookup.h"
#include "client/src/operation.h"
#include "client/src/process_forks.h"
#include "client/src/reconnector.h"
#include "client/src/registrations.h"
#include "client/src/request_queue.h"
#include "client/src/shared_cache.h"
#include "client/src/ticks.h"
#include "client/src/waiter.h"
#include "common/layout/item.h"
#include "common/wire/messages.h"
#include "verbena/connection.h"

namespace verbena {
namespace client {
class ConnectionTestPeer;
class RawReads;
}  // namespace client

class VERBENA_LOCAL Connection::Impl final : private client::ForkObserver {
  friend class client::RawReads;
  friend class client::ConnectionTestPeer;

 public:
  using Endpoint = client::Endpoint;
  using Lookup = client::Lookup;
  using Operation = client::Operation;
  using OperationKind = client::OperationKind;
  using SyncCall = client::SyncCall;
  using Timeout = std::optional<std::chrono::milliseconds>;

  class Use;
  class Call;

  // `cache` is what connections of one client to one server share; null: the connection has one of
  // its own, of Options::cache_bytes.
  static absl::StatusOr<std::unique_ptr<Impl>> Connect(
      std::string_view server, const Options& options,
      std::shared_ptr<client::SharedCache> cache = nullptr);
  ~Impl();

  // `timeout_ns`: 0 for Options::operation_timeout.
  absl::Status Get(std::string_view key, std::string* value, uint64_t* version, int64_t timeout_ns);
  absl::Status Get(std::string_view key, std::string* value, uint64_t* version,
                   const CallOptions& options);
  absl::StatusOr<ChangeResult> Put(std::string_view key, std::string_view value,
                                   const PutOptions& options, uint64_t* present);
  absl::StatusOr<ChangeResult> Delete(std::string_view key, const ChangeOptions& options,
                                      uint64_t* present);
  absl::StatusOr<ChangeResult> Add(std::string_view key, int64_t summand,
                                   const ChangeOptions& options, uint64_t* present);
  absl::StatusOr<ChangeResult> Append(std::string_view key, std::string_view suffix,
                                      const ChangeOptions& options, uint64_t* present);
  absl::Status GetAndDelete(std::string_view key, std::string* value, uint64_t* version,
                            const CallOptions& options);
  // Without a time: takes it away.
  absl::StatusOr<ChangeResult> Expire(std::string_view key,
                                      const std::optional<std::chrono::milliseconds>& ttl,
                                      const CallOptions& options);
  absl::StatusOr<std::optional<std::chrono::milliseconds>> Ttl(std::string_view key,
                                                               const CallOptions& options);
  absl::Status Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items,
                    const CallOptions& options);
  absl::StatusOr<Buffer> RegisterBuffer(std::span<std::byte> memory);
  // Unregisters all memory: what stands for it stands for nothing then, and may go at any time in
  // any thread. Nothing may be in flight.
  void ForgetBuffers();
  absl::Status GetInto(std::string_view key, std::span<std::byte> target, size_t* size,
                       uint64_t* version, const CallOptions& options);
  absl::Status MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                        const CallOptions& options);
  absl::Status MultiPut(std::span<const KeyValue> items, const PutOptions& options,
                        std::vector<absl::StatusOr<ChangeResult>>* results);
  absl::Status MultiDelete(std::span<const std::string_view> keys, const CallOptions& options,
                           std::vector<absl::StatusOr<ChangeResult>>* results);
  absl::Status Execute(Batch& batch, const CallOptions& options);
  absl::Status Ping(const CallOptions& options);
  absl::StatusOr<std::string> Info(const CallOptions& options);

  absl::Status SubmitGet(std::string_view key, GetCallback&& callback, int64_t timeout_ns);
  absl::Status SubmitGet(std::string_view key, GetCallback&& callback, const CallOptions& options);
  absl::Status SubmitGetInto(std::string_view key, std::span<std::byte> target,
                             GetCallback&& callback, const CallOptions& options);
  absl::Status SubmitPut(std::string_view key, std::string_view value, ChangeCallback&& callback,
                         const PutOptions& options);
  absl::Status SubmitDelete(std::string_view key, ChangeCallback&& callback,
                            const ChangeOptions& options);
  absl::Status SubmitAdd(std::string_view key, int64_t summand, ChangeCallback&& callback,
                         const ChangeOptions& options);
  absl::Status SubmitAppend(std::string_view key, std::string_view suffix,
                            ChangeCallback&& callback, const ChangeOptions& options);
  absl::Status SubmitExpire(std::string_view key,
                            const std::optional<std::chrono::milliseconds>& ttl,
                            ChangeCallback&& callback, const CallOptions& options);
  absl::Status SubmitTtl(std::string_view key, TtlCallback&& callback, const CallOptions& options);
  absl::Status SubmitScan(const ScanRange& range, size_t limit, ScanCallback&& callback,
                          const CallOptions& options);
  absl::Status SubmitGetAndDelete(std::string_view key, GetCallback&& callback,
                                  const CallOptions& options);
  absl::Status SubmitExecute(Batch&& batch, BatchCallback&& callback, const CallOptions& options);
  absl::Status SubmitPing(StatusCallback&& callback, const CallOptions& options);
  absl::Status SubmitInfo(InfoCallback&& callback, const CallOptions& options);
  absl::Status SubmitMultiGet(std::span<const std::string_view> keys, MultiGetCallback&& callback,
                              const CallOptions& options);
  absl::Status SubmitMultiPut(std::span<const KeyValue> items, MultiChangeCallback&& callback,
                              const PutOptions& options);
  absl::Status SubmitMultiDelete(std::span<const std::string_view> keys,
                                 MultiChangeCallback&& callback, const CallOptions& options);

  // Whether a callback is running.
  bool in_callback() const { return in_callback_; }
  // Ends what is in flight and disconnects; the object is dead then.
  void Close();
  // The object destroys itself when the call ends that runs the callback.
  void Orphan() { orphaned_ = true; }
  bool up() const { return up_; }
  // At the end of a call: destroys the object if it is to be.
  [[gnu::always_inline]] void EndCall() {
    if (orphaned_ && !in_callback_ && !forked_) [[unlikely]]
      delete this;
  }

  int Poll();
  int PollAndArm();
  int Wait(std::chrono::nanoseconds timeout);
  void Drain();
  int event_fd() const { return waiter_->fd(); }

  size_t in_flight() const { return pool_.used(); }
  bool has_room() const { return !pool_.full(); }
  absl::Status status() const { return dead_; }
  // OK, or why there is no connection at the moment.
  absl::Status lost() const { return up_ ? absl::OkStatus() : loss_; }
  const client::Dialling& dialling() const { return dialling_; }
  bool forked() const { return forked_; }
  const Endpoint& endpoint() const { return *endpoint_; }
  uint32_t region_rkey() const { return read_list_.front().wr.rdma.rkey; }
  uint64_t slice_size() const { return context_->shape.size; }
  uint64_t server_epoch() const { return context_->shape.epoch; }
  const ServerLimits& limits() const { return limits_; }
  const ConnectionStats& stats() const;

 private:
  // READs posted with one doorbell at most: all that may be in flight.
  static constexpr uint32_t kReadList = client::EndpointPlan::kMostReads;
  // Completions taken at once.
  static constexpr uint32_t kPollBatch = 64;
  // Room for the key of each operation. An odd number of cache lines, as for other strides here.
  static constexpr size_t kKeyStride = 65 * 64;
  static_assert(kKeyStride >= layout::kMaxKeySize);
  // How often a GET that nothing else is under way with polls before it becomes an operation, where
  // polling is wanted at all. That is some ten microseconds, longer than an adapter needs; a look
  // at the clock that falls due ends it sooner, when it is noticed after kPollsPerLook polls.
  static constexpr uint32_t kPollsAtOnce = 1024;
  static constexpr uint32_t kPollsPerLook = 16;
  // How often a GET, or a get-and-delete, is sent to the server, when what it names cannot be read
  // in time.
  static constexpr uint8_t kMaxAsks = 64;

  // GETs for one that is reported to a server that evicts, and how many go in a report: so there is
  // a message for about a thousand GETs.
  static constexpr uint32_t kTouchEvery = 16;
  static constexpr size_t kTouchesInReport = 64;
  // How long Close waits for the last report.
  static constexpr int64_t kLastReportNanos = 5'000'000;

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

  Impl(client::Connected connected, std::unique_ptr<client::Waiter> waiter,
       const client::Dialling& dialling, const Options& options,
       std::shared_ptr<client::SharedCache> cache);

  // Setup.
  void TakeGreeting(const client::Greeting& greeting);
  // With Options::preload, unless somebody has done so.
  absl::Status PreloadOnce(int64_t deadline);
  absl::Status Preload();
  absl::Status ReadPieces(const std::vector<uint64_t>& offsets, uint32_t length,
                          const std::function<void(size_t number, const uint8_t* bytes)>& take);

  // Operations.
  absl::Status CheckKey(std::string_view key) const {
    if (!key.empty() && key.size() <= limits_.max_key_size) return absl::OkStatus();
    return KeyError(key);
  }
  absl::Status KeyError(std::string_view key) const;
  absl::Status CheckValue(std::string_view value) const;
  absl::Status CheckSubmit(std::string_view key) const;
  absl::Status CheckRoom() const;
  absl::StatusOr<int64_t> TimeoutOf(const Timeout& timeout);
  static std::string_view KeepKey(const Operation& op, std::string_view key);
  layout::KeyHash HashOf(std::string_view key) const;
  layout::KeyHash KeepAndHash(const Operation& op, std::string_view* key) const;
  void StartGet(Operation& op, std::string_view key, layout::KeyHash hash);
  absl::Status SubmitColdGet(std::string_view key, GetCallback&& callback, int64_t timeout_ns);
  // A GET that goes by itself: what is READ, and what has come of it if not the key's item: the
  // post's error, what the last poll has returned, and the completion if that is 1.
  struct WarmBlock {
    layout::Slot slot;
    uint64_t length;
  };
  struct LoneEnd {
    int error;
    int count;
    ibv_wc completion;
    [[gnu::noinline]] void Set(int with_error, int with_count);
  };
  // Whether it is time to look at the clock. As a difference: a counter of ticks that goes back (a
  // machine that has moved to another host) makes it due at once. Of 32 bits, which takes fewer
  // instructions: after a pause of seconds in which these have come round it may be due later by
  // one look.
  bool LookDue() const {
    return static_cast<uint32_t>(client::CheapTicks() - last_look_) >= client::kTicksPerLook;
  }
  bool NothingElseDue() const;
  bool ReadAlone(const Operation& op, WarmBlock block, const std::string_view& key, uint32_t polls,
                 LoneEnd* end, std::string_view* value, uint64_t* version);
  void BecomeOperation(Operation& op, WarmBlock block, const LoneEnd& end);
  bool GetAtOnce(std::string_view key, std::string* value, uint64_t* version, int64_t timeout_ns,
                 absl::Status* status);
  absl::Status GoOnWaiting(WarmBlock block, const LoneEnd& end, layout::KeyHash hash,
                           std::string_view key, std::string* value, uint64_t* version,
                           int64_t timeout_ns);
  absl::Status GetAsOperation(std::string_view key, std::string* value, uint64_t* version,
                              int64_t timeout_ns);
  void StartPut(Operation& op, const wire::OperationHeader& header, std::string_view key,
                std::string_view value);
  // InvalidArgument for a condition that the operation does not know.
  static absl::StatusOr<wire::OperationHeader> RequestFor(wire::OpCode code,
                                                          const Condition& condition);
  static absl::StatusOr<wire::OperationHeader> PutRequest(const PutOptions& options);
  absl::Status CheckSuffix(std::string_view suffix) const;
  static absl::StatusOr<wire::OperationHeader> AddRequest(int64_t summand,
                                                          const ChangeOptions& options);
  absl::Status SubmitChange(OperationKind kind, const wire::OperationHeader& header,
                            std::string_view key, std::string_view value, const Timeout& timeout,
                            ChangeCallback&& callback);
  absl::StatusOr<ChangeResult> RequestChange(OperationKind kind,
                                             const wire::OperationHeader& header,
                                             std::string_view key, std::string_view value,
                                             const Timeout& timeout, uint64_t* present);
  static absl::StatusOr<ChangeResult> Outcome(SyncCall& call, uint64_t* present);
  void StartInfo(Operation& op);
  void AskForInfo(Operation& op);
  void OnInfoResult(Operation& op, const wire::Result& result);
  void EndInfo(Operation& op, const absl::Status& status);
  // Waits for a free place, until `deadline` (MonotonicNanos()); an error if the connection is
  // dead, or in a callback.
  absl::Status WaitForRoom(int64_t deadline = INT64_MAX);
  absl::StatusOr<Operation*> AcquireSync(OperationKind kind, SyncCall* call);
  void FinishSync(SyncCall* call);
  static absl::Status CheckTtl(std::chrono::milliseconds ttl);
  static absl::StatusOr<wire::OperationHeader> ExpireRequest(
      const std::optional<std::chrono::milliseconds>& ttl);

  // Several operations at once.
  absl::StatusOr<client::OperationGroup> GroupFor(const Timeout& timeout);
  absl::StatusOr<int64_t> TimeInGroup(const client::OperationGroup& group, int64_t timeout_ns);
  absl::StatusOr<Operation*> AcquireInGroup(OperationKind kind, int64_t timeout_ns, SyncCall* call);
  absl::Status StartSync(OperationKind kind, const wire::OperationHeader& header,
                         std::string_view key, std::string_view value, const Timeout& timeout,
                         SyncCall* call);
  absl::Status StartOfBatch(const Batch& batch, size_t i, SyncCall* call);
  static void TakeOutcome(SyncCall& call, size_t i, Batch* batch, absl::Status* first);
  template <typename Start, typename Finish>
  void RunTogether(size_t count, client::OperationGroup group, Start&& start, Finish&& finish);
  // Asynchronously.
  absl::Status CheckRun(const Timeout& timeout);
  void BeginMore(client::BatchRun& run);
  void EndedOf(client::BatchRun& run);
  // The outcome is in the call, which may be gone then.
  void Done(SyncCall& call) {
    call.done = true;
    if (call.group != nullptr && call.group->run != nullptr) EndedOf(*call.group->run);
  }

  // Memory of the caller's.
  absl::StatusOr<std::shared_ptr<client::Registration>> RegistrationOf(
      std::span<const std::byte> bytes) const;
  absl::Status MemoryUsable(const Operation& op) const;
  void TakeOutUnusable(std::vector<verbs::SlotRef>* unusable);
  void StartGetInto(Operation& op);
  void LookUpInto(Operation& op);
  void LookUpWhole(Operation& op);
  void FillElsewhere(uint32_t i, Operation& op);
  void GatherAgain();
  void EndGetInto(Operation& op, const absl::Status& status, const GetResult& found);
  static wire::ValueReference ReferenceTo(const Operation& op);
  void PutFromBuffer(Operation& op);

  // Scans.
  absl::StatusOr<std::shared_ptr<client::ScanRun>> MakeScan(const ScanRange& range, size_t limit,
                                                            const CallOptions& options);
  void AskForKeys(Operation& op);
  static void BeginStep(Operation& op);
  absl::Status TakeKeys(client::ScanRun& run, const wire::Result& result);
  void OnScanAnswer(Operation& op, const wire::Result& result);
  void ContinueScan(Operation& op);
  void OnScanGot(Operation& op, const absl::Status& status, const GetResult& result);
  void FailScan(Operation& op, const absl::Status& status);
  void EndScan(Operation& op);
  void StartGetAt(Operation& op, std::string_view key, layout::Slot slot);
  void NoteTouch(layout::KeyHash hash);
  void ReportTouches();
  void ReportLastTouches();

  // What the lookup's next step asks for.
  void ActOtherwise(Operation& op, const Lookup::Step& step);
  void QueueRead(Operation& op);
  void QueueNextPiece(Operation& op);
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
  template <bool plain>
  void HandOverWarm(Operation& op, const GetResult& result);
  void Tell(SyncCall& call, const absl::Status& status, const GetResult& result);
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
  // Callbacks do not nest, but for those that Close calls. Where one has forked, what is left is
  // the parent's: it ends there only.
  template <typename Function, typename... Args>
  void RunCallback(Function& callback, Args&&... args) {
    if (forked_) [[unlikely]]
      return;
    ++callbacks_;
    in_callback_ = true;
    if (callback) callback(std::forward<Args>(args)...);
    callback.Reset();
    in_callback_ = false;
  }
  // Ends the operation with an error, whatever it is.
  void FinishWithError(Operation& op, const absl::Status& status);
  static absl::Status ResultError(const wire::Result& result);

  // Posting and completions.
  void Flush();
  void FlushRequests();
  void PostReads();
  bool PollLone();
  void CountPosted(uint32_t count, int error);
  void LoseQueue();
  void PostReadList(uint32_t count);
  void FillRead(uint32_t i, Operation& op, const Lookup::Step& step);
  // Returns the number of completions that were taken; less than 0: none, and the queue has failed.
  int PollOnce();
  int FlushAndPoll();
  bool TakeCompletionInline(const ibv_wc& wc);
  void TakeCompletion(const ibv_wc& wc);
  void OnReadCompletion(Operation& op);
  void OnOtherCompletion(const ibv_wc& wc);
  void OnReceive(uint32_t buffer, uint32_t length);

  // Waiting and the end. A turn polls once and sleeps if it is time to; false when `deadline` has
  // passed.
  bool Turn(Spin& spin, int64_t deadline);
  void SleepUntil(int64_t deadline);
  void Maintain(int64_t now);
  void ScanDeadlines(int64_t now);
  void LookForServer(int64_t now);
  void OnLooked();
  int64_t TimeFor(const Operation& op) const {
    return op.timeout_ns != 0 ? op.timeout_ns : timeout_ns_;
  }
  // For people; rounded up, since the time that is left of a call's is hardly ever a whole one.
  static int64_t InMillis(int64_t nanos) { return (nanos + 999'999) / 1'000'000; }
  // How often deadlines are to be looked at, so that one is not passed by much.
  static int64_t ScanIntervalFor(int64_t timeout_ns) {
    return std::clamp<int64_t>(timeout_ns / 16, 100'000, 5'000'000);
  }
  int64_t EarliestDeadline();
  // When there is something to do at the latest, though nothing comes.
  int64_t NextTime();
  void StopWatching();
  // The connection is dead from here on; what is in flight is failed by FailOperations.
  void Fail(absl::Status why);
  void FailOperations();
  // What is left to do for a dead connection, once or more often.
  void Bury();
  absl::Status StatusFor(const Operation& op) const;

  // Lost connections. Nothing is sent or received from here on, until another is made or the
  // connection is dead, if it cannot be.
  void Lose(absl::Status why);
  // What there is to do without a connection; never blocks.
  void Recover();
  // Nothing of the lost endpoint is used any more; what is in flight is ready to begin again.
  void DropQueuedReads();
  void PrepareAgain();
  void ForgetServersSide();
  void MarkAsked();
  void TryAgain();
  void OnAttemptFailed(const absl::Status& status);
  void Resume(client::Connected connected);
  void GiveUpUnknownChanges(std::vector<verbs::SlotRef>* unknown);
  void RestartGets();
  void FailLate();
  absl::Status LateStatus(const Operation& op) const;
  // With what is known of the outcome.
  static absl::Status WithOutcome(const Operation& op, const absl::Status& status);
  static bool IsChange(const Operation& op);
  static bool IsGetting(const Operation& op);
  void SleepWithout(int64_t deadline);
  void OnForkInChild() override;

  Options options_;
  const client::Dialling dialling_;
  std::unique_ptr<client::Waiter> waiter_;
  // While there is no connection: the last one's, without anything of its device.
  std::unique_ptr<Endpoint> endpoint_;
  client::LargeBuffers large_buffers_;
  std::shared_ptr<client::Registrations> registrations_ = std::make_shared<client::Registrations>();
  client::OperationPool pool_;
  client::RequestQueue requests_;
  std::unique_ptr<char[]> keys_;  // kKeyStride bytes for each operation
  const std::shared_ptr<client::SharedCache> shared_cache_;
  std::optional<client::LookupContext> context_;
  // Of the session: as in the welcome of the last connection that was taken up.
  uint32_t incarnation_ = 0;
  ServerLimits limits_;
  uint64_t region_address_ = 0;
  bool touches_wanted_ = false;
  uint32_t touch_countdown_ = kTouchEvery;  // GETs until the next one that is noted
  uint64_t touch_random_ = 1;
  std::vector<uint64_t> touches_;
  int64_t timeout_ns_;  // of an operation

  bool up_ = true;     // there is a connection
  absl::Status dead_;  // why there never will be one again
  bool cancelled_ = false;
  bool in_callback_ = false;
  bool orphaned_ = false;         // nobody has the object any more
  bool forked_ = false;           // this is a child of the process that has the connection
  absl::Status loss_;             // why the last connection was lost
  absl::Status attempt_failure_;  // of the last attempt to make another since then
  bool prepared_ = true;          // PrepareAgain has been called since
  bool late_ = false;             // operations with Operation::late are to be failed
  int64_t next_attempt_ = 0;      // MonotonicNanos()
  uint64_t finished_before_ = 0;  // operations, when the connection was made
  client::BackOff back_off_;
  const absl::Status ok_;
  const absl::Status not_found_;  // made once, since a text needs memory

  client::FixedRing<Operation*> starts_;         // lookups not yet begun
  client::FixedRing<Operation*> reads_;          // with a READ to be posted
  bool piece_due_ = false;                       // among them a piece beside others under way
  client::FixedRing<Operation*> space_waiters_;  // for a large buffer
  bool space_freed_ = false;
  std::vector<uint64_t> releases_;  // pins to be given back
  bool release_sent_ = false;       // one is on its way
  bool release_due_ = false;        // and has not left yet
  uint32_t reads_in_flight_ = 0;
  uint32_t lkey_;  // of the endpoint's memory
  std::array<ibv_send_wr, kReadList> read_list_;
  std::array<ibv_sge, size_t{2} * kReadList> read_sges_;  // two for each READ; nearly all need one
  bool scattered_ = false;                                // one in the list needs both
  // A READ of one block into an operation's sink that goes by itself.
  ibv_send_wr lone_read_{};
  ibv_sge lone_sge_{};
  // The endpoint's, while the connection is up.
  ibv_qp* lone_qp_ = nullptr;
  ibv_cq* lone_cq_ = nullptr;
  ibv_send_wr* lone_bad_ = nullptr;  // is of no interest
  bool warm_reads_ = false;          // there is an index cache, and it may be used

  uint64_t last_look_ = 0;    // CheapTicks when the clock was looked at
  int64_t last_events_ = 0;   // when the connection manager was last asked
  int64_t last_scan_ = 0;     // when deadlines were last looked at
  bool late_before_ = false;  // the last look found one that had passed
  int64_t last_server_look_ = 0;
  int64_t next_server_look_ = INT64_MAX;
  int64_t scan_interval_ns_;  // between two scans
  uint64_t callbacks_ = 0;
#ifndef NDEBUG
  std::atomic<uint64_t> user_{0};  // the thread that is in a call, 0 if there is none
  int calls_ = 0;                  // that it is in
#endif
  mutable ConnectionStats stats_;
  // GETs that ReadAlone has done, each with one READ of a cached slot and one doorbell, that
  // stats() has not added yet; and their cache hits that it has.
  mutable uint64_t lone_gets_ = 0;
  mutable uint64_t lone_hits_ = 0;
  client::Reconnector reconnector_;  // destroyed before what it uses: its thread ends
  client::ForkWatch forks_{*this};   // last: see there
};

// Stands around every public call that runs no callback. With assertions on, a second thread that
// uses the connection is noticed.
class Connection::Impl::Use {
 public:
#ifdef NDEBUG
  explicit Use(Impl&) {}
  ~Use() {}  // NOLINT(modernize-use-equals-default): a variable of it is used
#else
  explicit Use(Impl& impl) : impl_(impl) { Enter(); }
  ~Use() { Leave(); }
#endif
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

#ifndef NDEBUG
 private:
  void Enter();
  void Leave();

  Impl& impl_;
#endif
};

// Stands around the others. At the end of the outermost one an object goes whose connection was
// destroyed in a callback meanwhile.
class Connection::Impl::Call {
 public:
  explicit Call(Impl& impl) : grave_{impl}, use_(impl) {}

 private:
  struct Grave {
    ~Grave() { impl.EndCall(); }
    Impl& impl;
  };
  Grave grave_;  // destroyed after the use has ended
  Use use_;
};

}  // namespace verbena
