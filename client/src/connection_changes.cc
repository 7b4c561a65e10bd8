// Changes and calls: from submission to the callback. Also what happens to operations that need a
// large buffer.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/layout/item.h"
#include "common/verbs/errors.h"

namespace verbena {

using client::LargeBuffers;

absl::Status Connection::Impl::CheckValue(std::string_view value) const {
  if (value.size() <= limits_.max_value_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the value has ", value.size(), " bytes, the server allows ", limits_.max_value_size));
}

absl::StatusOr<wire::OperationHeader> Connection::Impl::RequestFor(wire::OpCode code,
                                                                   const Condition& condition) {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(code);
  switch (condition.kind) {
    case Condition::Kind::kNone:
      return header;
    case Condition::Kind::kIfAbsent:
      if (code != wire::OpCode::kPut) {
        return absl::InvalidArgumentError("the condition IfAbsent is for Put only");
      }
      header.flags = wire::kOpIfAbsent;
      return header;
    case Condition::Kind::kIfPresent:
      if (code == wire::OpCode::kDelete) {
        return absl::InvalidArgumentError(
            "the condition IfPresent is not for Delete, which says by itself if there was no key");
      }
      header.flags = wire::kOpIfPresent;
      return header;
    case Condition::Kind::kIfVersion:
      header.flags = wire::kOpIfVersion;
      header.expected = condition.version;
      return header;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "Condition::kind is ", static_cast<int>(condition.kind), ", which is no condition"));
}

absl::StatusOr<wire::OperationHeader> Connection::Impl::PutRequest(const PutOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(wire::OperationHeader header,
                           RequestFor(wire::OpCode::kPut, options.condition));
  if (options.ttl.has_value()) {
    VERBENA_RETURN_IF_ERROR(CheckTtl(*options.ttl));
    header.flags |= wire::kOpExpires;
    header.argument = static_cast<uint64_t>(options.ttl->count());
  }
  return header;
}

absl::StatusOr<wire::OperationHeader> Connection::Impl::AddRequest(int64_t summand,
                                                                   const ChangeOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(wire::OperationHeader header,
                           RequestFor(wire::OpCode::kAdd, options.condition));
  header.argument = static_cast<uint64_t>(summand);
  return header;
}

// A call's own deadline in ns, 0 if it has none. Deadlines are looked at often enough for it then.
absl::StatusOr<int64_t> Connection::Impl::TimeoutOf(const Timeout& timeout) {
  if (!timeout.has_value()) return 0;
  constexpr int64_t kMostMillis = INT64_MAX / 4 / 1'000'000;
  if (timeout->count() < 1 || timeout->count() > kMostMillis) {
    return absl::InvalidArgumentError(
        absl::StrCat("the timeout is ", timeout->count(), " ms; it must be 1 to ", kMostMillis));
  }
  const int64_t nanos = timeout->count() * 1'000'000;
  scan_interval_ns_ = std::min(scan_interval_ns_, ScanIntervalFor(nanos));
  return nanos;
}

absl::Status Connection::Impl::CheckSuffix(std::string_view suffix) const {
  if (suffix.size() <= limits_.eager_limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the suffix has ", suffix.size(),
                                                 " bytes, at most ", limits_.eager_limit,
                                                 " can be appended at once"));
}

absl::Status Connection::Impl::SubmitPut(std::string_view key, std::string_view value,
                                         ChangeCallback&& callback, const PutOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  VERBENA_RETURN_IF_ERROR(CheckValue(value));
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, PutRequest(options));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  Operation& op = pool_.Acquire(OperationKind::kPut);
  op.timeout_ns = timeout_ns;
  op.on_change = std::move(callback);
  // A value that travels in the request is copied there at once, with its key.
  StartPut(op, header, value.size() > limits_.eager_limit ? KeepKey(op, key) : key, value);
  return absl::OkStatus();
}

// A change that travels in a request whole.
absl::Status Connection::Impl::SubmitChange(OperationKind kind, const wire::OperationHeader& header,
                                            std::string_view key, std::string_view value,
                                            const Timeout& timeout, ChangeCallback&& callback) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(timeout));
  Operation& op = pool_.Acquire(kind);
  op.timeout_ns = timeout_ns;
  op.on_change = std::move(callback);
  requests_.Add(op.slot, header, key, value);
  return absl::OkStatus();
}

