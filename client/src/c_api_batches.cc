// The C API: several operations at once, each with an outcome of its own.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/c_api.h"
#include "common/base/macros.h"

namespace verbena::c_api {
namespace {

// The reserved members of an item.
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
    SetTooSmall(handle, value.size(), item.buffer == nullptr ? 0 : item.capacity);
    return;
  }
  if (!value.empty()) std::memcpy(item.buffer, value.data(), value.size());
}

absl::Status SubmitItem(Connection& connection, Together& together, verbena_get_item& item) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_get_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  return connection.SubmitGet(
      key,
      [&together, &item](const absl::Status& got, const GetResult& result) {
        together.Ended(item.status, got);
        if (!got.ok()) return;
        item.version = result.version;
        Deliver(together.handle(), result.value, item);
      },
      CallOptionsOf(together.handle()));
}

// For an item that has a change.
template <typename Item>
ChangeCallback Changing(Together& together, Item& item) {
  return [&together, &item](const absl::Status& made, const ChangeResult& result) {
    together.Ended(item.status, made);
    item.change = ChangeFrom(made, result);
  };
}

absl::Status SubmitItem(Connection& connection, Together& together, verbena_put_item& item) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_put_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view value,
                           BytesFrom(item.value, item.value_size, "value"));
  VERBENA_ASSIGN_OR_RETURN(const PutOptions options,
                           PutOptionsFrom(together.handle(), item.options));
  return connection.SubmitPut(key, value, Changing(together, item), options);
}

absl::Status SubmitItem(Connection& connection, Together& together, verbena_delete_item& item) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_delete_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  VERBENA_ASSIGN_OR_RETURN(const ChangeOptions options,
                           ChangeOptionsFrom(together.handle(), item.condition));
  return connection.SubmitDelete(key, Changing(together, item), options);
}

// For an operation whose value is allocated.
GetCallback Getting(Together& together, verbena_operation& item) {
  return [&together, &item](const absl::Status& got, const GetResult& result) {
    together.Ended(item.status, got);
    if (!got.ok()) return;
    item.result = Duplicate(result.value);
    if (item.result == nullptr) {
      together.Fail(item.status, absl::ResourceExhaustedError("out of memory for the value"));
      return;
    }
    item.result_size = result.value.size();
    item.change.version = result.version;
  };
}

absl::Status SubmitItem(Connection& connection, Together& together, verbena_operation& item) {
  const uint64_t small[] = {item.reserved1, item.reserved2};
  VERBENA_RETURN_IF_ERROR(CheckReserved(small, "verbena_operation"));
  VERBENA_RETURN_IF_ERROR(CheckReserved(item.reserved, "verbena_operation"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  std::string_view value;
  if (item.kind == VERBENA_OP_PUT || item.kind == VERBENA_OP_APPEND) {
    VERBENA_ASSIGN_OR_RETURN(value, BytesFrom(item.value, item.value_size, "value"));
  }
  CallOptions call = CallOptionsOf(together.handle());
  if (item.timeout_ms != 0) call.timeout = std::chrono::milliseconds(item.timeout_ms);
  ChangeOptions change{.condition = {}, .timeout = call.timeout};
  switch (item.kind) {
    case VERBENA_OP_PUT:
    case VERBENA_OP_DELETE:
    case VERBENA_OP_ADD:
    case VERBENA_OP_APPEND: {
      VERBENA_ASSIGN_OR_RETURN(change.condition, ConditionFrom(&item.condition));
      break;
    }
    default:
      break;
  }
  const std::chrono::milliseconds ttl(item.ttl_ms);
  switch (item.kind) {
    case VERBENA_OP_GET:
      return connection.SubmitGet(key, Getting(together, item), call);
    case VERBENA_OP_PUT: {
      PutOptions put{.condition = change.condition, .ttl = {}, .timeout = call.timeout};
      if (item.ttl_ms != 0) put.ttl = ttl;
      return connection.SubmitPut(key, value, Changing(together, item), put);
    }
    case VERBENA_OP_DELETE:
      return connection.SubmitDelete(key, Changing(together, item), change);
    case VERBENA_OP_ADD:
      return connection.SubmitAdd(key, item.summand, Changing(together, item), change);
    case VERBENA_OP_APPEND:
      return connection.SubmitAppend(key, value, Changing(together, item), change);
    case VERBENA_OP_GET_AND_DELETE:
      return connection.SubmitGetAndDelete(key, Getting(together, item), call);
    case VERBENA_OP_EXPIRE:
      return connection.SubmitExpire(key, ttl, Changing(together, item), call);
    case VERBENA_OP_PERSIST:
      return connection.SubmitPersist(key, Changing(together, item), call);
  }
  return absl::InvalidArgumentError(absl::StrCat("verbena_operation::kind is ", item.kind));
}

void Clear(verbena_get_item& item) {
  item.value_size = 0;
  item.version = 0;
}
void Clear(verbena_put_item& item) { item.change = {}; }
void Clear(verbena_delete_item& item) { item.change = {}; }
void Clear(verbena_operation& item) {
  item.result = nullptr;
  item.result_size = 0;
  item.change = {};
}

template <typename Item>
void RunItems(verbena_connection& handle, Connection& connection, std::span<Item> items) {
  Together together(handle, connection);
  for (Item& item : items) {
    Clear(item);
    together.Start(item.status, [&] { return SubmitItem(connection, together, item); });
  }
  together.Finish();
}

template <typename Item>
verbena_code Several(verbena_connection* handle, Item* items, size_t count) {
  return Call(handle, Waits::kYes, [&](Connection& connection) -> absl::Status {
    if (items == nullptr && count > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the items are NULL, but their count is ", count));
    }
    RunItems(*handle, connection, std::span<Item>(items, count));
    return connection.status();
  });
}

}  // namespace

void SetTooSmall(verbena_connection& handle, size_t value_size, size_t capacity) noexcept {
  char text[96];
  std::snprintf(text, sizeof text, "the value has %zu bytes, the buffer %zu", value_size, capacity);
  SetError(handle, text);
}

void GetItems(verbena_connection& handle, Connection& connection,
              std::span<verbena_get_item> items) {
  RunItems(handle, connection, items);
}

}  // namespace verbena::c_api

using verbena::c_api::Several;

verbena_code verbena_multi_get(verbena_connection* connection, verbena_get_item* items,
                               size_t count) {
  return Several(connection, items, count);
}

verbena_code verbena_multi_put(verbena_connection* connection, verbena_put_item* items,
                               size_t count) {
  return Several(connection, items, count);
}

verbena_code verbena_multi_delete(verbena_connection* connection, verbena_delete_item* items,
                                  size_t count) {
  return Several(connection, items, count);
}

verbena_code verbena_execute(verbena_connection* connection, verbena_operation* operations,
                             size_t count) {
  return Several(connection, operations, count);
}
