// What the files of the C API share: the handle, and the ways from C to C++ and back.
//
// Nothing is thrown over the C API: each function does its work inside Call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verbena/connection.h"
#include "verbena/verbena.h"

struct verbena_connection {
  std::unique_ptr<verbena::Connection> connection;
  std::string error;  // of the last call that failed
  std::string fabric;
  mutable std::string device;                        // as last told
  bool outcome_unknown = false;                      // of the change that `error` is about
  std::optional<std::chrono::milliseconds> timeout;  // of verbena_set_timeout
  const verbena_client* owner = nullptr;             // that has lent it; null: it is the program's
  bool in_callback = false;                          // of an asynchronous operation
  int scans = 0;  // that are running, each with a callback that may use the handle
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
absl::StatusOr<PutOptions> PutOptionsFrom(const verbena_connection& handle,
                                          const verbena_put_options* options);
verbena_change ChangeFrom(const absl::Status& status, const ChangeResult& result);

// With the time that the handle's calls have.
CallOptions CallOptionsOf(const verbena_connection& handle);
absl::StatusOr<ChangeOptions> ChangeOptionsFrom(const verbena_connection& handle,
                                                const verbena_condition* condition);
absl::StatusOr<ScanRange> RangeFrom(const verbena_scan_range& range);
// Of the same bytes.
inline verbena_item ItemFrom(const ScanItem& found) {
  return {found.key.data(),   found.key.size(), found.value.data(),
          found.value.size(), found.version,    {0, 0}};
}
absl::StatusOr<Options> OptionsFrom(const verbena_options* given);
// Cut to fit, with a final zero; nothing where there is no room.
void CopyText(std::string_view text, char* to, size_t capacity) noexcept;
// An allocated copy of a value, with a zero behind it that does not count; null without memory.
void* Duplicate(std::string_view value) noexcept;
// An operation of any kind, as the C++ API has it. The views are the caller's.
struct ParsedOperation {
  std::string_view key;
  std::string_view value;
  PutOptions options;  // condition, ttl and timeout of whatever kind it is
};
absl::StatusOr<ParsedOperation> Parse(const verbena_operation& item);
absl::Status KindError(const verbena_operation& item);
// Whether it is no error of a call about several that this one's key is not there.
bool AbsentPasses(const verbena_operation& item);
// Forgets what an earlier call has filled.
void Clear(verbena_operation& item);
// What has come of a get or get-and-delete whose value is allocated; an error, too, if there is no
// memory for it.
absl::Status TakeValue(const absl::Status& got, std::string_view value, uint64_t version,
                       verbena_operation& item) noexcept;
// Sets what the item has to tell; an absent key is an error.
verbena_code GetOne(verbena_connection& handle, Connection& connection, verbena_get_item& item);
// What is told of a value that does not fit.
void SetTooSmall(verbena_connection& handle, size_t value_size, size_t capacity) noexcept;

// Runs `function()`, which returns a Status, where there is no connection to have its text: that is
// written to `error`.
template <typename Function>
verbena_code Guarded(char* error, size_t error_size, Function function) noexcept {
  try {
    const absl::Status status = function();
    if (!status.ok()) {
      CopyText({status.message().data(), status.message().size()}, error, error_size);
    }
    return CodeOf(status);
  } catch (const std::bad_alloc&) {
    CopyText("out of memory", error, error_size);
    return VERBENA_RESOURCE_EXHAUSTED;
  } catch (...) {
    CopyText("an exception that the library does not know", error, error_size);
    return VERBENA_INTERNAL;
  }
}

// Runs `function()`, in whose middle no exception may go further: not over the C API, nor out of a
// frame that operations in flight refer to. Where memory runs out there the process ends.
template <typename Function>
auto Wholly(Function function) noexcept {
  return function();
}

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
    SetError(*handle,
             "an exception that the library does not know; perhaps a callback has thrown, which it "
             "must not");
    return VERBENA_INTERNAL;
  }
}

// How long a wait lasts before it is begun anew; operations end by their own deadlines.
inline constexpr std::chrono::seconds kTurn{1};

// Submits until there is room for one more operation, one that refers to the caller's frame.
template <typename Submit>
absl::Status SubmitWhenThereIsRoom(Connection& connection, Submit submit) {
  return Wholly([&] {
    absl::Status status = submit();
    while (absl::IsResourceExhausted(status) && connection.in_flight() > 0) {
      connection.Wait(kTurn);
      status = submit();
    }
    return status;
  });
}

// Whether this is the child of a process that forked in a callback: nothing ends there any more.
bool Forked(Connection& connection) noexcept;

// Until `ended()`, with operations under way that refer to the caller's frame. An error, the
// connection's own, if they never end (see Forked); then nothing refers to the frame either.
template <typename Ended>
absl::Status WaitUntil(Connection& connection, Ended ended) {
  return Wholly([&] {
    while (!ended()) {
      if (Forked(connection)) return connection.status();
      connection.Wait(kTurn);
    }
    return absl::OkStatus();
  });
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
