// Several operations at once. All are started before any is waited for, as far as
// the depth allows: so the READs of cached keys go with one doorbell, and changes share messages.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "verbena/batch.h"

namespace verbena {

using client::OperationGroup;
using client::SyncCall;

// The group of a call about several operations, whose time begins now.
absl::StatusOr<OperationGroup> Connection::Impl::GroupFor(const Timeout& timeout) {
  OperationGroup group;
  VERBENA_ASSIGN_OR_RETURN(group.timeout_ns, TimeoutOf(timeout));
  if (group.timeout_ns != 0) group.deadline = DeadlineAfter(group.timeout_ns);
  return group;
}

// The time of an operation that begins now, in a group, with `timeout_ns` of its own (0: none).
// DeadlineExceeded if it is not to be begun any more.
absl::StatusOr<int64_t> Connection::Impl::TimeInGroup(const OperationGroup& group,
                                                      int64_t timeout_ns) {
  if (group.late) {
    return absl::DeadlineExceededError(
        "not begun, since the time of another operation of the same call was over");
  }
  if (group.deadline == INT64_MAX) return timeout_ns;
  const int64_t left = group.deadline - MonotonicNanos();
  if (left <= 0) {
    return absl::DeadlineExceededError(absl::StrCat("not begun, since the time of the call, ",
                                                    InMillis(group.timeout_ns), " ms, was over"));
  }
  scan_interval_ns_ = std::min(scan_interval_ns_, ScanIntervalFor(left));
  return timeout_ns == 0 ? left : std::min(left, timeout_ns);
}

// A place for an operation of the call's group. For a synchronous call this waits for it; an
// asynchronous one comes only when there is one.
absl::StatusOr<client::Operation*> Connection::Impl::AcquireInGroup(OperationKind kind,
                                                                    int64_t timeout_ns,
                                                                    SyncCall* call) {
  const OperationGroup& group = *call->group;
  if (group.run != nullptr) {
    if (!dead_.ok()) return dead_;
  } else if (in_callback_ || pool_.full() || !dead_.ok()) {
    VERBENA_RETURN_IF_ERROR(WaitForRoom(group.deadline));
  }
  // If there is none, the group's time is over.
  VERBENA_ASSIGN_OR_RETURN(timeout_ns, TimeInGroup(group, timeout_ns));
  Operation& op = pool_.Acquire(kind);
  op.sync = call;
  op.timeout_ns = timeout_ns;
  return &op;
}

// Starts an operation whose outcome comes to `call`, as the synchronous call of its kind does. On
// an error it was not started.
absl::Status Connection::Impl::StartSync(OperationKind kind, const wire::OperationHeader& header,
                                         std::string_view key, std::string_view value,
                                         const Timeout& timeout, SyncCall* call) {
  VERBENA_RETURN_IF_ERROR(CheckKey(key));
  VERBENA_ASSIGN_OR_RETURN(const int64_t timeout_ns, TimeoutOf(timeout));
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireInGroup(kind, timeout_ns, call));
  switch (kind) {
    case OperationKind::kGet:
      op->key = key;
      StartTakenGet(*op);
      break;
    case OperationKind::kTake:
      op->key = key;
      StartTake(*op);
      break;
    case OperationKind::kPut:
      StartPut(*op, header, key, value);
      break;
    default:
      requests_.Add(op->slot, header, key, value);
  }
  return absl::OkStatus();
}

// Calls start(i, call) for each of `count` operations and waits for all of them: the calls lie in
// memory of this function's, and whatever happens none may be left behind, so without memory the
// process ends there. Then finish(i, call).
template <typename Start, typename Finish>
void Connection::Impl::RunTogether(size_t count, OperationGroup group, Start&& start,
                                   Finish&& finish) {
  std::vector<SyncCall> calls(count);
  [&]() noexcept {
    for (size_t i = 0; i < count; ++i) {
      calls[i].group = &group;
      absl::Status status = start(i, calls[i]);
      if (status.ok()) continue;
      calls[i].status = std::move(status);
      calls[i].done = true;
    }
    for (SyncCall& call : calls) {
      if (!call.done) FinishSync(&call);
    }
  }();
  for (size_t i = 0; i < count; ++i) finish(i, calls[i]);
}

