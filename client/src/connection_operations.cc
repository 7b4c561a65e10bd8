// The life of an operation: from submission to its callback.
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/layout/item.h"

namespace verbena {

using client::LargeBuffers;
using layout::KeyHash;

namespace {

// Room for the key of each operation. An odd number of cache lines, as for other strides here.
constexpr size_t kKeyStride = 65 * 64;
static_assert(kKeyStride >= layout::kMaxKeySize);

}  // namespace

Connection::Impl::Impl(std::unique_ptr<Endpoint> endpoint, const Options& options)
    : options_(options),
      endpoint_(std::move(endpoint)),
      large_buffers_(endpoint_->pd(), endpoint_->sink_access(), uint64_t{64} << 20),
      pool_(options.depth),
      requests_(*endpoint_, options.depth),
      keys_(new char[kKeyStride * options.depth]),
      not_found_(absl::NotFoundError("no such key")),
      starts_(options.depth),
      reads_(options.depth),
      space_waiters_(options.depth) {
  for (uint32_t i = 0; i < kReadList; ++i) {
    read_list_[i] = verbs::MakeRead(0, &read_sges_[i], 0, 0);
    read_list_[i].next = i + 1 < kReadList ? &read_list_[i + 1] : nullptr;
  }
}

absl::Status Connection::Impl::CheckKey(std::string_view key) const {
  if (key.empty()) return absl::InvalidArgumentError("the key is empty");
  if (key.size() > limits_.max_key_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the key has ", key.size(), " bytes, the server allows ", limits_.max_key_size));
  }
  return absl::OkStatus();
}

absl::Status Connection::Impl::CheckSubmit(std::string_view key) const {
  if (!dead_.ok()) return dead_;
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  if (pool_.full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", pool_.capacity(), " operations of the depth are in flight"));
  }
  return absl::OkStatus();
}

std::string_view Connection::Impl::KeepKey(const Operation& op, std::string_view key) {
  char* memory = keys_.get() + kKeyStride * op.slot;
  std::memcpy(memory, key.data(), key.size());
  return {memory, key.size()};
}

absl::Status Connection::Impl::SubmitGet(std::string_view key, GetCallback callback) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  Operation& op = pool_.Acquire(OperationKind::kGet);
  op.on_get = std::move(callback);
  StartGet(op, KeepKey(op, key));
  return absl::OkStatus();
}

absl::Status Connection::Impl::SubmitPut(std::string_view key, std::string_view value,
                                         ChangeCallback callback) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  if (value.size() > limits_.max_value_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the value has ", value.size(), " bytes, the server allows ", limits_.max_value_size));
  }
  Operation& op = pool_.Acquire(OperationKind::kPut);
  op.on_change = std::move(callback);
  // A value that travels in the request is copied there at once, with its key.
  StartPut(op, value.size() > limits_.eager_limit ? KeepKey(op, key) : key, value);
  return absl::OkStatus();
}

absl::Status Connection::Impl::SubmitDelete(std::string_view key, ChangeCallback callback) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  Operation& op = pool_.Acquire(OperationKind::kDelete);
  op.on_change = std::move(callback);
  requests_.Add(op.slot, wire::OpCode::kDelete, key, {});
  return absl::OkStatus();
}

// The lookup itself begins with the next flush; until then the cached bucket's lines are fetched.
void Connection::Impl::StartGet(Operation& op, std::string_view key) {
  op.key = key;
  op.hash = KeyHash::Of(key, context_->shape.hash_seed);
  if (!options_.one_sided_reads) {
    Ask(op);
    return;
  }
  const client::SegmentRef* segment = context_->segments.Find(op.hash);
  if (segment != nullptr && context_->cache.enabled()) {
    context_->cache.Prefetch(segment->frame, op.hash.bucket());
  }
  starts_.Push(op.slot);
}

void Connection::Impl::StartPut(Operation& op, std::string_view key, std::string_view value) {
  if (value.size() <= limits_.eager_limit) {
    requests_.Add(op.slot, wire::OpCode::kPut, key, value);
    return;
  }
  op.key = key;
  op.value = value;
  GetSpace(op);
}

absl::StatusOr<client::Operation*> Connection::Impl::AcquireSync(OperationKind kind,
                                                                 SyncCall* call) {
  Spin spin;
  while (dead_.ok() && pool_.full()) Turn(spin, INT64_MAX);
  if (!dead_.ok()) return dead_;
  Operation& op = pool_.Acquire(kind);
  op.sync = call;
  return &op;
}

void Connection::Impl::FinishSync(SyncCall* call) {
  Spin spin;
  while (!call->done) Turn(spin, INT64_MAX);
}

absl::Status Connection::Impl::Get(std::string_view key, std::string* value, uint64_t* version) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  SyncCall call;
  call.value = value;
  VERBENA_ASSIGN_OR_RETURN(Operation * op, AcquireSync(OperationKind::kGet, &call));
  StartGet(*op, key);
  FinishSync(&call);
  if (version != nullptr) *version = call.version;
  return std::move(call.status);
}