absl::Status Connection::Impl::SubmitDelete(std::string_view key, ChangeCallback&& callback,
                                            const ChangeOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header,
                           RequestFor(wire::OpCode::kDelete, options.condition));
  return SubmitChange(OperationKind::kDelete, header, key, {}, options.timeout,
                      std::move(callback));
}

absl::Status Connection::Impl::SubmitAdd(std::string_view key, int64_t summand,
                                         ChangeCallback&& callback, const ChangeOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, AddRequest(summand, options));
  return SubmitChange(OperationKind::kAdd, header, key, {}, options.timeout, std::move(callback));
}

absl::Status Connection::Impl::SubmitAppend(std::string_view key, std::string_view suffix,
                                            ChangeCallback&& callback,
                                            const ChangeOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header,
                           RequestFor(wire::OpCode::kAppend, options.condition));
  VERBENA_RETURN_IF_ERROR(CheckSuffix(suffix));
  return SubmitChange(OperationKind::kAppend, header, key, suffix, options.timeout,
                      std::move(callback));
}

void Connection::Impl::StartPut(Operation& op, const wire::OperationHeader& header,
                                std::string_view key, std::string_view value) {
  if (value.size() <= limits_.eager_limit) {
    requests_.Add(op.slot, header, key, value);
    return;
  }
  op.request = header;
  op.key = key;
  op.value = value;
  op.registration = registrations_->Find(std::as_bytes(std::span(value)));
  // The next flush sends it or gets it a buffer; if that fails its callback must not run in here.
  space_waiters_.Push(&op);
  space_freed_ = true;
}

absl::StatusOr<ChangeResult> Connection::Impl::Put(std::string_view key, std::string_view value,
                                                   const PutOptions& options, uint64_t* present) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  VERBENA_RETURN_IF_ERROR(CheckValue(value));
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, PutRequest(options));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  SyncCall call;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kPut, &call));
  op->timeout_ns = timeout_ns;
  StartPut(*op, header, key, value);
  FinishSync(&call);
  return Outcome(call, present);
}

absl::StatusOr<ChangeResult> Connection::Impl::Delete(std::string_view key,
                                                      const ChangeOptions& options,
                                                      uint64_t* present) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header,
                           RequestFor(wire::OpCode::kDelete, options.condition));
  return RequestChange(OperationKind::kDelete, header, key, {}, options.timeout, present);
}

absl::StatusOr<ChangeResult> Connection::Impl::Add(std::string_view key, int64_t summand,
                                                   const ChangeOptions& options,
                                                   uint64_t* present) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, AddRequest(summand, options));
  return RequestChange(OperationKind::kAdd, header, key, {}, options.timeout, present);
}

absl::StatusOr<ChangeResult> Connection::Impl::Append(std::string_view key, std::string_view suffix,
                                                      const ChangeOptions& options,
                                                      uint64_t* present) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header,
                           RequestFor(wire::OpCode::kAppend, options.condition));
  VERBENA_RETURN_IF_ERROR(CheckSuffix(suffix));
  return RequestChange(OperationKind::kAppend, header, key, suffix, options.timeout, present);
}

// A change that travels in a request whole, synchronously.
absl::StatusOr<ChangeResult> Connection::Impl::RequestChange(
    OperationKind kind, const wire::OperationHeader& header, std::string_view key,
    std::string_view value, const Timeout& timeout, uint64_t* present) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(timeout));
  SyncCall call;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(kind, &call));
  op->timeout_ns = timeout_ns;
  requests_.Add(op->slot, header, key, value);
  FinishSync(&call);
  return Outcome(call, present);
}

absl::StatusOr<ChangeResult> Connection::Impl::Outcome(SyncCall& call, uint64_t* present) {
  if (call.status.ok()) return call.change;
  if (present != nullptr) *present = call.change.version;
  return std::move(call.status);
}

