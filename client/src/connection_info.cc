// What the server says of itself. A text that does not fit a message comes in parts: the server has
// the rest of it until the connection is lost, and is asked from the beginning after that.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "common/base/macros.h"

namespace verbena {
namespace {

// How often it is asked from the beginning.
constexpr int kInfoAttempts = 3;
// Bytes of the whole.
constexpr uint64_t kLongestInfo = uint64_t{1} << 20;

}  // namespace

absl::StatusOr<std::string> Connection::Impl::Info(const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(client::OperationGroup group, GroupFor(options.timeout));
  std::string text;
  SyncCall call;
  call.value = &text;
  call.group = &group;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op,
                           AcquireInGroup(OperationKind::kInfo, /*timeout_ns=*/0, &call));
  StartInfo(*op);
  FinishSync(&call);
  VERBENA_RETURN_IF_ERROR(call.status);
  return text;
}

// The callback is larger than one that an operation has a place for.
absl::Status Connection::Impl::SubmitInfo(InfoCallback&& callback, const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckRoom());
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(options.timeout));
  auto kept = std::make_unique<InfoCallback>(std::move(callback));
  Operation& op = pool_.Acquire(OperationKind::kInfo, timeout_ns);
  op.on_get = [kept = std::move(kept)](const absl::Status& status, const GetResult& got) {
    if (*kept) (*kept)(status, std::string(got.value));
  };
  StartInfo(op);
  return absl::OkStatus();
}

void Connection::Impl::StartInfo(Operation& op) {
  op.held.clear();
  AskForInfo(op);
}

void Connection::Impl::AskForInfo(Operation& op) {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(wire::OpCode::kInfo);
  header.argument = op.held.size();
  requests_.Add(op.slot, header, {}, {});
}

void Connection::Impl::OnInfoResult(Operation& op, const wire::Result& result) {
  const uint64_t left = result.header.argument;
  absl::Status status = ResultError(result);
  if (absl::IsNotFound(status)) {
    op.held.clear();
    if (++op.asks < kInfoAttempts) return AskForInfo(op);
    status = absl::UnavailableError(absl::StrCat("the connection to the server at ",
                                                 endpoint_->server(), " was lost ", kInfoAttempts,
                                                 " times while the server told about itself"));
  } else if (status.ok()) {
    op.held.append(result.value);
    if (result.value.empty() || op.held.size() > kLongestInfo ||
        left > kLongestInfo - op.held.size()) {
      status = absl::InternalError("the server's answer about itself has no end");
    } else if (left != 0) {
      return AskForInfo(op);
    }
  }
  EndInfo(op, status);
}

void Connection::Impl::EndInfo(Operation& op, const absl::Status& status) {
  std::string text = std::exchange(op.held, {});
  pool_.Finish(op);
  if (SyncCall* const call = op.sync; call != nullptr) {
    call->status = status;
    if (status.ok()) *call->value = std::move(text);
    Done(*call);
  } else {
    GetResult result;
    if (status.ok()) result.value = text;
    RunCallback(op.on_get, status, result);
  }
  pool_.Free(op);
}

absl::StatusOr<std::string> Connection::Info(const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Info(options);
}
absl::Status Connection::SubmitInfo(InfoCallback callback, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitInfo(std::move(callback), options);
}

}  // namespace verbena
