// The C API: asynchronous operations.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "client/src/c_api.h"
#include "common/base/macros.h"

namespace verbena::c_api {
namespace {

// Calls a function of the program, when an operation has ended.
ChangeCallback Calling(verbena_connection* handle, verbena_change_callback callback,
                       void* context) {
  return [handle, callback, context](const absl::Status& status, const ChangeResult& result) {
    const InCallback in_callback(*handle);
    const verbena_code code = Record(*handle, status);
    const verbena_change change = ChangeFrom(status, result);
    callback(context, code, &change);
  };
}
GetCallback Calling(verbena_connection* handle, verbena_get_callback callback, void* context) {
  return [handle, callback, context](const absl::Status& status, const GetResult& result) {
    const InCallback in_callback(*handle);
    const verbena_code code = Record(*handle, status);
    const std::string_view value = status.ok() ? result.value : std::string_view();
    callback(context, code, value.data(), value.size(), status.ok() ? result.version : 0);
  };
}

TtlCallback Calling(verbena_connection* handle, verbena_ttl_callback callback, void* context) {
  return [handle, callback, context](const absl::Status& status,
                                     std::optional<std::chrono::milliseconds> ttl) {
    const InCallback in_callback(*handle);
    callback(context, Record(*handle, status), ttl.has_value() ? ttl->count() : -1);
  };
}
StatusCallback Calling(verbena_connection* handle, verbena_ping_callback callback, void* context) {
  return [handle, callback, context](const absl::Status& status) {
    const InCallback in_callback(*handle);
    callback(context, Record(*handle, status));
  };
}
InfoCallback Calling(verbena_connection* handle, verbena_info_callback callback, void* context) {
  return [handle, callback, context](const absl::Status& status, const std::string& text) {
    const InCallback in_callback(*handle);
    const verbena_code code = Record(*handle, status);
    callback(context, code, status.ok() ? text.c_str() : nullptr, status.ok() ? text.size() : 0);
  };
}
ScanCallback Calling(verbena_connection* handle, verbena_scan_ended_callback callback,
                     void* context) {
  return
      [handle, callback, context](const absl::Status& status, const std::vector<ScanItem>& found) {
        const InCallback in_callback(*handle);
        verbena_code code = Record(*handle, status);
        std::vector<verbena_item> items;
        try {
          items.reserve(found.size());
          for (const ScanItem& item : found) items.push_back(ItemFrom(item));
        } catch (const std::bad_alloc&) {
          SetError(*handle, "out of memory for what the scan has found");
          code = VERBENA_RESOURCE_EXHAUSTED;
        }
        callback(context, code, items.data(), items.size());
      };
}

// Submits an operation on no key: `submit(Connection&, callback)`.
template <typename Callback, typename Submit>
verbena_code SubmitOnNoKey(verbena_connection* handle, Callback callback, void* context,
                           Submit submit) {
  return Call(handle, Waits::kNo, [&](Connection& connection) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    return submit(connection, Calling(handle, callback, context));
  });
}

// Submits an operation on a key: `submit(Connection&, key, callback)`.
template <typename Callback, typename Submit>
verbena_code SubmitOn(verbena_connection* handle, const void* key, size_t key_size,
                      Callback callback, void* context, Submit submit) {
  return Call(handle, Waits::kNo, [&](Connection& connection) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    VERBENA_ASSIGN_OR_RETURN(const std::string_view name, BytesFrom(key, key_size, "key"));
    return submit(connection, name, Calling(handle, callback, context));
  });
}

// Submits a change under a condition: `submit(Connection&, key, callback, options)`.
template <typename Submit>
verbena_code SubmitUnder(verbena_connection* handle, const void* key, size_t key_size,
                         const verbena_condition* condition, verbena_change_callback callback,
                         void* context, Submit submit) {
  return SubmitOn(handle, key, key_size, callback, context,
                  [&](Connection& to, std::string_view name, ChangeCallback ended) -> absl::Status {
                    VERBENA_ASSIGN_OR_RETURN(const ChangeOptions wanted,
                                             ChangeOptionsFrom(*handle, condition));
                    return submit(to, name, std::move(ended), wanted);
                  });
}

}  // namespace
}  // namespace verbena::c_api

