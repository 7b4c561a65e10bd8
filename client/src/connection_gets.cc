// One-sided GETs and the poll loop: what a warm GET goes through, in one file so that it is
// compiled as one piece.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "client/src/ticks.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena {

using layout::KeyHash;

absl::Status Connection::Impl::KeyError(std::string_view key) const {
  if (key.empty()) return absl::InvalidArgumentError("the key is empty");
  return absl::InvalidArgumentError(
      absl::StrCat("the key has ", key.size(), " bytes, the server allows ", limits_.max_key_size));
}

absl::Status Connection::Impl::CheckSubmit(std::string_view key) const {
  if (!dead_.ok()) return dead_;
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  return CheckRoom();
}

absl::Status Connection::Impl::CheckRoom() const {
  if (!dead_.ok()) return dead_;
  if (pool_.full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.depth,
                     " operations of Options::depth are in flight: Poll or "
                     "Wait until one has ended, then submit again"));
  }
  return absl::OkStatus();
}

std::string_view Connection::Impl::KeepKey(const Operation& op, std::string_view key) {
  std::memcpy(op.key_memory, key.data(), key.size());
  return {op.key_memory, key.size()};
}

// Keys of the lengths that most have are hashed and copied here, the latter by a few overlapping
// words, as they are compared: for so little a call costs more than it does.
namespace {
constexpr bool IsShort(size_t size) { return size - 17 <= 32 - 17; }

[[gnu::noinline]] KeyHash HashOfOtherLength(std::string_view key, const layout::SeededXxh3& seed) {
  return KeyHash::Of(key, seed);
}
}  // namespace

[[gnu::always_inline]] inline KeyHash Connection::Impl::HashOf(std::string_view key) const {
  const layout::SeededXxh3& seed = context_->hash_seed;
  if (IsShort(key.size())) [[likely]]
    return {seed.HashShort(key.data(), key.size())};
  return HashOfOtherLength(key, seed);
}

// Copies the key into the operation's memory; `*key` is the copy then.
[[gnu::always_inline]] inline KeyHash Connection::Impl::KeepAndHash(const Operation& op,
                                                                    std::string_view* key) const {
  const char* const from = key->data();
  const size_t size = key->size();
  if (!IsShort(size)) [[unlikely]] {
    *key = KeepKey(op, *key);
    return HashOfOtherLength(*key, context_->hash_seed);
  }
  // Read once: for all that the compiler knows, it points to itself.
  char* const to = op.key_memory;
  char begin[16];
  char end[16];
  std::memcpy(begin, from, sizeof(begin));
  std::memcpy(end, from + size - sizeof(end), sizeof(end));
  std::memcpy(to, begin, sizeof(begin));
  std::memcpy(to + size - sizeof(end), end, sizeof(end));
  *key = {to, size};
  return {context_->hash_seed.HashShort(from, size)};
}

// The lookup itself begins with the next flush; until then the cached bucket's lines are fetched.
void Connection::Impl::StartGet(Operation& op, std::string_view key, KeyHash hash) {
  op.key = key;
  if (!options_.one_sided_reads) [[unlikely]] {
    op.lookup.set_hash(hash);
    Ask(op);
    return;
  }
  op.lookup.Prepare(*context_, hash, key);
  starts_.Push(&op);
}

[[gnu::always_inline]] inline absl::Status Connection::Impl::SubmitGet(std::string_view key,
                                                                       GetCallback&& callback,
                                                                       int64_t timeout_ns) {
  // An empty key is longer than any.
  if (!warm_reads_ || !dead_.ok() || pool_.full() || key.size() - 1 >= limits_.max_key_size)
      [[unlikely]]
    return SubmitColdGet(key, std::move(callback), timeout_ns);
  Operation& op = pool_.Acquire(OperationKind::kGet, timeout_ns, client::OperationUse::kPlainGet);
  // In place of the one that is there, which is empty since it has run, and needs no destructor.
  std::construct_at(&op.on_get, std::move(callback));
  const KeyHash hash = KeepAndHash(op, &key);
  op.key = key;
  op.lookup.PrepareCached(*context_, hash, key);
  starts_.Push(&op);
  return absl::OkStatus();
}

// Where there is no index cache, or something keeps the GET from being begun.
absl::Status Connection::Impl::SubmitColdGet(std::string_view key, GetCallback&& callback,
                                             int64_t timeout_ns) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  Operation& op = pool_.Acquire(OperationKind::kGet, timeout_ns, client::OperationUse::kPlainGet);
  op.on_get = std::move(callback);
  const KeyHash hash = KeepAndHash(op, &key);
  StartGet(op, key, hash);
  return absl::OkStatus();
}

