// The C API: values in memory of the program's.
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/c_api.h"
#include "common/base/macros.h"

struct verbena_buffer {
  verbena::Buffer buffer;
};

namespace verbena::c_api {
namespace {

std::span<std::byte> Memory(void* at, size_t size) { return {static_cast<std::byte*>(at), size}; }

// A value that does not fit is told in the C API's own code.
verbena_code IntoCode(verbena_connection& handle, const absl::Status& status, size_t size,
                      size_t capacity) noexcept {
  if (!absl::IsOutOfRange(status)) return Record(handle, status);
  SetTooSmall(handle, size, capacity);
  return VERBENA_BUFFER_TOO_SMALL;
}

}  // namespace
}  // namespace verbena::c_api

using verbena::Connection;
using verbena::GetResult;
using verbena::c_api::BytesFrom;
using verbena::c_api::Call;
using verbena::c_api::CallOptionsOf;
using verbena::c_api::InCallback;
using verbena::c_api::IntoCode;
using verbena::c_api::Memory;
using verbena::c_api::Waits;

verbena_code verbena_register_buffer(verbena_connection* connection, void* memory, size_t size,
                                     verbena_buffer** buffer) {
  if (buffer != nullptr) *buffer = nullptr;
  return Call(connection, Waits::kNo, [&](Connection& with) -> absl::Status {
    if (buffer == nullptr) return absl::InvalidArgumentError("the place for the buffer is NULL");
    VERBENA_RETURN_IF_ERROR(BytesFrom(memory, size, "memory").status());
    auto made = std::make_unique<verbena_buffer>();
    VERBENA_ASSIGN_OR_RETURN(made->buffer, with.RegisterBuffer(Memory(memory, size)));
    *buffer = made.release();
    return absl::OkStatus();
  });
}

void verbena_unregister_buffer(verbena_buffer* buffer) {
  verbena::c_api::Wholly([buffer] { delete buffer; });
}

verbena_code verbena_get_into(verbena_connection* connection, const void* key, size_t key_size,
                              void* target, size_t capacity, size_t* value_size,
                              uint64_t* version) {
  size_t size = 0;
  if (value_size != nullptr) *value_size = 0;
  if (version != nullptr) *version = 0;
  verbena_code code = VERBENA_OK;
  const verbena_code called = Call(connection, Waits::kYes, [&](Connection& from) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_RETURN_IF_ERROR(BytesFrom(target, capacity, "target").status());
    const absl::Status got =
        from.GetInto(name, Memory(target, capacity), &size, version, CallOptionsOf(*connection));
    code = IntoCode(*connection, got, size, capacity);
    return absl::OkStatus();
  });
  if (value_size != nullptr) *value_size = size;
  return called == VERBENA_OK ? code : called;
}

verbena_code verbena_submit_get_into(verbena_connection* connection, const void* key,
                                     size_t key_size, void* target, size_t capacity,
                                     verbena_get_callback callback, void* context) {
  return Call(connection, Waits::kNo, [&](Connection& from) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_RETURN_IF_ERROR(BytesFrom(target, capacity, "target").status());
    return from.SubmitGetInto(
        name, Memory(target, capacity),
        [connection, capacity, callback, context](const absl::Status& got,
                                                  const GetResult& result) {
          const InCallback in_callback(*connection);
          const verbena_code code = IntoCode(*connection, got, result.size, capacity);
          if (got.ok()) {
            callback(context, code, result.value.data(), result.value.size(), result.version);
          } else {
            callback(context, code, nullptr, code == VERBENA_BUFFER_TOO_SMALL ? result.size : 0, 0);
          }
        },
        CallOptionsOf(*connection));
  });
}
