// The C API: options, connecting, errors, and what is told of server and connection.
#include "client/src/c_api.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/access.h"
#include "client/src/connection_impl.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/wire/handshake.h"

#define VERBENA_TEXT_OF(number) #number
#define VERBENA_TEXT(number) VERBENA_TEXT_OF(number)

namespace verbena::c_api {
namespace {

static_assert(VERBENA_PROTOCOL_VERSION == wire::kProtocolVersion,
              "verbena/version.h names another protocol than the library speaks");

constexpr bool Same(verbena_code status, absl::StatusCode code) {
  return static_cast<int>(status) == static_cast<int>(code);
}
static_assert(Same(VERBENA_OK, absl::StatusCode::kOk) &&
              Same(VERBENA_CANCELLED, absl::StatusCode::kCancelled) &&
              Same(VERBENA_UNKNOWN, absl::StatusCode::kUnknown) &&
              Same(VERBENA_INVALID_ARGUMENT, absl::StatusCode::kInvalidArgument) &&
              Same(VERBENA_DEADLINE_EXCEEDED, absl::StatusCode::kDeadlineExceeded) &&
              Same(VERBENA_NOT_FOUND, absl::StatusCode::kNotFound) &&
              Same(VERBENA_ALREADY_EXISTS, absl::StatusCode::kAlreadyExists) &&
              Same(VERBENA_PERMISSION_DENIED, absl::StatusCode::kPermissionDenied) &&
              Same(VERBENA_RESOURCE_EXHAUSTED, absl::StatusCode::kResourceExhausted) &&
              Same(VERBENA_FAILED_PRECONDITION, absl::StatusCode::kFailedPrecondition) &&
              Same(VERBENA_ABORTED, absl::StatusCode::kAborted) &&
              Same(VERBENA_OUT_OF_RANGE, absl::StatusCode::kOutOfRange) &&
              Same(VERBENA_UNIMPLEMENTED, absl::StatusCode::kUnimplemented) &&
              Same(VERBENA_INTERNAL, absl::StatusCode::kInternal) &&
              Same(VERBENA_UNAVAILABLE, absl::StatusCode::kUnavailable) &&
              Same(VERBENA_DATA_LOSS, absl::StatusCode::kDataLoss));

// The first version of the struct. Members are added at the end, and leave no padding there, since
// a program's later member would lie in it and not be noticed.
constexpr size_t kFirstOptionsSize =
    offsetof(verbena_options, reconnect) + sizeof(verbena_options::reconnect);
static_assert(sizeof(verbena_options) == kFirstOptionsSize);

// Both consist of counters of 64 bits, so this holds until one has a counter that the other lacks.
static_assert(sizeof(verbena_statistics) == sizeof(ConnectionStats),
              "verbena_statistics lacks a counter: see verbena_get_statistics");

verbena_options Defaults() {
  static const char* const kFabric = "auto";
  const Options from;
  verbena_options to{};
  to.fabric = kFabric;
  to.connect_timeout_ms = from.connect_timeout.count();
  to.operation_timeout_ms = from.operation_timeout.count();
  to.cache_bytes = from.cache_bytes;
  to.poll_time_us = from.poll_time.count();
  to.depth = from.depth;
  to.one_sided_reads = from.one_sided_reads ? 1 : 0;
  to.tos = from.tos.has_value() ? static_cast<int32_t>(*from.tos) : -1;
  to.ack_timeout = from.ack_timeout;
  to.retry_count = from.retry_count;
  to.rnr_timer = from.rnr_timer;
  to.preload = from.preload ? 1 : 0;
  to.reconnect = from.reconnect ? 1 : 0;
  return to;
}

// The part of a caller's struct that this library knows, over the defaults.
absl::StatusOr<verbena_options> Known(const verbena_options* given) {
  verbena_options options = Defaults();
  if (given == nullptr) return options;
  if (given->size < kFirstOptionsSize) {
    return absl::InvalidArgumentError(absl::StrCat("verbena_options::size is ", given->size,
                                                   "; begin with verbena_options_init"));
  }
  std::memcpy(&options, given, std::min(given->size, sizeof options));
  const auto* bytes = reinterpret_cast<const char*>(given);
  for (size_t i = sizeof options; i < given->size; ++i) {
    if (bytes[i] != 0) {
      return absl::InvalidArgumentError(
          "verbena_options has a member set that this version of the library does not know "
          "(" VERBENA_TEXT(VERBENA_VERSION_MAJOR) "." VERBENA_TEXT(VERBENA_VERSION_MINOR) ")");
    }
  }
  return options;
}

absl::Status CheckFlag(uint32_t value, const char* name) {
  if (value <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be 0 or 1"));
}

}  // namespace

absl::StatusOr<Options> OptionsFrom(const verbena_options* given) {
  VERBENA_ASSIGN_OR_RETURN(const verbena_options from, Known(given));
  Options to;
  if (from.fabric == nullptr) {
    return absl::InvalidArgumentError(
        "verbena_options::fabric is NULL; begin with "
        "verbena_options_init");
  }
  if (from.tos < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("verbena_options::tos is ", from.tos, "; it must be -1 to 255"));
  }
  VERBENA_RETURN_IF_ERROR(CheckFlag(from.one_sided_reads, "verbena_options::one_sided_reads"));
  VERBENA_RETURN_IF_ERROR(CheckFlag(from.preload, "verbena_options::preload"));
  VERBENA_RETURN_IF_ERROR(CheckFlag(from.reconnect, "verbena_options::reconnect"));
  to.fabric = from.fabric;
  to.connect_timeout = std::chrono::milliseconds(from.connect_timeout_ms);
  to.operation_timeout = std::chrono::milliseconds(from.operation_timeout_ms);
  to.cache_bytes = from.cache_bytes;
  to.poll_time = std::chrono::microseconds(from.poll_time_us);
  to.depth = from.depth;
  to.one_sided_reads = from.one_sided_reads != 0;
  if (from.tos >= 0) to.tos = static_cast<uint32_t>(from.tos);
  to.ack_timeout = from.ack_timeout;
  to.retry_count = from.retry_count;
  to.rnr_timer = from.rnr_timer;
  to.preload = from.preload != 0;
  to.reconnect = from.reconnect != 0;
  return to;
}

namespace {

absl::StatusOr<std::unique_ptr<verbena_connection>> Connect(const char* server,
                                                            const verbena_options* options) {
  if (server == nullptr) return absl::InvalidArgumentError("the server's address is NULL");
  VERBENA_ASSIGN_OR_RETURN(const Options converted, OptionsFrom(options));
  auto handle = std::make_unique<verbena_connection>();
  VERBENA_ASSIGN_OR_RETURN(handle->connection, Connection::Connect(server, converted));
  handle->fabric = handle->connection->fabric();
  handle->device = handle->connection->device();
  return handle;
}

}  // namespace

bool Forked(Connection& connection) noexcept { return client::Access::ImplOf(connection).forked(); }

void CopyText(std::string_view text, char* to, size_t capacity) noexcept {
  if (to == nullptr || capacity == 0) return;
  const size_t size = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

void* Duplicate(std::string_view value) noexcept {
  auto* copy = static_cast<char*>(std::malloc(value.size() + 1));
  if (copy == nullptr) return nullptr;
  if (!value.empty()) std::memcpy(copy, value.data(), value.size());
  copy[value.size()] = '\0';
  return copy;
}

CallOptions CallOptionsOf(const verbena_connection& handle) { return {.timeout = handle.timeout}; }

verbena_code CodeOf(const absl::Status& status) { return static_cast<verbena_code>(status.code()); }

verbena_code Record(verbena_connection& handle, const absl::Status& status) noexcept {
  if (!status.ok()) {
    SetError(handle, {status.message().data(), status.message().size()});
    handle.outcome_unknown = OutcomeUnknown(status);
  }
  return CodeOf(status);
}

void SetError(verbena_connection& handle, std::string_view text) noexcept {
  handle.outcome_unknown = false;
  try {
    handle.error.assign(text);
  } catch (const std::bad_alloc&) {
    handle.error.clear();
  }
}

absl::StatusOr<std::string_view> BytesFrom(const void* bytes, size_t size, const char* name) {
  if (bytes == nullptr && size > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name, " is NULL, but its size is ", size));
  }
  return std::string_view(static_cast<const char*>(bytes), size);
}

