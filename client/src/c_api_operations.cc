// The C API: operations that wait, one key and several.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "client/src/c_api.h"
#include "common/base/macros.h"

namespace verbena::c_api {
namespace {

// The reserved members of an item for several keys.
template <typename Item>
absl::Status CheckItem(const Item& item, const char* name) {
  const uint64_t first = item.reserved1;
  VERBENA_RETURN_IF_ERROR(CheckReserved({&first, 1}, name));
  return CheckReserved(item.reserved, name);
}

// Puts `value` where the item wants it.
void Deliver(verbena_connection& handle, std::string_view value, verbena_get_item& item) {
  item.value_size = value.size();
  if (value.size() > item.capacity || (item.buffer == nullptr && !value.empty())) {
    item.status = VERBENA_BUFFER_TOO_SMALL;
    char text[96];
    std::snprintf(text, sizeof text, "the value has %zu bytes, the buffer %zu", value.size(),
                  item.buffer == nullptr ? size_t{0} : item.capacity);
    SetError(handle, text);
    return;
  }
  if (!value.empty()) std::memcpy(item.buffer, value.data(), value.size());
  item.status = VERBENA_OK;
}

// GETs that are waited for together. Lives until each callback has run.
class Gets {
 public:
  Gets(verbena_connection& handle, Connection& connection)
      : handle_(handle), connection_(connection) {}

  // Sets the item's status, now or by Finish.
  void Start(verbena_get_item& item) {
    item.value_size = 0;
    item.version = 0;
    const absl::Status status = SubmitWhenThereIsRoom(connection_, [&]() -> absl::Status {
      VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_get_item"));
      VERBENA_ASSIGN_OR_RETURN(const std::string_view key,
                               BytesFrom(item.key, item.key_size, "key"));
      return connection_.SubmitGet(key,
                                   [this, &item](const absl::Status& got, const GetResult& result) {
                                     --waiting_;
                                     item.status = Record(handle_, got);
                                     if (!got.ok()) return;
                                     item.version = result.version;
                                     Deliver(handle_, result.value, item);
                                   });
    });
    if (status.ok()) {
      ++waiting_;
    } else {
      item.status = Record(handle_, status);
    }
  }
  void Finish() {
    while (waiting_ > 0) connection_.Wait(kTurn);
  }

 private:
  verbena_connection& handle_;
  Connection& connection_;
  size_t waiting_ = 0;  // callbacks not yet run
};

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
    while (!outcome.has_value()) connection.Wait(kTurn);
    return *outcome;
  });
}

// An allocated copy of a value, with a zero behind it.
void* Duplicate(std::string_view value) {
  auto* copy = static_cast<char*>(std::malloc(value.size() + 1));
  if (copy == nullptr) return nullptr;
  if (!value.empty()) std::memcpy(copy, value.data(), value.size());
  copy[value.size()] = '\0';
  return copy;
}

// A GET, or get-and-delete, whose value is allocated.
template <typename Submit>
verbena_code GetAllocated(verbena_connection* handle, void** value, size_t* value_size,
                          uint64_t* version, Submit submit) {
  if (value != nullptr) *value = nullptr;
  if (value_size != nullptr) *value_size = 0;
  if (version != nullptr) *version = 0;
  return Call(handle, Waits::kYes, [&](Connection& connection) -> absl::Status {
    if (value == nullptr || value_size == nullptr) {
      return absl::InvalidArgumentError("the place for the value, or for its size, is NULL");
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
        *value_size = result.value.size();
        if (version != nullptr) *version = result.version;
      });
    }));
    while (!outcome.has_value()) connection.Wait(kTurn);
    return *outcome;
  });
}

absl::Status SubmitPutItem(Connection& connection, const verbena_put_item& item,
                           ChangeCallback callback) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_put_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view value,
                           BytesFrom(item.value, item.value_size, "value"));
  VERBENA_ASSIGN_OR_RETURN(const PutOptions options, PutOptionsFrom(item.options));
  return connection.SubmitPut(key, value, std::move(callback), options);
}