absl::Status Connection::Impl::SubmitGet(std::string_view key, GetCallback&& callback,
                                         const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  return SubmitGet(key, std::move(callback), timeout_ns);
}

// A call that waits within a callback would wait for the call that runs the callback.
absl::Status Connection::Impl::WaitForRoom(int64_t deadline) {
  if (in_callback_) {
    return absl::FailedPreconditionError(
        "a synchronous call in a callback of the same connection; submit the operation instead");
  }
  Spin spin;
  while (dead_.ok() && pool_.full() && Turn(spin, deadline)) {
  }
  return dead_;
}

absl::StatusOr<client::Operation*> Connection::Impl::AcquireSync(OperationKind kind,
                                                                 SyncCall* call) {
  if (in_callback_ || pool_.full() || !dead_.ok()) VERBENA_RETURN_IF_ERROR(WaitForRoom());
  Operation& op = pool_.Acquire(kind);
  op.sync = call;
  return &op;
}

void Connection::Impl::FinishSync(SyncCall* call) {
  Spin spin;
  while (!call->done && !forked_) Turn(spin, INT64_MAX);
  // In the child of a process that forked in a callback nothing ends any more.
  if (!call->done) call->status = dead_;
}

// `count` READs have been posted with one doorbell; `error` is what the post said (an errno).
[[gnu::always_inline]] inline void Connection::Impl::CountPosted(uint32_t count, int error) {
  reads_in_flight_ += count;
  ++stats_.doorbells;
  stats_.reads += count;
  if (error != 0) [[unlikely]]
    Lose(verbs::ErrnoStatus(error, "ibv_post_send", absl::StrCat(count, " READs")));
}

void Connection::Impl::LoseQueue() {
  Lose(absl::InternalError("the completion queue has failed (overrun)"));
}

// A lone GET with a cached slot posts its READ by itself and polls for it at once. What it would be
// in Lookup and Operation is filled in only when it is not as simple as that: when the first polls
// are in vain, when something else completes, or when what was READ is not the key's item. Then it
// goes on as any other does (BecomeOperation), just as if it had begun so.

// Out of line: nothing of it is to be kept at hand where all is well.
void Connection::Impl::LoneEnd::Set(int with_error, int with_count) {
  error = with_error;
  count = with_count;
}

// Posts a READ of the block into the operation's sink and polls. True if it has come, and it is the
// key's item; else `*end` says what has happened.
//
// Requires that no READ is in flight: then there is a place in the send queue
// (Endpoint::send_room).
[[gnu::always_inline]] inline bool Connection::Impl::ReadAlone(const Operation& op, WarmBlock block,
                                                               const std::string_view& key,
                                                               uint32_t polls, LoneEnd* end,
                                                               std::string_view* value,
                                                               uint64_t* version) {
  assert(reads_in_flight_ == 0);
  lone_sge_.addr = verbs::AddressOf(op.sink->block.data());
  lone_sge_.length = static_cast<uint32_t>(block.length);
  lone_read_.wr_id = op.read_id;
  lone_read_.wr.rdma.remote_addr = region_address_ + block.slot.offset();
  stats_.bytes_read += block.length;
  const int error = verbs::PostSend(lone_qp_, &lone_read_, &lone_bad_);
  if (error != 0) [[unlikely]] {
    end->Set(error, 0);
    return false;
  }
  int count;
  do {
    count = verbs::Poll(lone_cq_, {&end->completion, 1});
  } while (count == 0 && --polls != 0 && (polls % kPollsPerLook != 0 || !LookDue()));
  if (count != 1) [[unlikely]] {
    end->Set(0, count);
    return false;
  }
  // Known to whoever has made the block's bounds, not to the compiler.
  if (block.length < sizeof(layout::ItemHeader)) __builtin_unreachable();
  if (end->completion.wr_id != op.read_id || end->completion.status != IBV_WC_SUCCESS ||
      !layout::TakeItemOf(op.sink->block.data(), block.length, block.slot.offset(), key,
                          context_->hash_seed, value, version)) [[unlikely]] {
    end->Set(0, 1);
    return false;
  }
  ++lone_gets_;
  return true;
}

