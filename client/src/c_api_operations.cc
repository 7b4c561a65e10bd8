// The C API: operations on one key, and scans, that wait.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "client/src/c_api.h"
#include "common/base/macros.h"

namespace verbena::c_api {
namespace {

// A change that is waited for. `submit` gives one to the connection with a callback.
template <typename Submit>
verbena_code Change(verbena_connection* handle, verbena_change* change, Submit submit) {
  if (change != nullptr) *change = {};
  return Call(handle, Waits::kYes, [&](Connection& connection) -> absl::Status {
    std::optional<absl::Status> outcome;
    VERBENA_RETURN_IF_ERROR(SubmitWhenThereIsRoom(connection, [&] {
      return submit(connection, [&](const absl::Status& status, const ChangeResult& result) {
        outcome = status;
        if (change != nullptr) *change = ChangeFrom(status, result);
      });
    }));
    VERBENA_RETURN_IF_ERROR(WaitUntil(connection, [&] { return outcome.has_value(); }));
    return *outcome;
  });
}

// A GET, or get-and-delete, whose value is allocated.
template <typename Submit>
verbena_code GetAllocated(verbena_connection* handle, void** value, size_t* value_size,
                          uint64_t* version, Submit submit) {
  if (value != nullptr) *value = nullptr;
  if (value_size != nullptr) *value_size = 0;
  if (version != nullptr) *version = 0;
  return Call(handle, Waits::kYes, [&](Connection& connection) -> absl::Status {
    if (value == nullptr) {
      return absl::InvalidArgumentError("the place for the value is NULL");
    }
    std::optional<absl::Status> outcome;
    VERBENA_RETURN_IF_ERROR(SubmitWhenThereIsRoom(connection, [&] {
      return submit(connection, [&](const absl::Status& status, const GetResult& result) {
        outcome = status;
        if (!status.ok()) return;
        *value = Duplicate(result.value);
        if (*value == nullptr) {
          outcome = absl::ResourceExhaustedError("out of memory for the value");
          return;
        }
        if (value_size != nullptr) *value_size = result.value.size();
        if (version != nullptr) *version = result.version;
      });
    }));
    VERBENA_RETURN_IF_ERROR(WaitUntil(connection, [&] { return outcome.has_value(); }));
    return *outcome;
  });
}

// Keys that a scan asks for at once.
constexpr size_t kScanPage = 256;

absl::Status Scan(const verbena_connection& handle, Connection& connection,
                  const verbena_scan_range& range, uint64_t limit, verbena_scan_callback callback,
                  void* context) {
  VERBENA_ASSIGN_OR_RETURN(ScanRange page, RangeFrom(range));
  uint64_t left = limit == 0 ? UINT64_MAX : limit;
  std::string last;
  while (left > 0) {
    const auto want = static_cast<size_t>(std::min<uint64_t>(left, kScanPage));
    std::vector<ScanItem> items;
    const absl::Status status = connection.Scan(page, want, &items, CallOptionsOf(handle));
    for (const ScanItem& found : items) {
      const verbena_item item = ItemFrom(found);
      if (callback(context, &item) != 0) return absl::OkStatus();
    }
    VERBENA_RETURN_IF_ERROR(status);
    if (items.size() < want) break;
    left -= items.size();
    last = items.back().key;
    page.start = last;
    page.after = true;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace verbena::c_api

using verbena::ChangeCallback;
using verbena::Connection;
using verbena::GetCallback;
using verbena::c_api::BytesFrom;
using verbena::c_api::Call;
using verbena::c_api::CallOptionsOf;
using verbena::c_api::Change;
using verbena::c_api::ChangeOptionsFrom;
using verbena::c_api::GetAllocated;
using verbena::c_api::GetOne;
using verbena::c_api::Waits;

verbena_code verbena_get(verbena_connection* connection, const void* key, size_t key_size,
                         void* buffer, size_t capacity, size_t* value_size, uint64_t* version) {
  verbena_get_item item{};
  item.key = key;
  item.key_size = key_size;
  item.buffer = buffer;
  item.capacity = capacity;
  verbena_code got = VERBENA_OK;
  const verbena_code called = Call(connection, Waits::kYes, [&](Connection& from) {
    got = GetOne(*connection, from, item);
    return absl::OkStatus();  // the item has its own
  });
  if (value_size != nullptr) *value_size = item.value_size;
  if (version != nullptr) *version = item.version;
  return called == VERBENA_OK ? got : called;
}

verbena_code verbena_get_alloc(verbena_connection* connection, const void* key, size_t key_size,
                               void** value, size_t* value_size, uint64_t* version) {
  return GetAllocated(
      connection, value, value_size, version,
      [&](Connection& from, GetCallback callback) -> absl::Status {
        VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
        return from.SubmitGet(name, std::move(callback), CallOptionsOf(*connection));
      });
}

verbena_code verbena_get_and_delete(verbena_connection* connection, const void* key,
                                    size_t key_size, void** value, size_t* value_size,
                                    uint64_t* version) {
  return GetAllocated(
      connection, value, value_size, version,
      [&](Connection& from, GetCallback callback) -> absl::Status {
        VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
        return from.SubmitGetAndDelete(name, std::move(callback), CallOptionsOf(*connection));
      });
}

verbena_code verbena_put(verbena_connection* connection, const void* key, size_t key_size,
                         const void* value, size_t value_size, const verbena_put_options* options,
                         verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const std::string_view bytes, BytesFrom(value, value_size, "value"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::PutOptions put,
                             verbena::c_api::PutOptionsFrom(*connection, options));
    return to.SubmitPut(name, bytes, std::move(callback), put);
  });
}

verbena_code verbena_delete(verbena_connection* connection, const void* key, size_t key_size,
                            const verbena_condition* condition, verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::ChangeOptions wanted,
                             ChangeOptionsFrom(*connection, condition));
    return to.SubmitDelete(name, std::move(callback), wanted);
  });
}