// Keys that a scan asks for at once.
constexpr size_t kScanPage = 256;

absl::Status Scan(Connection& connection, const verbena_scan_range& range, uint64_t limit,
                  verbena_scan_callback callback, void* context) {
  ScanRange page;
  VERBENA_ASSIGN_OR_RETURN(page.start, BytesFrom(range.start, range.start_size, "start"));
  VERBENA_ASSIGN_OR_RETURN(page.prefix, BytesFrom(range.prefix, range.prefix_size, "prefix"));
  page.after = range.after != 0;
  page.keys_only = range.keys_only != 0;
  VERBENA_RETURN_IF_ERROR(CheckReserved(range.reserved, "verbena_scan_range"));
  uint64_t left = limit == 0 ? UINT64_MAX : limit;
  std::string last;
  while (left > 0) {
    const auto want = static_cast<size_t>(std::min<uint64_t>(left, kScanPage));
    std::vector<ScanItem> items;
    const absl::Status status = connection.Scan(page, want, &items);
    for (const ScanItem& found : items) {
      const verbena_item item{found.key.data(), found.key.size(), found.value.data(),
                              found.value.size(), found.version};
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
using verbena::c_api::Change;
using verbena::c_api::ConditionFrom;
using verbena::c_api::GetAllocated;
using verbena::c_api::Gets;
using verbena::c_api::kTurn;
using verbena::c_api::Record;
using verbena::c_api::SubmitWhenThereIsRoom;
using verbena::c_api::Waits;

verbena_code verbena_get(verbena_connection* connection, const void* key, size_t key_size,
                         void* buffer, size_t capacity, size_t* value_size, uint64_t* version) {
  verbena_get_item item{};
  item.key = key;
  item.key_size = key_size;
  item.buffer = buffer;
  item.capacity = capacity;
  const verbena_code status = Call(connection, Waits::kYes, [&](Connection& from) {
    Gets gets(*connection, from);
    gets.Start(item);
    gets.Finish();
    return absl::OkStatus();  // the item has its own
  });
  if (value_size != nullptr) *value_size = item.value_size;
  if (version != nullptr) *version = item.version;
  return status == VERBENA_OK ? item.status : status;
}

verbena_code verbena_get_alloc(verbena_connection* connection, const void* key, size_t key_size,
                               void** value, size_t* value_size, uint64_t* version) {
  return GetAllocated(connection, value, value_size, version,
                      [&](Connection& from, GetCallback callback) -> absl::Status {
                        VERBENA_ASSIGN_OR_RETURN(const std::string_view name,
                                                 BytesFrom(key, key_size, "key"));
                        return from.SubmitGet(name, std::move(callback));
                      });
}

verbena_code verbena_get_and_delete(verbena_connection* connection, const void* key,
                                    size_t key_size, void** value, size_t* value_size,
                                    uint64_t* version) {
  return GetAllocated(connection, value, value_size, version,
                      [&](Connection& from, GetCallback callback) -> absl::Status {
                        VERBENA_ASSIGN_OR_RETURN(const std::string_view name,
                                                 BytesFrom(key, key_size, "key"));
                        return from.SubmitGetAndDelete(name, std::move(callback));
                      });
}

verbena_code verbena_put(verbena_connection* connection, const void* key, size_t key_size,
                         const void* value, size_t value_size, const verbena_put_options* options,
                         verbena_change* change) {
  verbena_put_item item{};
  item.key = key;
  item.key_size = key_size;
  item.value = value;
  item.value_size = value_size;
  item.options = options;
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) {
    return verbena::c_api::SubmitPutItem(to, item, std::move(callback));
  });
}

verbena_code verbena_delete(verbena_connection* connection, const void* key, size_t key_size,
                            const verbena_condition* condition, verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::Condition wanted, ConditionFrom(condition));
    return to.SubmitDelete(name, std::move(callback), wanted);
  });
}