// After ReadAlone, of an operation for which Lookup::Prepare has been called.
void Connection::Impl::BecomeOperation(Operation& op, WarmBlock block, const LoneEnd& end) {
  op.lookup.ReadingWarm(*context_, block.slot, block.length);
  CountPosted(1, end.error);
  stats_.completions += end.count > 0 ? 1 : 0;
  if (end.count < 0) {
    LoseQueue();
  } else if (end.count > 0 && end.completion.wr_id == op.read_id &&
             end.completion.status == IBV_WC_SUCCESS) {
    --reads_in_flight_;  // ReadAlone has judged it
    ActOtherwise(op, op.lookup.OnRead(*context_));
  } else if (end.count > 0) {
    TakeCompletion(end.completion);
  }
}

// While these hold there is nothing to do but GETs: nothing waits to be sent, no look at the clock
// is due, and no READ is in flight.
[[gnu::always_inline]] inline bool Connection::Impl::NothingElseDue() const {
  return up_ && (reads_in_flight_ | requests_.unsent()) == 0 && !LookDue();
}

// A call that waits needs no operation: it borrows the sink and the id of the one that it would be
// (OperationPool::Next). False if the GET has not begun.
[[gnu::always_inline]] inline bool Connection::Impl::GetAtOnce(std::string_view key,
                                                               std::string* value,
                                                               uint64_t* version,
                                                               int64_t timeout_ns,
                                                               absl::Status* status) {
  if (in_callback_ || !warm_reads_ || pool_.used() != 0 || key.size() - 1 >= limits_.max_key_size ||
      !NothingElseDue()) [[unlikely]]
    return false;
  const KeyHash hash = HashOf(key);
  const layout::Bucket* const home = Lookup::HomeOf(*context_, hash);
  WarmBlock block;
  if (!Lookup::FindWarm(*context_, *home, hash, &block.slot, &block.length)) [[unlikely]]
    return false;
  LoneEnd end;
  std::string_view got;
  uint64_t got_version;
  const uint32_t polls = options_.poll_time.count() > 0 ? kPollsAtOnce : 1;
  if (!ReadAlone(pool_.Next(), block, key, polls, &end, &got, &got_version)) [[unlikely]] {
    *status = GoOnWaiting(block, end, hash, key, value, version, timeout_ns);
    return true;
  }
  if (--touch_countdown_ == 0) [[unlikely]]
    NoteTouch(hash);
  if (version != nullptr) *version = got_version;
  if (value != nullptr) {
    // A string that is used again and again has the size already.
    if (value->size() == got.size()) {
      std::memcpy(value->data(), got.data(), got.size());
    } else {
      value->assign(got.data(), got.size());
    }
  }
  return true;
}

absl::Status Connection::Impl::GoOnWaiting(WarmBlock block, const LoneEnd& end, KeyHash hash,
                                           std::string_view key, std::string* value,
                                           uint64_t* version, int64_t timeout_ns) {
  SyncCall call;
  call.value = value;
  Operation& op = pool_.Acquire(OperationKind::kGet);
  op.sync = &call;
  op.timeout_ns = timeout_ns;
  op.key = key;
  op.lookup.Prepare(*context_, hash, key);
  BecomeOperation(op, block, end);
  FinishSync(&call);
  if (version != nullptr) *version = call.version;
  return std::move(call.status);
}

[[gnu::always_inline]] inline absl::Status Connection::Impl::Get(std::string_view key,
                                                                 std::string* value,
                                                                 uint64_t* version,
                                                                 int64_t timeout_ns) {
  absl::Status status;
  if (GetAtOnce(key, value, version, timeout_ns, &status)) [[likely]]
    return status;
  return GetAsOperation(key, value, version, timeout_ns);
}

absl::Status Connection::Impl::GetAsOperation(std::string_view key, std::string* value,
                                              uint64_t* version, int64_t timeout_ns) {
  if (version != nullptr) *version = 0;
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  SyncCall call;
  call.value = value;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kGet, &call));
  op->timeout_ns = timeout_ns;
  StartGet(*op, key, HashOf(key));
  FinishSync(&call);
  if (version != nullptr) *version = call.version;
  return std::move(call.status);
}

absl::Status Connection::Impl::Get(std::string_view key, std::string* value, uint64_t* version,
                                   const CallOptions& options) {
  if (version != nullptr) *version = 0;
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  return Get(key, value, version, timeout_ns);
}

void Connection::Impl::Tell(SyncCall& call, const absl::Status& status, const GetResult& result) {
  call.status = status;
  call.version = result.version;
  if (status.ok() && call.value != nullptr) {
    call.value->assign(result.value.data(), result.value.size());
  }
  Done(call);
}

