// One-sided GETs and the poll loop: what a warm GET goes through, in one file so that it is
// compiled as one piece.
#include <algorithm>
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

// Keys of common lengths are copied here by a few overlapping words, as they are compared: for so
// little a call costs more than it does.
std::string_view Connection::Impl::KeepKey(const Operation& op, std::string_view key) {
  char* const to =
      op.key_memory;  // read once: for all that the compiler knows, it points to itself
  const char* const from = key.data();
  const size_t size = key.size();
  if (size >= 16 && size <= 32) [[likely]] {
    char begin[16];
    char end[16];
    std::memcpy(begin, from, sizeof(begin));
    std::memcpy(end, from + size - sizeof(end), sizeof(end));
    std::memcpy(to, begin, sizeof(begin));
    std::memcpy(to + size - sizeof(end), end, sizeof(end));
  } else {
    std::memcpy(to, from, size);
  }
  return {to, size};
}

// The lookup itself begins with the next flush; until then the cached bucket's lines are fetched.
[[gnu::always_inline]] inline void Connection::Impl::StartGet(Operation& op, std::string_view key) {
  op.key = key;
  op.hash = KeyHash::Of(key, context_->hash_seed);
  if (!options_.one_sided_reads) {
    Ask(op);
    return;
  }
  op.lookup.Prepare(*context_, context_->segments.Get(op.hash), op.hash, key, op.sink);
  starts_.Push(&op);
}

[[gnu::always_inline]] inline absl::Status Connection::Impl::SubmitGet(std::string_view key,
                                                                       GetCallback&& callback,
                                                                       int64_t timeout_ns) {
  if (!dead_.ok() || pool_.full() || key.empty() || key.size() > limits_.max_key_size) {
    return CheckSubmit(key);
  }
  Operation& op = pool_.Acquire(OperationKind::kGet);
  // In place of the one that is there, which is empty since it has run, and needs no destructor.
  std::construct_at(&op.on_get, std::move(callback));
  op.timeout_ns = timeout_ns;
  StartGet(op, KeepKey(op, key));
  return absl::OkStatus();
}

absl::Status Connection::Impl::SubmitGet(std::string_view key, GetCallback&& callback,
                                         const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  return SubmitGet(key, std::move(callback), timeout_ns);
}

// A call that waits within a callback would wait for the call that runs the callback.
absl::Status Connection::Impl::WaitForRoom() {
  if (in_callback_) {
    return absl::FailedPreconditionError(
        "a synchronous call in a callback of the same connection; submit the operation instead");
  }
  Spin spin;
  while (dead_.ok() && pool_.full()) Turn(spin, INT64_MAX);
  return dead_;
}

absl::StatusOr<client::Operation*> Connection::Impl::AcquireSync(OperationKind kind,
                                                                 SyncCall* call) {
  if (pool_.used() >= sync_room_) VERBENA_RETURN_IF_ERROR(WaitForRoom());
  Operation& op = pool_.Acquire(kind);
  op.sync = call;
  return &op;
}

void Connection::Impl::FinishSync(SyncCall* call) {
  // Nearly always a GET whose READ is there at once.
  PollOnce();
  if (call->done) return;
  Spin spin;
  while (!call->done && !forked_) Turn(spin, INT64_MAX);
  // In the child of a process that forked in a callback nothing ends any more.
  if (!call->done) call->status = dead_;
}

[[gnu::always_inline]] inline absl::Status Connection::Impl::Get(std::string_view key,
                                                                 std::string* value,
                                                                 uint64_t* version,
                                                                 int64_t timeout_ns) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  SyncCall call;
  call.value = value;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kGet, &call));
  op->timeout_ns = timeout_ns;
  StartGet(*op, key);
  FinishSync(&call);
  if (version != nullptr) *version = call.version;
  return std::move(call.status);
}

absl::Status Connection::Impl::Get(std::string_view key, std::string* value, uint64_t* version,
                                   const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  return Get(key, value, version, timeout_ns);
}

// Releases the operation after the outcome has been handed over: value and callback may lie in its
// memory.
[[gnu::always_inline]] inline void Connection::Impl::HandOver(Operation& op,
                                                              const absl::Status& status,
                                                              const GetResult& result) {
  pool_.Finish(op);
  if (SyncCall* const call = op.sync; call != nullptr) {
    call->status = status;
    call->version = result.version;
    if (status.ok() && call->value != nullptr) {
      call->value->assign(result.value.data(), result.value.size());
    }
    call->done = true;
  } else {
    RunCallback(op.on_get, status, result);
  }
  if (op.space != nullptr) DropSpace(op);
  if (op.pin != 0) DropPin(op);
  pool_.Free(op);
}

[[gnu::always_inline]] inline void Connection::Impl::FinishGet(Operation& op,
                                                               const absl::Status& status,
                                                               const GetResult& result) {
  ++stats_.gets;
  if (--touch_countdown_ == 0) NoteTouch(op.hash);
  HandOver(op, status, result);
}

// The same out of line, for everything but the warm path.
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
      if (op.kind == OperationKind::kGet && --touch_countdown_ == 0) NoteTouch(op.hash);
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
      ActOtherwise(op, op.lookup.StartAt(*context_, ItemAt(*location, op.key), op.key, op.sink));
      return;
    }
    default:
      EndGet(op, ResultError(result), {});
  }
}