absl::Status Connection::Impl::RunSync(OperationKind kind, std::string_view key,
                                       std::string_view value, SyncCall* call) {
  VERBENA_ASSIGN_OR_RETURN(Operation * op, AcquireSync(kind, call));
  switch (kind) {
    case OperationKind::kPut:
      StartPut(*op, key, value);
      break;
    case OperationKind::kDelete:
      requests_.Add(op->slot, wire::OpCode::kDelete, key, {});
      break;
    case OperationKind::kPing:
      requests_.Add(op->slot, wire::OpCode::kPing, {}, value);
      break;
    case OperationKind::kHello:
      requests_.Add(op->slot, wire::OpCode::kHello, {}, value);
      break;
    case OperationKind::kInfo:
      requests_.Add(op->slot, wire::OpCode::kInfo, {}, {});
      break;
    case OperationKind::kRawRead:
      reads_.Push(op->slot);
      break;
    case OperationKind::kGet:
      StartGet(*op, key);
      break;
  }
  FinishSync(call);
  return std::move(call->status);
}

absl::StatusOr<ChangeResult> Connection::Impl::Put(std::string_view key, std::string_view value) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > limits_.max_value_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the value has ", value.size(), " bytes, the server allows ", limits_.max_value_size));
  }
  SyncCall call;
  VERBENA_RETURN_IF_ERROR(RunSync(OperationKind::kPut, key, value, &call));
  return ChangeResult{call.version, call.existed};
}

absl::StatusOr<ChangeResult> Connection::Impl::Delete(std::string_view key) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  SyncCall call;
  VERBENA_RETURN_IF_ERROR(RunSync(OperationKind::kDelete, key, {}, &call));
  return ChangeResult{call.version, call.existed};
}

absl::Status Connection::Impl::Ping() {
  constexpr std::string_view kText = "verbena";
  std::string echo;
  SyncCall call;
  call.value = &echo;
  VERBENA_RETURN_IF_ERROR(RunSync(OperationKind::kPing, {}, kText, &call));
  if (echo != kText) return absl::InternalError("the server's answer to a ping is another text");
  return absl::OkStatus();
}

absl::StatusOr<std::string> Connection::Impl::Info() {
  std::string text;
  SyncCall call;
  call.value = &text;
  VERBENA_RETURN_IF_ERROR(RunSync(OperationKind::kInfo, {}, {}, &call));
  return text;
}

void Connection::Impl::Act(Operation& op, const Lookup::Step& step) {
  switch (step.action) {
    case Lookup::Action::kRead:
      op.step = step;
      reads_.Push(op.slot);
      return;
    case Lookup::Action::kFound:
      FinishGet(op, absl::OkStatus(), {op.lookup.value(), op.lookup.version()});
      return;
    case Lookup::Action::kNeedSpace:
      op.step = step;
      GetSpace(op);
      return;
    case Lookup::Action::kAbsent:
      FinishGet(op, not_found_, {});
      return;
    case Lookup::Action::kAskServer:
      Ask(op);
      return;
  }
}

void Connection::Impl::Ask(Operation& op) {
  DropSpace(op);
  if (++op.asks > kMaxAsks) {
    FinishGet(op, absl::AbortedError("the value changes faster than it can be read: try again"),
              {});
    return;
  }
  requests_.Add(op.slot, wire::OpCode::kGet, op.key, {});
}

// Gets the operation memory for its large value, now or when some is released.
void Connection::Impl::GetSpace(Operation& op) {
  DropSpace(op);
  const uint64_t bytes = op.kind == OperationKind::kPut ? op.value.size() : op.step.length;
  absl::StatusOr<LargeBuffers::Buffer*> space = large_buffers_.Acquire(bytes);
  if (!space.ok()) {
    FinishWithError(op, space.status());
  } else if (*space == nullptr) {
    space_waiters_.Push(op.slot);
  } else {
    op.space = *space;
    UseSpace(op);
  }
}

void Connection::Impl::UseSpace(Operation& op) {
  const std::span<uint8_t> bytes = op.space->bytes();
  if (op.kind != OperationKind::kPut) {
    Act(op, op.lookup.OnSpace(*context_, bytes));
    return;
  }
  std::memcpy(bytes.data(), op.value.data(), op.value.size());
  wire::ValueReference reference{};
  reference.address = verbs::AddressOf(bytes.data());
  reference.rkey = op.space->region.rkey();
  requests_.AddByReference(op.slot, op.key, static_cast<uint32_t>(op.value.size()), reference);
}

void Connection::Impl::DropSpace(Operation& op) {
  if (op.space == nullptr) return;
  large_buffers_.Release(std::exchange(op.space, nullptr));
  space_freed_ = true;
}

void Connection::Impl::ServeSpaceWaiters() {
  space_freed_ = false;
  // Each is tried once: one that still has to wait goes back to the end.
  for (size_t left = space_waiters_.size(); left > 0; --left) {
    GetSpace(pool_.At(space_waiters_.Pop()));
  }
}