absl::Status Connection::Impl::Ping(const CallOptions& options) {
  constexpr std::string_view kText = "verbena";
  VERBENA_ASSIGN_OR_RETURN(client::OperationGroup group, GroupFor(options.timeout));
  std::string echo;
  SyncCall call;
  call.value = &echo;
  call.group = &group;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op,
                           AcquireInGroup(OperationKind::kPing, /*timeout_ns=*/0, &call));
  requests_.Add(op->slot, wire::OpCode::kPing, {}, kText);
  FinishSync(&call);
  VERBENA_RETURN_IF_ERROR(call.status);
  if (echo != kText) return absl::InternalError("the server's answer to a ping is another text");
  return absl::OkStatus();
}

// Gets the operation memory for its large value, now or when some is released.
void Connection::Impl::GetSpace(Operation& op) {
  if (op.kind == OperationKind::kPut && op.registration != nullptr) {
    if (const absl::Status usable = MemoryUsable(op); usable.ok()) {
      PutFromBuffer(op);
    } else {
      FinishWithError(op, usable);
    }
    return;
  }
  if (op.space != nullptr) DropSpace(op);
  const uint64_t bytes = op.kind == OperationKind::kPut ? op.value.size() : op.step.length;
  absl::StatusOr<LargeBuffers::Buffer*> space = large_buffers_.Acquire(bytes);
  if (!space.ok()) {
    FinishWithError(op, verbs::WithoutErrno(space.status()));
  } else if (*space == nullptr) {
    space_waiters_.Push(&op);
  } else {
    op.space = *space;
    UseSpace(op);
  }
}

void Connection::Impl::UseSpace(Operation& op) {
  const std::span<uint8_t> bytes = op.space->bytes();
  if (op.kind != OperationKind::kPut) {
    ActOtherwise(op, op.lookup.OnSpace(*context_, bytes));
    return;
  }
  std::memcpy(bytes.data(), op.value.data(), op.value.size());
  requests_.AddByReference(op.slot, op.request, op.key, static_cast<uint32_t>(op.value.size()),
                           ReferenceTo(op));
}

void Connection::Impl::DropSpace(Operation& op) {
  large_buffers_.Release(std::exchange(op.space, nullptr));
  space_freed_ = true;
}

void Connection::Impl::ServeSpaceWaiters() {
  space_freed_ = false;
  // Each is tried once: one that still has to wait goes back to the end. (A callback that closes
  // the connection clears them.)
  for (size_t left = space_waiters_.size(); left > 0 && !space_waiters_.empty(); --left) {
    GetSpace(*space_waiters_.Pop());
  }
}

absl::Status Connection::Impl::ResultError(const wire::Result& result) {
  const auto code = static_cast<wire::ResultCode>(result.header.code);
  if (code == wire::ResultCode::kOk) return absl::OkStatus();
  if (code == wire::ResultCode::kNotFound) return absl::NotFoundError("no such key");
  // The server leaves a text out where the answer has no room for it.
  std::string text = PrintableText(result.value);
  if (text.empty()) {
    text = absl::StrCat("the server answered: ", wire::ResultCodeName(code));
  }
  switch (code) {
    case wire::ResultCode::kInvalid:
    case wire::ResultCode::kTooLarge:
      return absl::InvalidArgumentError(text);
    case wire::ResultCode::kNoSpace:
      return absl::ResourceExhaustedError(text);
    case wire::ResultCode::kUnavailable:
      return absl::UnavailableError(text);
    case wire::ResultCode::kExists:
      return absl::AlreadyExistsError(text);
    case wire::ResultCode::kMismatch:
      return absl::AbortedError(text);
    case wire::ResultCode::kNotANumber:
      return absl::FailedPreconditionError(text);
    case wire::ResultCode::kOverflow:
      return absl::OutOfRangeError(text);
    case wire::ResultCode::kUnsupported:
      return absl::UnimplementedError(text);
    case wire::ResultCode::kOk:
    case wire::ResultCode::kNotFound:
    case wire::ResultCode::kLocated:
    case wire::ResultCode::kInternal:
      break;
  }
  return absl::InternalError(absl::StrCat("the server answered ", wire::ResultCodeName(code), " (",
                                          result.header.code, "): ", text));
}