// The same out of line, for operations that are not on the warm path.
void Connection::Impl::StartTakenGet(Operation& op) { StartGet(op, op.key); }

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
  op.post_numbers[op.reads_posted++ % op.post_numbers.size()] =
      endpoint_->PostNumber(/*signalled=*/true);
  stats_.bytes_read += step.length;
}

// Posts the READs that wait, and those of lookups that have not begun, as lists. Never more in
// flight than negotiated, nor more than the send queue holds.
void Connection::Impl::PostReads() {
  uint32_t count = kReadList;
  while (count == kReadList && up_) {
    const uint32_t room =
        std::min({kReadList, endpoint_->read_depth() - reads_in_flight_, endpoint_->send_room()});
    count = 0;
    while (count < room) {
      if (!reads_.empty()) {
        Operation& op = *reads_.Pop();
        op.read_queued = false;
        FillRead(count++, op, op.step);
        if (op.step.in_space) QueueNextPiece(op);
      } else if (!starts_.empty()) {
        Operation& op = *starts_.Pop();
        Lookup::Step step;
        if (op.lookup.StartWarm(*context_, &step)) [[likely]] {
          FillRead(count++, op, step);
        } else {
          ActOtherwise(op, op.lookup.Start(*context_));
        }
      } else {
        break;
      }
    }
    if (count != 0) PostReadList(count);
  }
}

// The same, with less to look at, where one lookup is to begin, nothing else is to be READ, and
// there is room.
[[gnu::always_inline]] inline void Connection::Impl::PostLoneRead() {
  Operation& op = *starts_.Pop();
  Lookup::Step step;
  if (op.lookup.StartWarm(*context_, &step)) [[likely]] {
    FillRead(0, op, step);
    PostReadList(1);
  } else {
    ActOtherwise(op, op.lookup.Start(*context_));
    PostReads();
  }
}

// A large item's next piece may be READ beside the one that has just been put into a list.
void Connection::Impl::QueueNextPiece(Operation& op) {
  if (op.kind != OperationKind::kRawRead && op.lookup.NextRead(&op.step)) QueueRead(op);
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
  reads_in_flight_ += count;
  ++stats_.doorbells;
  stats_.reads += count;
  if (error != 0) {
    Lose(verbs::ErrnoStatus(error, "ibv_post_send", absl::StrCat(count, " READs")));
  }
}

[[gnu::always_inline]] inline void Connection::Impl::Flush() {
  if (space_freed_ && !space_waiters_.empty()) ServeSpaceWaiters();
  if (!starts_.empty() || !reads_.empty()) {
    if (starts_.size() == 1 && reads_.empty() && reads_in_flight_ == 0 &&
        endpoint_->send_room() != 0 && up_) {
      PostLoneRead();
    } else {
      PostReads();
    }
  }
  if (requests_.CanSend()) FlushRequests();
}

[[gnu::always_inline]] inline void Connection::Impl::OnReadCompletion(Operation& op) {
  --reads_in_flight_;
  endpoint_->Retire(op.post_numbers[op.reads_completed++ % op.post_numbers.size()]);
  std::string_view value;
  uint64_t version;
  if (op.kind == OperationKind::kGet && op.lookup.OnWarmRead(*context_, &value, &version))
      [[likely]] {
    FinishGet(op, absl::OkStatus(), {value, version});
  } else if (op.kind == OperationKind::kRawRead) {
    FinishCall(op, absl::OkStatus(), {});
  } else if (op.kind == OperationKind::kGetInto && op.lookup.split()) {
    ActOtherwise(op, op.lookup.OnSplitRead(*context_));
  } else {
    ActOtherwise(op, op.lookup.OnRead(*context_));
  }
}

[[gnu::always_inline]] inline int Connection::Impl::PollInline() {
  if (client::CheapTicks() >= next_look_) Maintain(MonotonicNanos());
  if (!up_) [[unlikely]] {
    Recover();
    return 0;
  }
  Flush();
  std::array<ibv_wc, kPollBatch> completions;
  const int count = verbs::Poll(endpoint_->cq(), completions);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& wc = completions[static_cast<size_t>(i)];
    Operation* const op = wc.status == IBV_WC_SUCCESS ? pool_.FindByRead(wc.wr_id) : nullptr;
    if (op != nullptr) [[likely]] {
      OnReadCompletion(*op);
    } else {
      OnOtherCompletion(wc);
      if (!up_) break;
    }
  }
  if (count < 0) [[unlikely]]
    Lose(absl::InternalError("the completion queue has failed (overrun)"));
  if (release_due_) [[unlikely]] {
    // A caller that has its value may not come back for long, and the server keeps the pin.
    release_due_ = false;
    if (up_) FlushRequests();
  }
  if (!up_) [[unlikely]]
    Recover();
  return count;
}

int Connection::Impl::PollOnce() { return PollInline(); }

[[gnu::always_inline]] inline int Connection::Impl::Poll() {
  if (in_callback_) return 0;
  const uint64_t before = callbacks_;
  PollInline();
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

int Connection::Poll() {
  const Impl::Call call(*impl_);
  return impl_->Poll();
}

}  // namespace verbena