absl::Status Connection::Impl::ResultError(const wire::Result& result) {
  const auto code = static_cast<wire::ResultCode>(result.header.code);
  const std::string_view text = result.value;
  switch (code) {
    case wire::ResultCode::kOk:
      return absl::OkStatus();
    case wire::ResultCode::kNotFound:
      return absl::NotFoundError("no such key");
    case wire::ResultCode::kInvalid:
    case wire::ResultCode::kTooLarge:
      return absl::InvalidArgumentError(ToAbsl(text));
    case wire::ResultCode::kNoSpace:
      return absl::ResourceExhaustedError(ToAbsl(text));
    case wire::ResultCode::kUnavailable:
      return absl::UnavailableError(ToAbsl(text));
    case wire::ResultCode::kLocated:
    case wire::ResultCode::kInternal:
      break;
  }
  return absl::InternalError(absl::StrCat("the server answered ", wire::ResultCodeName(code), " (",
                                          result.header.code, "): ", ToAbsl(text)));
}

void Connection::Impl::OnResult(Operation& op, const wire::Result& result) {
  switch (op.kind) {
    case OperationKind::kGet:
      OnGetResult(op, result);
      return;
    case OperationKind::kPut:
    case OperationKind::kDelete: {
      const bool existed = result.header.argument != 0;
      absl::Status status = ResultError(result);
      if (status.ok() && op.kind == OperationKind::kDelete && !existed) status = not_found_;
      FinishChange(op, status, {result.header.version, existed});
      return;
    }
    default:
      FinishCall(op, ResultError(result), result.value);
      return;
  }
}

void Connection::Impl::OnGetResult(Operation& op, const wire::Result& result) {
  switch (static_cast<wire::ResultCode>(result.header.code)) {
    case wire::ResultCode::kOk:
      ++stats_.rpc_gets;
      FinishGet(op, absl::OkStatus(), {result.value, result.header.version});
      return;
    case wire::ResultCode::kNotFound:
      ++stats_.rpc_gets;
      FinishGet(op, not_found_, {});
      return;
    case wire::ResultCode::kLocated: {
      ++stats_.rpc_gets;
      const absl::StatusOr<wire::Location> location = wire::DecodeLocation(result.value);
      if (!location.ok()) {
        FinishGet(op, absl::InternalError(location.status().message()), {});
        return;
      }
      Act(op, op.lookup.StartAt(*context_, layout::Slot{location->slot}, op.key,
                                endpoint_->sink(op.slot)));
      return;
    }
    default:
      break;
  }
  FinishGet(op, ResultError(result), {});
}

void Connection::Impl::FinishGet(Operation& op, const absl::Status& status,
                                 const GetResult& result) {
  ++stats_.gets;
  // The value may lie in the operation's memory: it is released, but not used again before the
  // next flush or, for a large buffer, before the callback has returned.
  LargeBuffers::Buffer* const space = std::exchange(op.space, nullptr);
  if (SyncCall* const call = op.sync; call != nullptr) {
    call->status = status;
    call->version = result.version;
    if (status.ok() && call->value != nullptr) {
      call->value->assign(result.value.data(), result.value.size());
    }
    call->done = true;
    pool_.Release(op);
  } else {
    GetCallback callback = std::move(op.on_get);
    pool_.Release(op);
    ++callbacks_;
    if (callback) callback(status, result);
  }
  if (space != nullptr) {
    large_buffers_.Release(space);
    space_freed_ = true;
  }
}

void Connection::Impl::FinishChange(Operation& op, const absl::Status& status,
                                    const ChangeResult& result) {
  ++stats_.changes;
  DropSpace(op);
  if (SyncCall* const call = op.sync; call != nullptr) {
    call->status = status;
    call->version = result.version;
    call->existed = result.existed;
    call->done = true;
    pool_.Release(op);
    return;
  }
  ChangeCallback callback = std::move(op.on_change);
  pool_.Release(op);
  ++callbacks_;
  if (callback) callback(status, result);
}

void Connection::Impl::FinishCall(Operation& op, const absl::Status& status,
                                  std::string_view value) {
  SyncCall* const call = op.sync;
  pool_.Release(op);
  if (call == nullptr) return;
  call->status = status;
  if (status.ok() && call->value != nullptr) call->value->assign(value.data(), value.size());
  call->done = true;
}

void Connection::Impl::FinishWithError(Operation& op, const absl::Status& status) {
  switch (op.kind) {
    case OperationKind::kGet:
      FinishGet(op, status, {});
      return;
    case OperationKind::kPut:
    case OperationKind::kDelete:
      FinishChange(op, status, {});
      return;
    default:
      FinishCall(op, status, {});
      return;
  }
}

const ConnectionStats& Connection::Impl::stats() const {
  const client::LookupCounters& counters = context_->counters;
  stats_.read_retries = counters.read_retries;
  stats_.cache_hits = counters.cache_hits;
  stats_.cache_stale = counters.cache_stale;
  stats_.cache_misses = counters.cache_misses;
  stats_.directory_reads = counters.directory_reads;
  stats_.sends = requests_.sends();
  stats_.bytes_sent = requests_.bytes_sent();
  return stats_;
}

}  // namespace verbena
