// The C API: several operations at once, each with an outcome of its own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/c_api.h"
#include "common/base/clock.h"
#include "common/base/macros.h"

namespace verbena::c_api {
namespace {

// Whether it is no error of the whole that an item's key is not there.
using c_api::AbsentPasses;
bool AbsentPasses(const verbena_get_item&) { return true; }
bool AbsentPasses(const verbena_put_item&) { return false; }
bool AbsentPasses(const verbena_delete_item&) { return true; }

// Items that are waited for together, each with an outcome in memory of the caller's. Lives until
// each callback has run, or can run no more.
template <typename Item>
class Together {
 public:
  Together(verbena_connection& handle, Connection& connection, bool absent_passes)
      : handle_(handle), connection_(connection), absent_passes_(absent_passes) {
    if (handle.timeout)
      deadline_ = DeadlineAfter(std::chrono::nanoseconds(*handle.timeout).count());
  }

  // `submit()` gives the item to the connection, with a callback that calls Ended.
  template <typename Submit>
  void Start(Item& item, Submit submit) {
    item.status = VERBENA_UNKNOWN;  // until it has ended
    const absl::Status started = SubmitWhenThereIsRoom(connection_, std::move(submit));
    if (started.ok()) {
      ++waiting_;
    } else {
      Note(item, started);
    }
  }
  void Ended(Item& item, const absl::Status& outcome) {
    --waiting_;
    late_ = late_ || absl::IsDeadlineExceeded(outcome);
    Note(item, outcome);
  }
  // What has ended well has failed nevertheless.
  void Fail(Item& item, const absl::Status& why) { Note(item, why); }
  void FailTooSmall(Item& item) {
    item.status = VERBENA_BUFFER_TOO_SMALL;
    if (IsFirst(item)) first_ = &item;
  }
  void Finish(std::span<Item> items) {
    const absl::Status never = WaitUntil(connection_, [this] { return waiting_ == 0; });
    if (never.ok()) return;
    for (Item& item : items) {
      if (item.status == VERBENA_UNKNOWN) Note(item, never);
    }
  }
  // Of the first item, in the caller's order, that has failed; the connection has its text then.
  verbena_code Outcome() {
    if (first_ == nullptr) return VERBENA_OK;
    if (first_->status != VERBENA_BUFFER_TOO_SMALL) return Record(handle_, why_);
    if constexpr (std::is_same_v<Item, verbena_get_item>) {
      SetTooSmall(handle_, first_->value_size, first_->buffer == nullptr ? 0 : first_->capacity);
    }
    return VERBENA_BUFFER_TOO_SMALL;
  }
  const verbena_connection& handle() const { return handle_; }
  // Of an item that is begun now, which has what is left of the call's time; an error if it is not
  // to be begun any more.
  absl::StatusOr<CallOptions> Options() const {
    if (late_) {
      return absl::DeadlineExceededError(
          "not begun, since the time of another item of the same call was over");
    }
    if (deadline_ == INT64_MAX) return CallOptions{};
    const int64_t left = deadline_ - MonotonicNanos();
    if (left <= 0) {
      return absl::DeadlineExceededError(absl::StrCat("not begun, since the time of the call, ",
                                                      handle_.timeout->count(), " ms, was over"));
    }
    return CallOptions{.timeout = std::chrono::milliseconds((left + 999'999) / 1'000'000)};
  }

 private:
  // The items are those of one array.
  bool IsFirst(const Item& item) const { return first_ == nullptr || &item < first_; }

  void Note(Item& item, const absl::Status& outcome) {
    item.status = CodeOf(outcome);
    if (outcome.ok() || !IsFirst(item)) return;
    if (absl::IsNotFound(outcome) && absent_passes_ && AbsentPasses(item)) return;
    first_ = &item;
    why_ = outcome;
  }

  verbena_connection& handle_;
  Connection& connection_;
  const bool absent_passes_;
  int64_t deadline_ = INT64_MAX;  // of the call as a whole
  bool late_ = false;             // the time of one was over
  size_t waiting_ = 0;            // callbacks not yet run
  const Item* first_ = nullptr;   // of those that have failed
  absl::Status why_;              // it has, unless its value did not fit
};

// The reserved members of an item.
template <typename Item>
absl::Status CheckItem(const Item& item, const char* name) {
  const uint64_t first = item.reserved1;
  VERBENA_RETURN_IF_ERROR(CheckReserved({&first, 1}, name));
  return CheckReserved(item.reserved, name);
}

// Puts `value` where the item wants it; false if it does not fit.
bool Deliver(std::string_view value, verbena_get_item& item) {
  item.value_size = value.size();
  if (value.size() > item.capacity || (item.buffer == nullptr && !value.empty())) return false;
  if (!value.empty()) std::memcpy(item.buffer, value.data(), value.size());
  return true;
}

absl::Status SubmitItem(Connection& connection, Together<verbena_get_item>& together,
                        verbena_get_item& item) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_get_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  VERBENA_ASSIGN_OR_RETURN(const CallOptions options, together.Options());
  return connection.SubmitGet(
      key,
      [&together, &item](const absl::Status& got, const GetResult& result) {
        together.Ended(item, got);
        if (!got.ok()) return;
        item.version = result.version;
        if (!Deliver(result.value, item)) together.FailTooSmall(item);
      },
      options);
}

// For an item that has a change.
template <typename Item>
ChangeCallback Changing(Together<Item>& together, Item& item) {
  return [&together, &item](const absl::Status& made, const ChangeResult& result) {
    together.Ended(item, made);
    item.change = ChangeFrom(made, result);
  };
}

absl::Status SubmitItem(Connection& connection, Together<verbena_put_item>& together,
                        verbena_put_item& item) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_put_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view value,
                           BytesFrom(item.value, item.value_size, "value"));
  VERBENA_ASSIGN_OR_RETURN(PutOptions options, PutOptionsFrom(together.handle(), item.options));
  VERBENA_ASSIGN_OR_RETURN(const CallOptions call, together.Options());
  options.timeout = call.timeout;
  return connection.SubmitPut(key, value, Changing(together, item), options);
}

absl::Status SubmitItem(Connection& connection, Together<verbena_delete_item>& together,
                        verbena_delete_item& item) {
  VERBENA_RETURN_IF_ERROR(CheckItem(item, "verbena_delete_item"));
  VERBENA_ASSIGN_OR_RETURN(const std::string_view key, BytesFrom(item.key, item.key_size, "key"));
  VERBENA_ASSIGN_OR_RETURN(ChangeOptions options,
                           ChangeOptionsFrom(together.handle(), item.condition));
  VERBENA_ASSIGN_OR_RETURN(const CallOptions call, together.Options());
  options.timeout = call.timeout;
  return connection.SubmitDelete(key, Changing(together, item), options);
}

// For an operation whose value is allocated.
GetCallback Getting(Together<verbena_operation>& together, verbena_operation& item) {
  return [&together, &item](const absl::Status& got, const GetResult& result) {
    together.Ended(item, got);
    const absl::Status taken = TakeValue(got, result.value, result.version, item);
    if (got.ok() && !taken.ok()) together.Fail(item, taken);
  };
}

absl::Status SubmitItem(Connection& connection, Together<verbena_operation>& together,
                        verbena_operation& item) {
  VERBENA_ASSIGN_OR_RETURN(const ParsedOperation parsed, Parse(item));
  VERBENA_ASSIGN_OR_RETURN(CallOptions call, together.Options());
  if (parsed.options.timeout) {
    call.timeout =
        std::min(*parsed.options.timeout, call.timeout.value_or(*parsed.options.timeout));
  }
  const std::string_view key = parsed.key;
  const std::string_view value = parsed.value;
  const ChangeOptions change{.condition = parsed.options.condition, .timeout = call.timeout};
  const std::chrono::milliseconds ttl(item.ttl_ms);
  switch (item.kind) {
    case VERBENA_OP_GET:
      return connection.SubmitGet(key, Getting(together, item), call);
    case VERBENA_OP_PUT: {
      PutOptions put = parsed.options;
      put.timeout = call.timeout;
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
  return KindError(item);
}

using c_api::Clear;
void Clear(verbena_get_item& item) {
  item.value_size = 0;
  item.version = 0;
}
void Clear(verbena_put_item& item) { item.change = {}; }
void Clear(verbena_delete_item& item) { item.change = {}; }

// Sets each item's status and what it has to tell.
template <typename Item>
verbena_code RunItems(verbena_connection& handle, Connection& connection, std::span<Item> items,
                      bool absent_passes) {
  Together<Item> together(handle, connection, absent_passes);
  for (Item& item : items) {
    together.Start(item, [&] { return SubmitItem(connection, together, item); });
  }
  together.Finish(items);
  return together.Outcome();
}

template <typename Item>
verbena_code Several(verbena_connection* handle, Item* items, size_t count) {
  const std::span<Item> all(items, items == nullptr ? 0 : count);
  // Where the call comes to nothing no item has what a call before has left there.
  for (Item& item : all) {
    Clear(item);
    item.status = VERBENA_UNKNOWN;
  }
  verbena_code outcome = VERBENA_OK;
  const verbena_code called =
      Call(handle, Waits::kYes, [&](Connection& connection) -> absl::Status {
        if (items == nullptr && count > 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("the items are NULL, but their count is ", count));
        }
        outcome = RunItems(*handle, connection, all, /*absent_passes=*/true);
        return absl::OkStatus();  // the items have their own
      });
  if (called == VERBENA_OK) return outcome;
  for (Item& item : all) {
    if (item.status == VERBENA_UNKNOWN) item.status = called;
  }
  return called;
}

}  // namespace

void SetTooSmall(verbena_connection& handle, size_t value_size, size_t capacity) noexcept {
  char text[96];
  std::snprintf(text, sizeof text, "the value has %zu bytes, the buffer %zu", value_size, capacity);
  SetError(handle, text);
}

verbena_code GetOne(verbena_connection& handle, Connection& connection, verbena_get_item& item) {
  return RunItems(handle, connection, std::span(&item, 1), /*absent_passes=*/false);
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