verbena_code verbena_add(verbena_connection* connection, const void* key, size_t key_size,
                         int64_t summand, const verbena_condition* condition,
                         verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::ChangeOptions wanted,
                             ChangeOptionsFrom(*connection, condition));
    return to.SubmitAdd(name, summand, std::move(callback), wanted);
  });
}

verbena_code verbena_append(verbena_connection* connection, const void* key, size_t key_size,
                            const void* suffix, size_t suffix_size,
                            const verbena_condition* condition, verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const std::string_view more, BytesFrom(suffix, suffix_size, "suffix"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::ChangeOptions wanted,
                             ChangeOptionsFrom(*connection, condition));
    return to.SubmitAppend(name, more, std::move(callback), wanted);
  });
}

verbena_code verbena_expire(verbena_connection* connection, const void* key, size_t key_size,
                            int64_t ttl_ms, verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    return to.SubmitExpire(name, std::chrono::milliseconds(ttl_ms), std::move(callback),
                           CallOptionsOf(*connection));
  });
}

verbena_code verbena_persist(verbena_connection* connection, const void* key, size_t key_size,
                             verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    return to.SubmitPersist(name, std::move(callback), CallOptionsOf(*connection));
  });
}

verbena_code verbena_ttl(verbena_connection* connection, const void* key, size_t key_size,
                         int64_t* ttl_ms) {
  if (ttl_ms != nullptr) *ttl_ms = -1;
  return Call(connection, Waits::kYes, [&](Connection& of) -> absl::Status {
    if (ttl_ms == nullptr) return absl::InvalidArgumentError("the place for the time is NULL");
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const auto ttl, of.Ttl(name, CallOptionsOf(*connection)));
    if (ttl.has_value()) *ttl_ms = ttl->count();
    return absl::OkStatus();
  });
}

verbena_code verbena_scan(verbena_connection* connection, const verbena_scan_range* range,
                          uint64_t limit, verbena_scan_callback callback, void* context) {
  return Call(connection, Waits::kYes, [&](Connection& of) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    const verbena_scan_range all{};
    const verbena::c_api::InScan in_scan(*connection);
    return verbena::c_api::Scan(*connection, of, range == nullptr ? all : *range, limit, callback,
                                context);
  });
}
