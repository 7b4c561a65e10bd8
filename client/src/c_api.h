// What the files of the C API share: the handle, and the ways from C to C++ and back.
//
// Nothing is thrown over the C API: each function does its work inside Call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verbena/connection.h"
#include "verbena/verbena.h"

struct verbena_connection {
  std::unique_ptr<verbena::Connection> connection;
  std::string error;  // of the last call that failed
  std::string fabric;
  std::string device;
  bool outcome_unknown = false;  // of the change that `error` is about
  bool in_callback = false;      // of an asynchronous operation
  int scans = 0;                 // that are running, each with a callback that may use the handle
};

namespace verbena::c_api {

verbena_code CodeOf(const absl::Status& status);
// What verbena_error_text tells; nothing if there is no memory for it. Of an error whose outcome is
// known.
void SetError(verbena_connection& handle, std::string_view text) noexcept;
// The status's code; its text becomes the connection's if it is an error. Callbacks call this, so
// it does not throw.
verbena_code Record(verbena_connection& handle, const absl::Status& status) noexcept;

// InvalidArgument for a null pointer to some bytes.
absl::StatusOr<std::string_view> BytesFrom(const void* bytes, size_t size, const char* name);
// InvalidArgument if one of the reserved words of the struct `name` is set.
absl::Status CheckReserved(std::span<const uint64_t> words, const char* name);
// InvalidArgument for what this version does not know.
absl::StatusOr<Condition> ConditionFrom(const verbena_condition* condition);
absl::StatusOr<PutOptions> PutOptionsFrom(const verbena_put_options* options);
verbena_change ChangeFrom(const absl::Status& status, const ChangeResult& result);

// Whether a function waits for something, which callbacks must not do.
enum class Waits : bool { kNo, kYes };

// Runs `function(Connection&)`, which returns a Status, for a function of the C API.
template <typename Function>
verbena_code Call(verbena_connection* handle, Waits waits, Function function) noexcept {
  if (handle == nullptr) return VERBENA_INVALID_ARGUMENT;
  try {
    if (waits == Waits::kYes && handle->in_callback) {
      return Record(*handle, absl::FailedPreconditionError(
                                 "called within a callback, which may only submit operations"));
    }
    return Record(*handle, function(*handle->connection));
  } catch (const std::bad_alloc&) {
    SetError(*handle, "out of memory");
    return VERBENA_RESOURCE_EXHAUSTED;
  } catch (...) {
    return VERBENA_INTERNAL;
  }
}

// How long a wait lasts before it is begun anew; operations end by their own deadlines.
inline constexpr std::chrono::seconds kTurn{1};

// Submits until there is room for one more operation.
template <typename Submit>
absl::Status SubmitWhenThereIsRoom(Connection& connection, Submit submit) {
  absl::Status status = submit();
  while (absl::IsResourceExhausted(status) && connection.in_flight() > 0) {
    connection.Wait(kTurn);
    status = submit();
  }
  return status;
}

// While one exists, functions that wait are refused.
class InCallback {
 public:
  explicit InCallback(verbena_connection& handle) : handle_(handle) { handle_.in_callback = true; }
  ~InCallback() { handle_.in_callback = false; }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  verbena_connection& handle_;
};

// While one exists, the connection cannot be closed.
class InScan {
 public:
  explicit InScan(verbena_connection& handle) : handle_(handle) { ++handle_.scans; }
  ~InScan() { --handle_.scans; }
  InScan(const InScan&) = delete;
  InScan& operator=(const InScan&) = delete;

 private:
  verbena_connection& handle_;
};

}  // namespace verbena::c_api
