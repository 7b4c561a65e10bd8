// The C API: operations of any kinds, and those that one callback is for.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/c_api.h"
#include "common/base/macros.h"

namespace verbena::c_api {

bool AbsentPasses(const verbena_operation& item) {
  return item.kind == VERBENA_OP_GET || item.kind == VERBENA_OP_DELETE ||
         item.kind == VERBENA_OP_GET_AND_DELETE;
}

void Clear(verbena_operation& item) {
  item.result = nullptr;
  item.result_size = 0;
  item.change = {};
}

absl::Status KindError(const verbena_operation& item) {
  return absl::InvalidArgumentError(absl::StrCat("verbena_operation::kind is ", item.kind));
}

absl::StatusOr<ParsedOperation> Parse(const verbena_operation& item) {
  const uint64_t small[] = {item.reserved1, item.reserved2};
  VERBENA_RETURN_IF_ERROR(CheckReserved(small, "verbena_operation"));
  VERBENA_RETURN_IF_ERROR(CheckReserved(item.reserved, "verbena_operation"));
  ParsedOperation parsed;
  VERBENA_ASSIGN_OR_RETURN(parsed.key, BytesFrom(item.key, item.key_size, "key"));
  if (item.kind == VERBENA_OP_PUT || item.kind == VERBENA_OP_APPEND) {
    VERBENA_ASSIGN_OR_RETURN(parsed.value, BytesFrom(item.value, item.value_size, "value"));
  }
  if (item.timeout_ms != 0) parsed.options.timeout = std::chrono::milliseconds(item.timeout_ms);
  switch (item.kind) {
    case VERBENA_OP_PUT:
    case VERBENA_OP_DELETE:
    case VERBENA_OP_ADD:
    case VERBENA_OP_APPEND: {
      VERBENA_ASSIGN_OR_RETURN(parsed.options.condition, ConditionFrom(&item.condition));
      break;
    }
    default:
      break;
  }
  if (item.kind == VERBENA_OP_PUT && item.ttl_ms != 0) {
    parsed.options.ttl = std::chrono::milliseconds(item.ttl_ms);
  }
  return parsed;
}

absl::Status TakeValue(const absl::Status& got, std::string_view value, uint64_t version,
                       verbena_operation& item) noexcept {
  item.change.outcome_unknown = OutcomeUnknown(got) ? 1 : 0;
  if (!got.ok()) return got;
  item.result = Duplicate(value);
  if (item.result == nullptr) return absl::ResourceExhaustedError("out of memory for the value");
  item.result_size = value.size();
  item.change.version = version;
  return got;
}

namespace {

// Adds the item to the batch as what it is.
absl::Status AddTo(Batch& batch, const verbena_operation& item) {
  VERBENA_ASSIGN_OR_RETURN(const ParsedOperation parsed, Parse(item));
  const CallOptions call{.timeout = parsed.options.timeout};
  const ChangeOptions change{.condition = parsed.options.condition, .timeout = call.timeout};
  switch (item.kind) {
    case VERBENA_OP_GET:
      batch.Get(parsed.key, call);
      return absl::OkStatus();
    case VERBENA_OP_PUT:
      batch.Put(parsed.key, parsed.value, parsed.options);
      return absl::OkStatus();
    case VERBENA_OP_DELETE:
      batch.Delete(parsed.key, change);
      return absl::OkStatus();
    case VERBENA_OP_ADD:
      batch.Add(parsed.key, item.summand, change);
      return absl::OkStatus();
    case VERBENA_OP_APPEND:
      batch.Append(parsed.key, parsed.value, change);
      return absl::OkStatus();
    case VERBENA_OP_GET_AND_DELETE:
      batch.GetAndDelete(parsed.key, call);
      return absl::OkStatus();
    case VERBENA_OP_EXPIRE:
      batch.Expire(parsed.key, std::chrono::milliseconds(item.ttl_ms), call);
      return absl::OkStatus();
    case VERBENA_OP_PERSIST:
      batch.Persist(parsed.key, call);
      return absl::OkStatus();
    default:
      return KindError(item);
  }
}

// A submission: lives as long as its callback. Items that no operation can be made of have their
// error from the beginning.
struct Execution {
  verbena_connection* handle;
  verbena_operation* operations;
  size_t count;
  verbena_execute_callback callback;
  void* context;
  std::vector<absl::Status> refused;  // of each item; OK: it is in the batch

  void End(const Batch& batch) {
    const InCallback in_callback(*handle);
    absl::Status first;
    size_t next = 0;
    for (size_t i = 0; i < count; ++i) {
      verbena_operation& item = operations[i];
      absl::Status status = refused[i];
      if (status.ok()) status = Take(batch.result(next++), item);
      item.status = CodeOf(status);
      if (first.ok() && !(absl::IsNotFound(status) && AbsentPasses(item))) first = status;
    }
    callback(context, Record(*handle, first), operations, count);
  }

 private:
  static absl::Status Take(const BatchResult& result, verbena_operation& item) {
    if (item.kind == VERBENA_OP_GET || item.kind == VERBENA_OP_GET_AND_DELETE) {
      return TakeValue(result.status, result.value, result.change.version, item);
    }
    item.change = ChangeFrom(result.status, result.change);
    return result.status;
  }
};

}  // namespace
}  // namespace verbena::c_api

using verbena::Batch;
using verbena::Connection;
using verbena::c_api::Call;
using verbena::c_api::CallOptionsOf;
using verbena::c_api::Execution;
using verbena::c_api::Waits;

verbena_code verbena_submit_execute(verbena_connection* connection, verbena_operation* operations,
                                    size_t count, verbena_execute_callback callback,
                                    void* context) {
  return Call(connection, Waits::kNo, [&](Connection& to) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    if (operations == nullptr && count > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the operations are NULL, but their count is ", count));
    }
    Batch batch;
    auto execution = std::make_unique<Execution>(
        Execution{connection, operations, count, callback, context, {}});
    for (size_t i = 0; i < count; ++i) {
      verbena::c_api::Clear(operations[i]);
      operations[i].status = VERBENA_UNKNOWN;  // until it has ended
      execution->refused.push_back(verbena::c_api::AddTo(batch, operations[i]));
    }
    return to.SubmitExecute(
        std::move(batch),
        [execution = std::move(execution)](const absl::Status&, const Batch& ended) {
          execution->End(ended);
        },
        CallOptionsOf(*connection));
  });
}