void Connection::Impl::OnResult(Operation& op, const wire::Result& result) {
  switch (op.kind) {
    case OperationKind::kGet:
    case OperationKind::kScanGet:
    case OperationKind::kGetInto:
      OnGetResult(op, result);
      return;
    case OperationKind::kPut:
    case OperationKind::kDelete:
    case OperationKind::kAdd:
    case OperationKind::kAppend:
    case OperationKind::kExpire:
    case OperationKind::kTtl:
      OnChangeResult(op, result);
      return;
    case OperationKind::kScan:
      OnScanAnswer(op, result);
      return;
    case OperationKind::kTouch:
      pool_.Finish(op);
      pool_.Free(op);
      return;
    case OperationKind::kTake:
      OnTakeResult(op, result);
      return;
    case OperationKind::kInfo:
      OnInfoResult(op, result);
      return;
    default:
      FinishCall(op, ResultError(result), result.value);
      return;
  }
}

void Connection::Impl::OnChangeResult(Operation& op, const wire::Result& result) {
  absl::Status status = ResultError(result);
  ChangeResult change;
  change.version = result.header.version;
  change.existed = result.header.argument != 0;
  if (op.kind == OperationKind::kDelete && status.ok() && !change.existed) status = not_found_;
  if (op.kind == OperationKind::kTtl) {
    change.number = static_cast<int64_t>(result.header.argument);
  }
  if (op.kind == OperationKind::kAdd && status.ok() &&
      !absl::SimpleAtoi(ToAbsl(result.value), &change.number)) {
    status = absl::InternalError("the server's answer to an addition is not a number");
  }
  FinishChange(op, status, change);
}

void Connection::Impl::FinishChange(Operation& op, const absl::Status& status,
                                    const ChangeResult& result) {
  if (op.kind != OperationKind::kTtl) ++stats_.changes;
  pool_.Finish(op);
  if (op.space != nullptr) DropSpace(op);
  if (op.registration != nullptr) registrations_->Done(std::move(op.registration));
  if (SyncCall* const call = op.sync; call != nullptr) {
    call->status = status;
    call->change = result;
    Done(*call);
  } else {
    RunCallback(op.on_change, status, result);
  }
  pool_.Free(op);
}

void Connection::Impl::FinishCall(Operation& op, const absl::Status& status,
                                  std::string_view value) {
  pool_.Finish(op);
  SyncCall* const call = op.sync;
  call->status = status;
  if (status.ok() && call->value != nullptr) call->value->assign(value.data(), value.size());
  Done(*call);
  op.space = nullptr;  // of a preload's READ, whose caller owns it
  pool_.Free(op);
}

void Connection::Impl::FinishWithError(Operation& op, const absl::Status& status) {
  switch (op.kind) {
    case OperationKind::kGet:
    case OperationKind::kTake:
    case OperationKind::kScanGet:
    case OperationKind::kGetInto:
      EndGet(op, status, {});
      return;
    case OperationKind::kScan:
      FailScan(op, status);
      return;
    case OperationKind::kPut:
    case OperationKind::kDelete:
    case OperationKind::kAdd:
    case OperationKind::kAppend:
    case OperationKind::kExpire:
    case OperationKind::kTtl:
      FinishChange(op, status, {});
      return;
    case OperationKind::kTouch:
      pool_.Finish(op);
      pool_.Free(op);
      return;
    case OperationKind::kInfo:
      EndInfo(op, status);
      return;
    default:
      FinishCall(op, status, {});
      return;
  }
}

const ConnectionStats& Connection::Impl::stats() const {
  const client::LookupCounters& counters = context_->counters;
  stats_.read_retries = counters.read_retries;
  const uint64_t lone = std::exchange(lone_gets_, 0);
  stats_.gets += lone;
  stats_.reads += lone;
  stats_.doorbells += lone;
  stats_.completions += lone;
  lone_hits_ += lone;
  stats_.cache_hits = counters.cache_hits + lone_hits_;
  stats_.cache_stale = counters.cache_stale;
  stats_.cache_misses = counters.cache_misses;
  stats_.directory_reads = counters.directory_reads;
  stats_.sends = requests_.sends();
  stats_.bytes_sent = requests_.bytes_sent();
  return stats_;
}

}  // namespace verbena