// Releases the operation after the outcome has been handed over: value and callback may lie in its
// memory.
void Connection::Impl::HandOver(Operation& op, const absl::Status& status,
                                const GetResult& result) {
  pool_.Finish(op);
  if (SyncCall* const call = op.sync; call != nullptr) {
    Tell(*call, status, result);
  } else {
    RunCallback(op.on_get, status,
                GetResult{result.value, result.version, /*size=*/result.value.size()});
  }
  if (op.space != nullptr) DropSpace(op);
  if (op.pin != 0) DropPin(op);
  pool_.Free(op);
}

// What Lookup::OnWarmRead would find: the operation is not the connection's own, and has neither a
// large buffer nor a pin. `plain`: it is an OperationUse::kPlainGet.
template <bool plain>
[[gnu::always_inline]] inline void Connection::Impl::HandOverWarm(Operation& op,
                                                                  const GetResult& result) {
  if (--touch_countdown_ == 0) [[unlikely]]
    NoteTouch(op.lookup.hash());
  pool_.FinishUsers(op);
  assert(!plain || op.sync == nullptr);
  if (SyncCall* const call = plain ? nullptr : op.sync; call != nullptr) [[unlikely]] {
    Tell(*call, ok_, result);
  } else {
    RunCallback(op.on_get, ok_, result);
  }
  pool_.Free(op);
}

// Everything but the warm path.
void Connection::Impl::EndGet(Operation& op, const absl::Status& status, const GetResult& result) {
  if (op.kind == OperationKind::kScanGet) return OnScanGot(op, status, result);
  if (op.kind == OperationKind::kGetInto) return EndGetInto(op, status, result);
  ++(op.kind == OperationKind::kTake ? stats_.changes : stats_.gets);
  HandOver(op, status, result);
}

void Connection::Impl::Found(Operation& op, const GetResult& got) {
  if (op.kind == OperationKind::kTake) {
    DeleteWhatWasGot(op, got);
  } else {
    EndGet(op, absl::OkStatus(), got);
  }
}

void Connection::Impl::QueueRead(Operation& op) {
  op.read_queued = true;
  reads_.Push(&op);
}

void Connection::Impl::ActOtherwise(Operation& op, const Lookup::Step& step) {
  switch (step.action) {
    case Lookup::Action::kRead:
      op.step = step;
      if (op.lookup.SplitsRead(step)) op.step.in_space = true;
      QueueRead(op);
      return;
    case Lookup::Action::kWait:
      // A step that could not be posted yet is not to be overwritten by the next.
      if (!op.read_queued && op.lookup.NextRead(&op.step)) QueueRead(op);
      return;
    case Lookup::Action::kFound:
      if (op.kind == OperationKind::kGet && --touch_countdown_ == 0) NoteTouch(op.lookup.hash());
      Found(op, {op.lookup.value(), op.lookup.version()});
      return;
    case Lookup::Action::kNeedSpace:
      op.step = step;
      GetSpace(op);
      return;
    case Lookup::Action::kAbsent:
      EndGet(op, not_found_, {});
      return;
    case Lookup::Action::kTooSmall:
      LookUpWhole(op);
      return;
    case Lookup::Action::kAskServer:
      Ask(op);
      return;
  }
}

void Connection::Impl::Ask(Operation& op) {
  if (op.space != nullptr) DropSpace(op);
  if (op.pin != 0) DropPin(op);
  op.lookup.SplitInto({});
  if (++op.asks > kMaxAsks) {
    EndGet(op, absl::AbortedError("the value changes faster than it can be read: try again"), {});
    return;
  }
  requests_.Add(op.slot, wire::OpCode::kGet, op.key, {});
}

client::LocatedItem Connection::Impl::ItemAt(const wire::Location& location, std::string_view key) {
  return {.slot = layout::Slot{location.slot},
          .header = {.check = location.check,
                     .version = location.version,
                     .value_len = location.value_len,
                     .key_len = static_cast<uint16_t>(key.size()),
                     .flags = location.flags}};
}