using verbena::ChangeCallback;
using verbena::ChangeOptions;
using verbena::Connection;
using verbena::GetCallback;
using verbena::c_api::BytesFrom;
using verbena::c_api::Call;
using verbena::c_api::CallOptionsOf;
using verbena::c_api::PutOptionsFrom;
using verbena::c_api::SubmitOn;
using verbena::c_api::SubmitOnNoKey;
using verbena::c_api::SubmitUnder;
using verbena::c_api::Waits;

verbena_code verbena_submit_get(verbena_connection* connection, const void* key, size_t key_size,
                                verbena_get_callback callback, void* context) {
  return SubmitOn(connection, key, key_size, callback, context,
                  [&](Connection& to, std::string_view name, GetCallback ended) {
                    if (!connection->timeout) return to.SubmitGet(name, std::move(ended));
                    return to.SubmitGet(name, std::move(ended), CallOptionsOf(*connection));
                  });
}

verbena_code verbena_submit_put(verbena_connection* connection, const void* key, size_t key_size,
                                const void* value, size_t value_size,
                                const verbena_put_options* options,
                                verbena_change_callback callback, void* context) {
  return SubmitOn(connection, key, key_size, callback, context,
                  [&](Connection& to, std::string_view name, ChangeCallback ended) -> absl::Status {
                    VERBENA_ASSIGN_OR_RETURN(const std::string_view bytes,
                                             BytesFrom(value, value_size, "value"));
                    VERBENA_ASSIGN_OR_RETURN(const verbena::PutOptions put,
                                             PutOptionsFrom(*connection, options));
                    return to.SubmitPut(name, bytes, std::move(ended), put);
                  });
}

verbena_code verbena_submit_delete(verbena_connection* connection, const void* key, size_t key_size,
                                   const verbena_condition* condition,
                                   verbena_change_callback callback, void* context) {
  return SubmitUnder(
      connection, key, key_size, condition, callback, context,
      [](Connection& to, std::string_view name, ChangeCallback ended, const ChangeOptions& wanted) {
        return to.SubmitDelete(name, std::move(ended), wanted);
      });
}

verbena_code verbena_submit_add(verbena_connection* connection, const void* key, size_t key_size,
                                int64_t summand, const verbena_condition* condition,
                                verbena_change_callback callback, void* context) {
  return SubmitUnder(connection, key, key_size, condition, callback, context,
                     [=](Connection& to, std::string_view name, ChangeCallback ended,
                         const ChangeOptions& wanted) {
                       return to.SubmitAdd(name, summand, std::move(ended), wanted);
                     });
}

verbena_code verbena_submit_append(verbena_connection* connection, const void* key, size_t key_size,
                                   const void* suffix, size_t suffix_size,
                                   const verbena_condition* condition,
                                   verbena_change_callback callback, void* context) {
  return SubmitUnder(connection, key, key_size, condition, callback, context,
                     [=](Connection& to, std::string_view name, ChangeCallback ended,
                         const ChangeOptions& wanted) -> absl::Status {
                       VERBENA_ASSIGN_OR_RETURN(const std::string_view more,
                                                BytesFrom(suffix, suffix_size, "suffix"));
                       return to.SubmitAppend(name, more, std::move(ended), wanted);
                     });
}

verbena_code verbena_submit_expire(verbena_connection* connection, const void* key, size_t key_size,
                                   int64_t ttl_ms, verbena_change_callback callback,
                                   void* context) {
  return SubmitOn(connection, key, key_size, callback, context,
                  [&](Connection& to, std::string_view name, ChangeCallback ended) {
                    return to.SubmitExpire(name, std::chrono::milliseconds(ttl_ms),
                                           std::move(ended), CallOptionsOf(*connection));
                  });
}

