// Get-and-delete. One request nearly always: the server deletes the key and answers with the value.
// A value that does not fit the answer the server leaves alone; it is got like any other and then
// deleted under the condition that it still has the version that was got. So what is handed over is
// what was deleted, whatever others do meanwhile.
#include <utility>

#include "client/src/connection_impl.h"
#include "common/base/macros.h"

namespace verbena {

using client::TakeStage;

absl::Status Connection::Impl::SubmitGetAndDelete(std::string_view key, GetCallback&& callback,
                                                  const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  Operation& op = pool_.Acquire(OperationKind::kTake);
  op.on_get = std::move(callback);
  op.timeout_ns = timeout_ns;
  op.key = KeepKey(op, key);
  StartTake(op);
  return absl::OkStatus();
}

absl::Status Connection::Impl::GetAndDelete(std::string_view key, std::string* value,
                                            uint64_t* version, const CallOptions& options) {
  if (version != nullptr) *version = 0;
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  SyncCall call;
  call.value = value;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kTake, &call));
  op->timeout_ns = timeout_ns;
  op->key = key;
  StartTake(*op);
  FinishSync(&call);
  if (version != nullptr) *version = call.version;
  return std::move(call.status);
}

void Connection::Impl::StartTake(Operation& op) {
  op.take_stage = TakeStage::kTaking;
  op.request = {};
  op.request.code = static_cast<uint8_t>(wire::OpCode::kDelete);
  op.request.flags = wire::kOpReturnValue;
  requests_.Add(op.slot, op.request, op.key, {});
}

void Connection::Impl::OnTakeResult(Operation& op, const wire::Result& result) {
  if (op.take_stage == TakeStage::kGetting) return OnGetResult(op, result);
  if (op.take_stage == TakeStage::kDeleting) return OnTakeDeleted(op, result);
  switch (static_cast<wire::ResultCode>(result.header.code)) {
    case wire::ResultCode::kOk:
      EndGet(op, absl::OkStatus(), {result.value, result.header.version});
      return;
    case wire::ResultCode::kTooLarge:
      op.take_stage = TakeStage::kGetting;
      StartTakenGet(op);
      return;
    default:
      EndGet(op, ResultError(result), {});
  }
}

// The value is kept where it is: in the operation's own memory, unless it came in a message.
void Connection::Impl::DeleteWhatWasGot(Operation& op, const GetResult& got) {
  if (op.space == nullptr) {
    op.held.assign(got.value);
    op.value = op.held;
  } else {
    op.value = got.value;
  }
  if (op.pin != 0) DropPin(op);
  op.take_stage = TakeStage::kDeleting;
  op.request.flags = wire::kOpIfVersion;
  op.request.expected = got.version;
  requests_.Add(op.slot, op.request, op.key, {});
}

void Connection::Impl::OnTakeDeleted(Operation& op, const wire::Result& result) {
  const auto code = static_cast<wire::ResultCode>(result.header.code);
  if (code == wire::ResultCode::kOk) {
    EndGet(op, absl::OkStatus(), {op.value, op.request.expected});
    return;
  }
  if (code != wire::ResultCode::kMismatch) {
    EndGet(op, ResultError(result), {});
    return;
  }
  if (op.space != nullptr) DropSpace(op);
  if (++op.asks > kMaxAsks) {
    EndGet(op, absl::AbortedError("the value changes faster than it can be taken: try again"), {});
    return;
  }
  StartTake(op);
}

}  // namespace verbena