// The server's answer to a GET.
void Connection::Impl::OnGetResult(Operation& op, const wire::Result& result) {
  switch (static_cast<wire::ResultCode>(result.header.code)) {
    case wire::ResultCode::kOk:
      ++stats_.rpc_gets;
      Found(op, {result.value, result.header.version});
      return;
    case wire::ResultCode::kNotFound:
      ++stats_.rpc_gets;
      EndGet(op, not_found_, {});
      return;
    case wire::ResultCode::kLocated: {
      ++stats_.rpc_gets;
      const absl::StatusOr<wire::Location> location = wire::DecodeLocation(result.value);
      if (!location.ok()) {
        EndGet(op, absl::InternalError(location.status().message()), {});
        return;
      }
      TakePin(op, location->pin);
      ActOtherwise(op, op.lookup.StartAt(*context_, ItemAt(*location, op.key), op.key));
      return;
    }
    default:
      EndGet(op, ResultError(result), {});
  }
}

// The same out of line, for operations that are not on the warm path.
void Connection::Impl::StartTakenGet(Operation& op) { StartGet(op, op.key, HashOf(op.key)); }

// Makes `step` the last READ of the list, with `i` before it.
[[gnu::always_inline]] inline void Connection::Impl::FillRead(uint32_t i, Operation& op,
                                                              const Lookup::Step& step) {
  ibv_sge& sge = read_sges_[size_t{2} * i];
  sge.addr = verbs::AddressOf(step.target);
  sge.length = step.length;
  sge.lkey = lkey_;
  if (step.in_space) FillElsewhere(i, op);
  ibv_send_wr& request = read_list_[i];
  request.wr_id = op.read_id;
  request.next = nullptr;
  request.wr.rdma.remote_addr = region_address_ + step.offset;
  if (i != 0) read_list_[i - 1].next = &request;
  stats_.bytes_read += step.length;
}

// Posts the READs that wait, and those of lookups that have not begun, as lists. Never more
// than the plan has: for so many the send queue has places of their own.
void Connection::Impl::PostReads() {
  assert(reads_in_flight_ <= endpoint_->read_depth());
  std::array<Operation*, kReadList> in_pieces;
  uint32_t count = kReadList;
  while (count == kReadList && up_) {
    const uint32_t room = std::min(kReadList, endpoint_->read_depth() - reads_in_flight_);
    count = 0;
    size_t pieces = 0;
    while (count < room) {
      if (!reads_.empty()) {
        Operation& op = *reads_.Pop();
        op.read_queued = false;
        FillRead(count++, op, op.step);
        if (op.step.in_space) in_pieces[pieces++] = &op;
      } else if (!starts_.empty()) {
        Operation& op = *starts_.Pop();
        layout::Slot slot;
        uint64_t length;
        if (op.lookup.StartWarm(*context_, &slot, &length)) [[likely]] {
          FillRead(count++, op,
                   {.action = Lookup::Action::kRead,
                    .length = static_cast<uint32_t>(length),
                    .offset = slot.offset(),
                    .target = op.sink->block.data()});
        } else {
          ActOtherwise(op, op.lookup.Start(*context_));
        }
      } else {
        break;
      }
    }
    if (count != 0) PostReadList(count);
    // A callback may have closed the connection, and so ended them.
    for (size_t i = 0; i < pieces && up_; ++i) QueueNextPiece(*in_pieces[i]);
    if (piece_due_) return;
  }
}

// A large item's next piece may be READ beside the one that has just been posted, but not with the
// same doorbell: see PollOnce.
void Connection::Impl::QueueNextPiece(Operation& op) {
  if (op.kind == OperationKind::kRawRead || !op.lookup.NextRead(&op.step)) return;
  QueueRead(op);
  piece_due_ = true;
}

[[gnu::always_inline]] inline void Connection::Impl::PostReadList(uint32_t count) {
  // A lookup that ended while the list was made may have run a callback that closed the connection:
  // then there is no queue pair any more.
  if (!up_) [[unlikely]] {
    if (scattered_) GatherAgain();
    return;
  }
  ibv_send_wr* bad = nullptr;
  const int error = verbs::PostSend(endpoint_->qp(), read_list_.data(), &bad);
  if (scattered_) GatherAgain();
  CountPosted(count, error);
}

[[gnu::always_inline]] inline void Connection::Impl::Flush() {
  if (space_freed_ && !space_waiters_.empty()) ServeSpaceWaiters();
  if (!starts_.empty() || !reads_.empty()) PostReads();
  if (requests_.CanSend()) FlushRequests();
}