// The results, and a Batch, are in the frame of the call until all has ended: callbacks that run
// meanwhile may use the caller's, even in a call that is refused there.

absl::Status Connection::Impl::MultiGet(std::span<const std::string_view> keys,
                                        std::vector<GetItem>* results, const CallOptions& options) {
  if (results == nullptr) return absl::InvalidArgumentError("the place for the results is null");
  const absl::StatusOr<OperationGroup> group = GroupFor(options.timeout);
  if (!group.ok()) {
    results->assign(keys.size(), GetItem{group.status(), {}, 0});
    return group.status();
  }
  std::vector<GetItem> items = std::move(*results);
  items.resize(keys.size());
  absl::Status first;
  RunTogether(
      keys.size(), *group,
      [&](size_t i, SyncCall& call) {
        call.value = &items[i].value;
        return StartSync(OperationKind::kGet, {}, keys[i], {}, /*timeout=*/{}, &call);
      },
      [&](size_t i, SyncCall& call) {
        GetItem& item = items[i];
        if (first.ok() && !absl::IsNotFound(call.status)) first = call.status;
        item.version = call.status.ok() ? call.version : 0;
        item.status = std::move(call.status);
      });
  *results = std::move(items);
  return first;
}

absl::Status Connection::Impl::MultiPut(std::span<const KeyValue> items, const PutOptions& options,
                                        std::vector<absl::StatusOr<ChangeResult>>* results) {
  const absl::StatusOr<wire::OperationHeader> header = PutRequest(options);
  const absl::StatusOr<OperationGroup> group = GroupFor(options.timeout);
  if (const absl::Status& wrong = header.ok() ? group.status() : header.status(); !wrong.ok()) {
    if (results != nullptr) results->assign(items.size(), wrong);
    return wrong;
  }
  std::vector<absl::StatusOr<ChangeResult>> outcomes(results == nullptr ? 0 : items.size());
  absl::Status first;
  RunTogether(
      items.size(), *group,
      [&](size_t i, SyncCall& call) {
        VERBENA_RETURN_IF_ERROR(CheckValue(items[i].value));
        return StartSync(OperationKind::kPut, *header, items[i].key, items[i].value,
                         /*timeout=*/{}, &call);
      },
      [&](size_t i, SyncCall& call) {
        if (first.ok()) first = call.status;
        if (results != nullptr) outcomes[i] = Outcome(call, nullptr);
      });
  if (results != nullptr) *results = std::move(outcomes);
  return first;
}

absl::Status Connection::Impl::MultiDelete(std::span<const std::string_view> keys,
                                           const CallOptions& options,
                                           std::vector<absl::StatusOr<ChangeResult>>* results) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header,
                           RequestFor(wire::OpCode::kDelete, {}));
  const absl::StatusOr<OperationGroup> group = GroupFor(options.timeout);
  if (!group.ok()) {
    if (results != nullptr) results->assign(keys.size(), group.status());
    return group.status();
  }
  std::vector<absl::StatusOr<ChangeResult>> outcomes(results == nullptr ? 0 : keys.size());
  absl::Status first;
  RunTogether(
      keys.size(), *group,
      [&](size_t i, SyncCall& call) {
        return StartSync(OperationKind::kDelete, header, keys[i], {}, /*timeout=*/{}, &call);
      },
      [&](size_t i, SyncCall& call) {
        if (first.ok() && !absl::IsNotFound(call.status)) first = call.status;
        if (results != nullptr) outcomes[i] = Outcome(call, nullptr);
      });
  if (results != nullptr) *results = std::move(outcomes);
  return first;
}