absl::Status CheckReserved(std::span<const uint64_t> words, const char* name) {
  for (const uint64_t word : words) {
    if (word != 0) {
      return absl::InvalidArgumentError(absl::StrCat("a reserved member of ", name, " is ", word,
                                                     ", not 0; begin with \"= {0}\""));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Condition> ConditionFrom(const verbena_condition* condition) {
  if (condition == nullptr) return Condition{};
  VERBENA_RETURN_IF_ERROR(CheckReserved(condition->reserved, "verbena_condition"));
  switch (condition->kind) {
    case VERBENA_ALWAYS:
      return Condition{};
    case VERBENA_IF_ABSENT:
      return Condition::IfAbsent();
    case VERBENA_IF_PRESENT:
      return Condition::IfPresent();
    case VERBENA_IF_VERSION:
      return Condition::IfVersion(condition->version);
  }
  return absl::InvalidArgumentError(absl::StrCat("verbena_condition::kind is ", condition->kind));
}

absl::StatusOr<ChangeOptions> ChangeOptionsFrom(const verbena_connection& handle,
                                                const verbena_condition* condition) {
  ChangeOptions converted;
  converted.timeout = handle.timeout;
  VERBENA_ASSIGN_OR_RETURN(converted.condition, ConditionFrom(condition));
  return converted;
}

absl::StatusOr<ScanRange> RangeFrom(const verbena_scan_range& range) {
  ScanRange converted;
  VERBENA_ASSIGN_OR_RETURN(converted.start, BytesFrom(range.start, range.start_size, "start"));
  VERBENA_ASSIGN_OR_RETURN(converted.prefix, BytesFrom(range.prefix, range.prefix_size, "prefix"));
  VERBENA_RETURN_IF_ERROR(CheckFlag(range.after, "verbena_scan_range::after"));
  VERBENA_RETURN_IF_ERROR(CheckFlag(range.keys_only, "verbena_scan_range::keys_only"));
  converted.after = range.after != 0;
  converted.keys_only = range.keys_only != 0;
  VERBENA_RETURN_IF_ERROR(CheckReserved(range.reserved, "verbena_scan_range"));
  return converted;
}

absl::StatusOr<PutOptions> PutOptionsFrom(const verbena_connection& handle,
                                          const verbena_put_options* options) {
  PutOptions converted;
  converted.timeout = handle.timeout;
  if (options == nullptr) return converted;
  VERBENA_ASSIGN_OR_RETURN(converted.condition, ConditionFrom(&options->condition));
  if (options->ttl_ms != 0) converted.ttl = std::chrono::milliseconds(options->ttl_ms);
  VERBENA_RETURN_IF_ERROR(CheckReserved(options->reserved, "verbena_put_options"));
  return converted;
}

verbena_change ChangeFrom(const absl::Status& status, const ChangeResult& result) {
  verbena_change change{};
  change.version = result.version;
  change.number = result.number;
  change.existed = result.existed ? 1 : 0;
  change.outcome_unknown = OutcomeUnknown(status) ? 1 : 0;
  return change;
}

}  // namespace verbena::c_api

using verbena::ConnectionStats;
using verbena::c_api::Call;
using verbena::c_api::Waits;

const char* verbena_code_string(int status) {
  switch (status) {
    case VERBENA_OK:
      return "OK";
    case VERBENA_CANCELLED:
      return "cancelled";
    case VERBENA_UNKNOWN:
      return "unknown error";
    case VERBENA_INVALID_ARGUMENT:
      return "invalid argument";
    case VERBENA_DEADLINE_EXCEEDED:
      return "deadline exceeded";
    case VERBENA_NOT_FOUND:
      return "not found";
    case VERBENA_ALREADY_EXISTS:
      return "already exists";
    case VERBENA_PERMISSION_DENIED:
      return "permission denied";
    case VERBENA_RESOURCE_EXHAUSTED:
      return "resource exhausted";
    case VERBENA_FAILED_PRECONDITION:
      return "failed precondition";
    case VERBENA_ABORTED:
      return "aborted: the key has another version";
    case VERBENA_OUT_OF_RANGE:
      return "out of range";
    case VERBENA_UNIMPLEMENTED:
      return "unimplemented";
    case VERBENA_INTERNAL:
      return "internal error";
    case VERBENA_UNAVAILABLE:
      return "unavailable";
    case VERBENA_DATA_LOSS:
      return "data loss";
    case VERBENA_BUFFER_TOO_SMALL:
      return "buffer too small";
  }
  return "no code of this version";
}

const char* verbena_version(void) {
  return VERBENA_TEXT(VERBENA_VERSION_MAJOR) "." VERBENA_TEXT(
      VERBENA_VERSION_MINOR) "." VERBENA_TEXT(VERBENA_VERSION_PATCH);
}
uint32_t verbena_version_number(void) { return VERBENA_VERSION_NUMBER; }

void verbena_options_init(verbena_options* options, size_t size) {
  if (options == nullptr || size < sizeof options->size) return;
  const verbena_options defaults = verbena::c_api::Defaults();
  std::memset(options, 0, size);
  std::memcpy(options, &defaults, std::min(size, sizeof defaults));
  options->size = size;
}

verbena_code verbena_connect(const char* server, const verbena_options* options,
                             verbena_connection** connection, char* error, size_t error_size) {
  if (connection == nullptr) {
    verbena::c_api::CopyText("the place for the connection is NULL", error, error_size);
    return VERBENA_INVALID_ARGUMENT;
  }
  *connection = nullptr;
  return verbena::c_api::Guarded(error, error_size, [&]() -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(auto handle, verbena::c_api::Connect(server, options));
    *connection = handle.release();
    return absl::OkStatus();
  });
}

void verbena_close(verbena_connection* connection) {
  if (connection == nullptr) return;
  if (connection->owner != nullptr) {
    verbena::c_api::SetError(*connection,
                             "verbena_close was called with a connection that a client has lent, "
                             "and did nothing: give it back with verbena_client_return");
    return;
  }
  // The call that runs the callback still uses the handle.
  if (connection->in_callback || connection->scans > 0) {
    verbena::c_api::SetError(*connection,
                             "verbena_close was called within a callback, and did nothing: close "
                             "the connection when the call has returned that runs the callback");
    return;
  }
  // Callbacks of what is in flight use the handle and its connection, to submit more, say, so both
  // stay until the callbacks have run.
  verbena::c_api::Wholly([connection] {
    connection->connection->Close();
    delete connection;
  });
}

const char* verbena_error_text(const verbena_connection* connection) {
  return connection == nullptr ? "the connection is NULL" : connection->error.c_str();
}

int verbena_outcome_unknown(const verbena_connection* connection) {
  return connection != nullptr && connection->outcome_unknown ? 1 : 0;
}

verbena_code verbena_connection_status(verbena_connection* connection) {
  return Call(connection, Waits::kNo, [](verbena::Connection& of) { return of.status(); });
}

verbena_code verbena_set_timeout(verbena_connection* connection, int64_t timeout_ms) {
  return Call(connection, Waits::kNo, [&](verbena::Connection&) -> absl::Status {
    constexpr int64_t kMost = int64_t{366} * 24 * 3600 * 1000;
    if (timeout_ms < 0 || timeout_ms > kMost) {
      return absl::InvalidArgumentError(absl::StrCat("the timeout is ", timeout_ms,
                                                     " ms; it must be 1 to ", kMost,
                                                     ", or 0 for none of its own"));
    }
    connection->timeout.reset();
    if (timeout_ms != 0) connection->timeout = std::chrono::milliseconds(timeout_ms);
    return absl::OkStatus();
  });
}

void verbena_free(void* memory) { std::free(memory); }

verbena_code verbena_ping(verbena_connection* connection) {
  return Call(connection, Waits::kYes, [connection](verbena::Connection& to) {
    return to.Ping(verbena::c_api::CallOptionsOf(*connection));
  });
}

verbena_code verbena_info(verbena_connection* connection, char** json) {
  if (json != nullptr) *json = nullptr;
  return Call(connection, Waits::kYes, [&](verbena::Connection& from) -> absl::Status {
    if (json == nullptr) return absl::InvalidArgumentError("the place for the text is NULL");
    VERBENA_ASSIGN_OR_RETURN(const std::string text,
                             from.Info(verbena::c_api::CallOptionsOf(*connection)));
    *json = strdup(text.c_str());
    if (*json == nullptr) throw std::bad_alloc();
    return absl::OkStatus();
  });
}

const char* verbena_fabric(const verbena_connection* connection) {
  return connection == nullptr ? "" : connection->fabric.c_str();
}
// Another connection may have another device.
const char* verbena_device(const verbena_connection* connection) {
  if (connection == nullptr) return "";
  try {
    std::string now = connection->connection->device();
    if (now != connection->device) connection->device = std::move(now);
  } catch (const std::bad_alloc&) {  // the one before
  }
  return connection->device.c_str();
}
uint64_t verbena_server_epoch(const verbena_connection* connection) {
  return connection == nullptr ? 0 : connection->connection->server_epoch();
}

verbena_code verbena_get_limits(verbena_connection* connection, verbena_limits* limits) {
  return Call(connection, Waits::kNo, [limits](verbena::Connection& of) -> absl::Status {
    if (limits == nullptr) return absl::InvalidArgumentError("the place for the limits is NULL");
    *limits = {};
    limits->max_key_size = of.limits().max_key_size;
    limits->max_value_size = of.limits().max_value_size;
    limits->eager_limit = of.limits().eager_limit;
    limits->window = of.limits().window;
    return absl::OkStatus();
  });
}

verbena_code verbena_get_statistics(verbena_connection* connection, verbena_statistics* statistics,
                                    size_t size) {
  return Call(connection, Waits::kNo, [statistics, size](verbena::Connection& of) -> absl::Status {
    if (statistics == nullptr) {
      return absl::InvalidArgumentError("the place for the statistics is NULL");
    }
    const ConnectionStats& from = of.stats();
    verbena_statistics to{};
    to.gets = from.gets;
    to.changes = from.changes;
    to.reads = from.reads;
    to.read_retries = from.read_retries;
    to.rpc_gets = from.rpc_gets;
    to.pinned_gets = from.pinned_gets;
    to.cache_hits = from.cache_hits;
    to.cache_stale = from.cache_stale;
    to.cache_misses = from.cache_misses;
    to.directory_reads = from.directory_reads;
    to.sends = from.sends;
    to.doorbells = from.doorbells;
    to.bytes_read = from.bytes_read;
    to.bytes_sent = from.bytes_sent;
    to.gets_without_copy = from.gets_without_copy;
    to.gets_copied = from.gets_copied;
    to.puts_without_copy = from.puts_without_copy;
    to.reconnects = from.reconnects;
    to.completions = from.completions;
    std::memset(statistics, 0, size);
    std::memcpy(statistics, &to, std::min(size, sizeof to));
    return absl::OkStatus();
  });
}