[[gnu::always_inline]] inline void Connection::Impl::OnReadCompletion(Operation& op) {
  assert(reads_in_flight_ > 0);
  --reads_in_flight_;
  std::string_view value;
  uint64_t version;
  if (op.kind == OperationKind::kGet && op.lookup.OnWarmRead(*context_, &value, &version))
      [[likely]] {
    ++stats_.gets;
    HandOverWarm<false>(op, {value, version, value.size()});
  } else if (op.kind == OperationKind::kRawRead) {
    FinishCall(op, absl::OkStatus(), {});
  } else if (op.kind == OperationKind::kGetInto && op.lookup.split()) {
    ActOtherwise(op, op.lookup.OnSplitRead(*context_));
  } else {
    ActOtherwise(op, op.lookup.OnRead(*context_));
  }
}

// Whether those behind it may be taken too.
[[gnu::always_inline]] inline bool Connection::Impl::TakeCompletionInline(const ibv_wc& wc) {
  Operation* const op = wc.status == IBV_WC_SUCCESS ? pool_.FindByRead(wc.wr_id) : nullptr;
  if (op != nullptr) [[likely]] {
    OnReadCompletion(*op);
    return true;
  }
  OnOtherCompletion(wc);
  return up_;
}

void Connection::Impl::TakeCompletion(const ibv_wc& wc) { TakeCompletionInline(wc); }

// Returns what PollOnce does.
[[gnu::always_inline]] inline int Connection::Impl::FlushAndPoll() {
  piece_due_ = false;
  Flush();
  std::array<ibv_wc, kPollBatch> completions;
  const int count = verbs::Poll(endpoint_->cq(), completions);
  for (int i = 0; i < count; ++i) {
    if (!TakeCompletionInline(completions[static_cast<size_t>(i)])) break;
  }
  if (count < 0) [[unlikely]]
    LoseQueue();
  else
    stats_.completions += static_cast<uint64_t>(count);
  return count;
}

int Connection::Impl::PollOnce() {
  if (LookDue()) Maintain(MonotonicNanos());
  if (!up_) [[unlikely]] {
    Recover();
    return 0;
  }
  // Between the pieces of a large item that are posted it is seen whether one has come, so that it
  // is hashed before the next ones drive it out of the cache. Where READs take their time that is
  // in vain, and as many are under way in the end as may be.
  int count = 0;
  uint32_t rounds = 0;
  do {
    const int taken = FlushAndPoll();
    count = taken < 0 ? taken : count + taken;
  } while (piece_due_ && ++rounds < Lookup::kPiecesInFlight && up_ && count >= 0);
  if (release_due_) [[unlikely]] {
    // A caller that has its value may not come back for long, and the server keeps the pin.
    release_due_ = false;
    if (up_) FlushRequests();
  }
  if (!up_) [[unlikely]]
    Recover();
  return count;
}

// One GET has been submitted and nothing else is in flight: false if it, too, is for PollOnce.
[[gnu::always_inline]] inline bool Connection::Impl::PollLone() {
  if (pool_.used() != 1 || starts_.empty() || !NothingElseDue()) return false;
  Operation& op = *starts_.At(0);
  WarmBlock block;
  if (op.use != client::OperationUse::kPlainGet ||
      !op.lookup.FindPrepared(*context_, &block.slot, &block.length)) [[unlikely]]
    return false;
  starts_.Clear();
  LoneEnd end;
  std::string_view value;
  uint64_t version;
  if (ReadAlone(op, block, op.lookup.key(), 1, &end, &value, &version)) [[likely]] {
    HandOverWarm<true>(op, {value, version, value.size()});
  } else {
    BecomeOperation(op, block, end);
  }
  return true;
}

[[gnu::always_inline]] inline int Connection::Impl::Poll() {
  if (in_callback_) return 0;
  const uint64_t before = callbacks_;
  if (!PollLone()) {
    PollOnce();
  } else if (!up_) [[unlikely]] {
    Recover();
  }
  return static_cast<int>(callbacks_ - before);
}

// The public calls of the warm path are here for the same reason.

absl::Status Connection::Get(std::string_view key, std::string* value, uint64_t* version) {
  const Impl::Call call(*impl_);
  return impl_->Get(key, value, version, /*timeout_ns=*/0);
}

absl::Status Connection::SubmitGet(std::string_view key, GetCallback callback) {
  const Impl::Use use(*impl_);
  return impl_->SubmitGet(key, std::move(callback), /*timeout_ns=*/0);
}

// What Impl::Call does, with fewer instructions: who destroys the connection has closed it.
int Connection::Poll() {
  Impl& impl = *impl_;
  int count;
  {
    const Impl::Use use(impl);
    count = impl.Poll();
  }
  if (!impl.up()) [[unlikely]]
    impl.EndCall();
  return count;
}

}  // namespace verbena