absl::Status Connection::Impl::StartOfBatch(const Batch& batch, size_t i, SyncCall* call) {
  const Batch::Entry& entry = batch.entries_[i];
  const std::string_view key = batch.KeyOf(entry);
  const std::string_view value = batch.ValueOf(entry);
  const PutOptions& options = entry.options;
  const ChangeOptions change = {.condition = options.condition, .timeout = options.timeout};
  wire::OperationHeader header{};
  OperationKind kind = OperationKind::kGet;
  switch (entry.kind) {
    case Batch::Kind::kGet:
      break;
    case Batch::Kind::kGetAndDelete:
      kind = OperationKind::kTake;
      break;
    case Batch::Kind::kPut: {
      VERBENA_RETURN_IF_ERROR(CheckValue(value));
      VERBENA_ASSIGN_OR_RETURN(header, PutRequest(options));
      kind = OperationKind::kPut;
      break;
    }
    case Batch::Kind::kDelete: {
      VERBENA_ASSIGN_OR_RETURN(header, RequestFor(wire::OpCode::kDelete, options.condition));
      kind = OperationKind::kDelete;
      break;
    }
    case Batch::Kind::kAdd: {
      VERBENA_ASSIGN_OR_RETURN(header, AddRequest(entry.summand, change));
      kind = OperationKind::kAdd;
      break;
    }
    case Batch::Kind::kAppend: {
      VERBENA_RETURN_IF_ERROR(CheckSuffix(value));
      VERBENA_ASSIGN_OR_RETURN(header, RequestFor(wire::OpCode::kAppend, options.condition));
      kind = OperationKind::kAppend;
      break;
    }
    case Batch::Kind::kExpire:
    case Batch::Kind::kPersist: {
      VERBENA_ASSIGN_OR_RETURN(header, ExpireRequest(options.ttl));
      kind = OperationKind::kExpire;
      break;
    }
  }
  return StartSync(kind, header, key, value, options.timeout, call);
}

// What has come of operation `i` of the batch. `*first` is the first error.
void Connection::Impl::TakeOutcome(SyncCall& call, size_t i, Batch* batch, absl::Status* first) {
  BatchResult& result = batch->results_[i];
  const Batch::Kind kind = batch->entries_[i].kind;
  const bool got = kind == Batch::Kind::kGet || kind == Batch::Kind::kGetAndDelete;
  const bool absent = absl::IsNotFound(call.status) && (got || kind == Batch::Kind::kDelete);
  if (first->ok() && !absent) *first = call.status;
  result.change = call.change;
  if (got && call.status.ok()) result.change.version = call.version;
  result.status = std::move(call.status);
}

absl::Status Connection::Impl::Execute(Batch& given, const CallOptions& options) {
  const absl::StatusOr<OperationGroup> group = GroupFor(options.timeout);
  if (const absl::Status refused = in_callback_ ? WaitForRoom() : group.status(); !refused.ok()) {
    given.Refuse(refused);
    return refused;
  }
  Batch batch = std::move(given);
  batch.results_.assign(batch.size(), BatchResult());
  absl::Status first;
  RunTogether(
      batch.size(), *group,
      [&](size_t i, SyncCall& call) {
        call.value = &batch.results_[i].value;
        return StartOfBatch(batch, i, &call);
      },
      [&](size_t i, SyncCall& call) { TakeOutcome(call, i, &batch, &first); });
  given = std::move(batch);
  return first;
}

absl::Status Connection::MultiGet(std::span<const std::string_view> keys,
                                  std::vector<GetItem>* results, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->MultiGet(keys, results, options);
}
absl::Status Connection::MultiPut(std::span<const KeyValue> items, const PutOptions& options,
                                  std::vector<absl::StatusOr<ChangeResult>>* results) {
  const Impl::Call call(*impl_);
  return impl_->MultiPut(items, options, results);
}
absl::Status Connection::MultiDelete(std::span<const std::string_view> keys,
                                     const CallOptions& options,
                                     std::vector<absl::StatusOr<ChangeResult>>* results) {
  const Impl::Call call(*impl_);
  return impl_->MultiDelete(keys, options, results);
}
absl::Status Connection::Execute(Batch& batch, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->Execute(batch, options);
}

}  // namespace verbena