verbena_code verbena_submit_persist(verbena_connection* connection, const void* key,
                                    size_t key_size, verbena_change_callback callback,
                                    void* context) {
  return SubmitOn(connection, key, key_size, callback, context,
                  [&](Connection& to, std::string_view name, ChangeCallback ended) {
                    return to.SubmitPersist(name, std::move(ended), CallOptionsOf(*connection));
                  });
}

verbena_code verbena_submit_get_and_delete(verbena_connection* connection, const void* key,
                                           size_t key_size, verbena_get_callback callback,
                                           void* context) {
  return SubmitOn(connection, key, key_size, callback, context,
                  [&](Connection& to, std::string_view name, GetCallback ended) {
                    return to.SubmitGetAndDelete(name, std::move(ended),
                                                 CallOptionsOf(*connection));
                  });
}

verbena_code verbena_submit_ttl(verbena_connection* connection, const void* key, size_t key_size,
                                verbena_ttl_callback callback, void* context) {
  return SubmitOn(connection, key, key_size, callback, context,
                  [&](Connection& of, std::string_view name, verbena::TtlCallback ended) {
                    return of.SubmitTtl(name, std::move(ended), CallOptionsOf(*connection));
                  });
}

verbena_code verbena_submit_ping(verbena_connection* connection, verbena_ping_callback callback,
                                 void* context) {
  return SubmitOnNoKey(connection, callback, context,
                       [&](Connection& to, verbena::StatusCallback ended) {
                         return to.SubmitPing(std::move(ended), CallOptionsOf(*connection));
                       });
}

verbena_code verbena_submit_info(verbena_connection* connection, verbena_info_callback callback,
                                 void* context) {
  return SubmitOnNoKey(connection, callback, context,
                       [&](Connection& to, verbena::InfoCallback ended) {
                         return to.SubmitInfo(std::move(ended), CallOptionsOf(*connection));
                       });
}

verbena_code verbena_submit_scan(verbena_connection* connection, const verbena_scan_range* range,
                                 uint64_t limit, verbena_scan_ended_callback callback,
                                 void* context) {
  return Call(connection, Waits::kNo, [&](Connection& of) -> absl::Status {
    if (callback == nullptr) return absl::InvalidArgumentError("the callback is NULL");
    const verbena_scan_range all{};
    VERBENA_ASSIGN_OR_RETURN(const verbena::ScanRange wanted,
                             verbena::c_api::RangeFrom(range == nullptr ? all : *range));
    return of.SubmitScan(wanted, limit, verbena::c_api::Calling(connection, callback, context),
                         CallOptionsOf(*connection));
  });
}

int verbena_poll(verbena_connection* connection) { return verbena_wait(connection, 0); }

int verbena_wait(verbena_connection* connection, int64_t timeout_us) {
  // Ends before the nanoseconds of a clock do.
  constexpr int64_t kLongest = int64_t{366} * 24 * 3600 * 1'000'000;
  int callbacks = -1;
  Call(connection, Waits::kYes, [&](Connection& on) {
    const std::chrono::microseconds timeout(timeout_us < 0 ? kLongest
                                                           : std::min(timeout_us, kLongest));
    callbacks = timeout_us == 0 ? on.Poll() : on.Wait(timeout);
    return absl::OkStatus();
  });
  return callbacks;
}

verbena_code verbena_drain(verbena_connection* connection) {
  return Call(connection, Waits::kYes, [](Connection& on) {
    on.Drain();
    return absl::OkStatus();
  });
}

size_t verbena_in_flight(const verbena_connection* connection) {
  return connection == nullptr ? 0 : connection->connection->in_flight();
}

int verbena_has_room(const verbena_connection* connection) {
  return connection != nullptr && connection->connection->has_room() ? 1 : 0;
}

int verbena_event_fd(const verbena_connection* connection) {
  return connection == nullptr ? -1 : connection->connection->event_fd();
}

int verbena_poll_and_arm(verbena_connection* connection) {
  int callbacks = -1;
  Call(connection, Waits::kYes, [&](Connection& on) {
    callbacks = on.PollAndArm();
    return absl::OkStatus();
  });
  return callbacks;
}