verbena_code verbena_add(verbena_connection* connection, const void* key, size_t key_size,
                         int64_t summand, const verbena_condition* condition,
                         verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::Condition wanted, ConditionFrom(condition));
    return to.SubmitAdd(name, summand, std::move(callback), wanted);
  });
}

verbena_code verbena_append(verbena_connection* connection, const void* key, size_t key_size,
                            const void* suffix, size_t suffix_size,
                            const verbena_condition* condition, verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const std::string_view more, BytesFrom(suffix, suffix_size, "suffix"));
    VERBENA_ASSIGN_OR_RETURN(const verbena::Condition wanted, ConditionFrom(condition));
    return to.SubmitAppend(name, more, std::move(callback), wanted);
  });
}

verbena_code verbena_expire(verbena_connection* connection, const void* key, size_t key_size,
                            int64_t ttl_ms, verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    return to.SubmitExpire(name, std::chrono::milliseconds(ttl_ms), std::move(callback));
  });
}

verbena_code verbena_persist(verbena_connection* connection, const void* key, size_t key_size,
                             verbena_change* change) {
  return Change(connection, change, [&](Connection& to, ChangeCallback callback) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    return to.SubmitPersist(name, std::move(callback));
  });
}

verbena_code verbena_ttl(verbena_connection* connection, const void* key, size_t key_size,
                         int64_t* ttl_ms) {
  if (ttl_ms != nullptr) *ttl_ms = -1;
  return Call(connection, Waits::kYes, [&](Connection& of) -> absl::Status {
    if (ttl_ms == nullptr) return absl::InvalidArgumentError("the place for the time is NULL");
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    VERBENA_ASSIGN_OR_RETURN(const auto ttl, of.Ttl(name));
    if (ttl.has_value()) *ttl_ms = ttl->count();
    return absl::OkStatus();
  });
}

verbena_code verbena_multi_get(verbena_connection* connection, verbena_get_item* items,
                               size_t count) {
  return Call(connection, Waits::kYes, [&](Connection& from) -> absl::Status {
    if (items == nullptr && count > 0) return absl::InvalidArgumentError("the items are NULL");
    Gets gets(*connection, from);
    for (size_t i = 0; i < count; ++i) gets.Start(items[i]);
    gets.Finish();
    return from.status();
  });
}

verbena_code verbena_multi_put(verbena_connection* connection, verbena_put_item* items,
                               size_t count) {
  return Call(connection, Waits::kYes, [&](Connection& to) -> absl::Status {
    if (items == nullptr && count > 0) return absl::InvalidArgumentError("the items are NULL");
    size_t waiting = 0;
    for (size_t i = 0; i < count; ++i) {
      verbena_put_item& item = items[i];
      item.change = {};
      const absl::Status status = SubmitWhenThereIsRoom(to, [&] {
        return verbena::c_api::SubmitPutItem(
            to, item,
            [&item, &waiting, connection](const absl::Status& put,
                                          const verbena::ChangeResult& result) {
              --waiting;
              item.status = Record(*connection, put);
              item.change = verbena::c_api::ChangeFrom(put, result);
            });
      });
      if (status.ok()) {
        ++waiting;
      } else {
        item.status = Record(*connection, status);
      }
    }
    while (waiting > 0) to.Wait(kTurn);
    return to.status();
  });
}

verbena_code verbena_scan(verbena_connection* connection, const verbena_scan_range* range,
                          uint64_t limit, verbena_scan_callback callback, void* context) {
  return Call(connection, Waits::kYes, [&](Connection& of) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    const verbena_scan_range all{};
    const verbena::c_api::InScan in_scan(*connection);
    return verbena::c_api::Scan(of, range == nullptr ? all : *range, limit, callback, context);
  });
}
