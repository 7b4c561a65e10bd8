/// \file
/// The C API of Verbena's client: for C11, and for languages that call C.
///
///     char error[256];
///     verbena_connection* connection = NULL;
///     if (verbena_connect("127.0.0.1:7400", NULL, &connection, error, sizeof error) != VERBENA_OK)
///       return fail(error);
///     verbena_put(connection, "key", 3, "value", 5, NULL, NULL);
///     char value[100];
///     size_t size = 0;
///     verbena_code code = verbena_get(connection, "key", 3, value, sizeof value, &size, NULL);
///     verbena_close(connection);
///
/// What operations mean is told at the C++ API that is underneath (verbena/connection.h). A key or
/// a value is a pointer and a number of bytes, any bytes; a pointer to no bytes may be NULL. Where
/// a result is not wanted its pointer may be NULL, unless something else is said.
///
/// Errors: functions return a verbena_code. verbena_error_text tells more about the connection's
/// last error: what failed, the value, what to do. verbena_outcome_unknown, and the member of that
/// name of verbena_change, tell whether an error leaves open if a change was made.
///
/// Threads: a connection is used by one thread at a time (another one may go on with it later);
/// different connections are independent. verbena_error_text is part of this: the text belongs to
/// the connection and is the one of the thread that uses it.
///
/// Growth: structs that you fill begin with zeros for "nothing special" ("= {0}") and have reserved
/// members, which must be zero, else VERBENA_INVALID_ARGUMENT; verbena_options and
/// verbena_statistics carry their size. So they can grow without a program being compiled anew.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "verbena/export.h"
#include "verbena/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The numbers never change; new ones may come: treat one that you do not know as an error.
typedef enum verbena_code {
  VERBENA_OK = 0,
  VERBENA_CANCELLED = 1,           ///< the connection was closed with the operation in flight
  VERBENA_UNKNOWN = 2,             ///< nothing is known
  VERBENA_INVALID_ARGUMENT = 3,    ///< empty or oversized key, oversized value, NULL, wrong option
  VERBENA_DEADLINE_EXCEEDED = 4,   ///< no answer in time; a change may have been made
  VERBENA_NOT_FOUND = 5,           ///< there is no such key
  VERBENA_ALREADY_EXISTS = 6,      ///< the key is there, against the condition
  VERBENA_PERMISSION_DENIED = 7,   ///< no permission for the adapter, or to lock memory
  VERBENA_RESOURCE_EXHAUSTED = 8,  ///< server or process out of memory, or depth reached
  VERBENA_FAILED_PRECONDITION =
      9,                          ///< not a number (add); refused by the server; within a callback
  VERBENA_ABORTED = 10,           ///< the key has another version, against the condition
  VERBENA_OUT_OF_RANGE = 11,      ///< the sum does not fit 64 bits
  VERBENA_UNIMPLEMENTED = 12,     ///< the server does not do this (scan without its index)
  VERBENA_INTERNAL = 13,          ///< a defect: please report
  VERBENA_UNAVAILABLE = 14,       ///< server unreachable or gone; a change may have been made
  VERBENA_DATA_LOSS = 15,         ///< a defect: please report
  VERBENA_BUFFER_TOO_SMALL = 100  ///< the value does not fit the buffer; its size is told
} verbena_code;

/// "not found". Never NULL; for a number that is no code it says so. Thread-safe.
VERBENA_EXPORT const char* verbena_code_string(verbena_code status);

/// Of the library that the program runs with: "0.1.0", and the number that
/// VERBENA_VERSION_NUMBER has there. Thread-safe.
VERBENA_EXPORT const char* verbena_version(void);
VERBENA_EXPORT uint32_t verbena_version_number(void);

/// How to connect and behave: verbena/options.h explains each member. Always begins with
/// verbena_options_init(&options, sizeof options), which sets the defaults.
typedef struct verbena_options {
  size_t size;         ///< of the struct that the program was compiled with
  const char* fabric;  ///< "auto", "verbs" or "soft"; read during verbena_connect only
  int64_t connect_timeout_ms;
  int64_t operation_timeout_ms;
  uint64_t cache_bytes;
  int64_t poll_time_us;
  uint32_t depth;
  uint32_t one_sided_reads;  ///< 0 or 1
  int32_t tos;               ///< 0 to 255; -1: as the system is configured
  uint32_t ack_timeout;
  uint32_t retry_count;
  uint32_t rnr_timer;
  uint32_t preload;    ///< 0 or 1
  uint32_t reconnect;  ///< 0 or 1
} verbena_options;

VERBENA_EXPORT void verbena_options_init(verbena_options* options, size_t size);

typedef struct verbena_connection verbena_connection;

/// Connects to "ADDR:PORT". `options` may be NULL. On an error *connection is NULL and, if `error`
/// is not NULL, a text is written to it: at most `error_size` bytes with the final zero.
VERBENA_EXPORT verbena_code verbena_connect(const char* server, const verbena_options* options,
                                            verbena_connection** connection, char* error,
                                            size_t error_size);
/// Calls the callback of each operation in flight with VERBENA_CANCELLED, disconnects and frees.
/// NULL is allowed. Within a callback, those of verbena_close and verbena_scan too, it does nothing
/// but leave a text for verbena_error_text: close when the call has returned that runs the
/// callback.
VERBENA_EXPORT void verbena_close(verbena_connection* connection);

/// What the last error on this connection was, "" if there was none; valid until the next call with
/// the connection. A function that succeeds leaves it as it was.
VERBENA_EXPORT const char* verbena_error_text(const verbena_connection* connection);
/// 1 if the error that verbena_error_text tells leaves open whether the change was made (see
/// verbena::OutcomeUnknown): it was sent, and its answer did not come. Else 0, for NULL too. In a
/// callback with an error it is about the callback's operation.
VERBENA_EXPORT int verbena_outcome_unknown(const verbena_connection* connection);
/// VERBENA_OK, or why the connection is dead, since it cannot be made again (the server has another
/// version, say): close it and connect anew.
VERBENA_EXPORT verbena_code verbena_connection_status(verbena_connection* connection);

/// Frees what a function has allocated for the caller. NULL is allowed. Thread-safe.
VERBENA_EXPORT void verbena_free(void* memory);

// GET.

/// Copies the value to `buffer` of `capacity` bytes. *value_size is the value's size, also with
/// VERBENA_BUFFER_TOO_SMALL, where nothing is copied; with other errors it is 0.
VERBENA_EXPORT verbena_code verbena_get(verbena_connection* connection, const void* key,
                                        size_t key_size, void* buffer, size_t capacity,
                                        size_t* value_size, uint64_t* version);
/// *value is allocated, with a zero byte behind it that does not count: verbena_free it. NULL on
/// errors.
VERBENA_EXPORT verbena_code verbena_get_alloc(verbena_connection* connection, const void* key,
                                              size_t key_size, void** value, size_t* value_size,
                                              uint64_t* version);

// Changes.

/// What must hold of a key for a change to be made; the server judges it and makes the change in
/// one step.
typedef enum verbena_condition_kind {
  VERBENA_ALWAYS = 0,
  VERBENA_IF_ABSENT = 1,
  VERBENA_IF_PRESENT = 2,
  VERBENA_IF_VERSION = 3
} verbena_condition_kind;

typedef struct verbena_condition {
  verbena_condition_kind kind;
  uint64_t version;  ///< VERBENA_IF_VERSION: of a GET or of an earlier change
  uint64_t reserved[2];
} verbena_condition;

typedef struct verbena_put_options {
  verbena_condition condition;
  int64_t ttl_ms;  ///< how long the key stays; 0: for ever
  uint64_t reserved[4];
} verbena_put_options;

/// What a change did. With an error that a condition, or the key as it is, has caused, `version` is
/// the version that is there; 0: there is no such key.
typedef struct verbena_change {
  uint64_t version;  ///< of the key after the change
  int64_t number;    ///< after verbena_add: the sum
  uint32_t existed;  ///< 1 if the key was there before (verbena_expire, _persist: had a time)
  uint32_t outcome_unknown;  ///< 1: an error that leaves open whether the change was made
  uint64_t reserved[2];
} verbena_change;

/// `options` and `change` may be NULL.
VERBENA_EXPORT verbena_code verbena_put(verbena_connection* connection, const void* key,
                                        size_t key_size, const void* value, size_t value_size,
                                        const verbena_put_options* options, verbena_change* change);
/// `condition` NULL: none. Of conditions only VERBENA_IF_VERSION is allowed here.
VERBENA_EXPORT verbena_code verbena_delete(verbena_connection* connection, const void* key,
                                           size_t key_size, const verbena_condition* condition,
                                           verbena_change* change);
/// Adds to a number that is stored as decimal text; an absent key counts as 0.
VERBENA_EXPORT verbena_code verbena_add(verbena_connection* connection, const void* key,
                                        size_t key_size, int64_t summand,
                                        const verbena_condition* condition, verbena_change* change);
/// Puts `suffix` behind the value; an absent key gets it as its value.
VERBENA_EXPORT verbena_code verbena_append(verbena_connection* connection, const void* key,
                                           size_t key_size, const void* suffix, size_t suffix_size,
                                           const verbena_condition* condition,
                                           verbena_change* change);
/// As verbena_get_alloc, and the key is gone.
VERBENA_EXPORT verbena_code verbena_get_and_delete(verbena_connection* connection, const void* key,
                                                   size_t key_size, void** value,
                                                   size_t* value_size, uint64_t* version);

// Times to live, in milliseconds.
VERBENA_EXPORT verbena_code verbena_expire(verbena_connection* connection, const void* key,
                                           size_t key_size, int64_t ttl_ms, verbena_change* change);
VERBENA_EXPORT verbena_code verbena_persist(verbena_connection* connection, const void* key,
                                            size_t key_size, verbena_change* change);
/// *ttl_ms is -1 if the key stays for ever.
VERBENA_EXPORT verbena_code verbena_ttl(verbena_connection* connection, const void* key,
                                        size_t key_size, int64_t* ttl_ms);

// Several keys at once: as many in flight as verbena_options::depth allows, which is far quicker
// than one after the other.

typedef struct verbena_get_item {
  const void* key;
  size_t key_size;
  void* buffer;  ///< where the value goes
  size_t capacity;
  /// Filled by verbena_multi_get, as verbena_get does.
  size_t value_size;
  uint64_t version;
  verbena_code status;
  uint32_t reserved1;
  uint64_t reserved[2];
} verbena_get_item;

typedef struct verbena_put_item {
  const void* key;
  size_t key_size;
  const void* value;
  size_t value_size;
  const verbena_put_options* options;  ///< NULL: none
  /// Filled by verbena_multi_put.
  verbena_change change;
  verbena_code status;
  uint32_t reserved1;
  uint64_t reserved[2];
} verbena_put_item;

/// VERBENA_OK if each item was answered, whatever its status says (VERBENA_NOT_FOUND, ...); else
/// why the connection is dead. Each item has a status in any case. The order in which they are done
/// is not defined.
VERBENA_EXPORT verbena_code verbena_multi_get(verbena_connection* connection,
                                              verbena_get_item* items, size_t count);
VERBENA_EXPORT verbena_code verbena_multi_put(verbena_connection* connection,
                                              verbena_put_item* items, size_t count);

// Keys in the order of their bytes.

typedef struct verbena_scan_range {
  const void* start;  ///< the first key, which need not exist; of size 0: from the beginning
  size_t start_size;
  const void* prefix;  ///< only keys that begin so
  size_t prefix_size;
  uint32_t after;      ///< 1: begin behind `start`
  uint32_t keys_only;  ///< 1: no values and versions
  uint64_t reserved[2];
} verbena_scan_range;

typedef struct verbena_item {
  const void* key;
  size_t key_size;
  const void* value;
  size_t value_size;
  uint64_t version;
} verbena_item;

/// `item` is valid during the call. 0: go on; anything else: that is enough.
typedef int (*verbena_scan_callback)(void* context, const verbena_item* item);

/// Hands the keys of the range (NULL: all keys) to `callback`, at most `limit` of them (0: no
/// limit). No snapshot: keys that come or go meanwhile may be in it or not. The callback may use
/// the connection, but not close it.
VERBENA_EXPORT verbena_code verbena_scan(verbena_connection* connection,
                                         const verbena_scan_range* range, uint64_t limit,
                                         verbena_scan_callback callback, void* context);

// The server and the connection.

VERBENA_EXPORT verbena_code verbena_ping(verbena_connection* connection);
/// *json is an allocated text: verbena_free it. NULL on errors.
VERBENA_EXPORT verbena_code verbena_info(verbena_connection* connection, char** json);

/// "verbs" or "soft", and the device's name; valid until the connection is closed. "" for NULL.
VERBENA_EXPORT const char* verbena_fabric(const verbena_connection* connection);
VERBENA_EXPORT const char* verbena_device(const verbena_connection* connection);
/// The server's incarnation; another one has other data. 0 for NULL.
VERBENA_EXPORT uint64_t verbena_server_epoch(const verbena_connection* connection);

/// In bytes, but for `window`: requests that may be unanswered at once.
typedef struct verbena_limits {
  uint64_t max_key_size;
  uint64_t max_value_size;
  uint64_t eager_limit;
  uint64_t window;
  uint64_t reserved[4];
} verbena_limits;

VERBENA_EXPORT verbena_code verbena_get_limits(verbena_connection* connection,
                                               verbena_limits* limits);

/// Counters since the connection was made: verbena::ConnectionStats explains them.
typedef struct verbena_statistics {
  uint64_t gets;
  uint64_t changes;
  uint64_t reads;
  uint64_t read_retries;
  uint64_t rpc_gets;
  uint64_t pinned_gets;
  uint64_t cache_hits;
  uint64_t cache_stale;
  uint64_t cache_misses;
  uint64_t directory_reads;
  uint64_t sends;
  uint64_t doorbells;
  uint64_t bytes_read;
  uint64_t bytes_sent;
  uint64_t gets_without_copy;
  uint64_t gets_copied;
  uint64_t puts_without_copy;
  uint64_t reconnects;
} verbena_statistics;

/// `size` is sizeof *statistics; members that this library does not have are 0.
VERBENA_EXPORT verbena_code verbena_get_statistics(verbena_connection* connection,
                                                   verbena_statistics* statistics, size_t size);

// Asynchronous operations: up to verbena_options::depth in flight, one more is refused with
// VERBENA_RESOURCE_EXHAUSTED. Where a submission has returned VERBENA_OK its callback is called
// once, by verbena_poll, verbena_wait, verbena_drain, verbena_close or a function that waits. A
// callback may submit more; a function that waits returns VERBENA_FAILED_PRECONDITION there.
//
// Key and value are copied, except that a value over verbena_limits::eager_limit must stay until
// the callback.

/// `value` is valid during the call; NULL and 0 on errors.
typedef void (*verbena_get_callback)(void* context, verbena_code status, const void* value,
                                     size_t value_size, uint64_t version);
typedef void (*verbena_change_callback)(void* context, verbena_code status,
                                        const verbena_change* change);

VERBENA_EXPORT verbena_code verbena_submit_get(verbena_connection* connection, const void* key,
                                               size_t key_size, verbena_get_callback callback,
                                               void* context);
VERBENA_EXPORT verbena_code verbena_submit_put(verbena_connection* connection, const void* key,
                                               size_t key_size, const void* value,
                                               size_t value_size,
                                               const verbena_put_options* options,
                                               verbena_change_callback callback, void* context);
VERBENA_EXPORT verbena_code verbena_submit_delete(verbena_connection* connection, const void* key,
                                                  size_t key_size,
                                                  const verbena_condition* condition,
                                                  verbena_change_callback callback, void* context);
VERBENA_EXPORT verbena_code verbena_submit_add(verbena_connection* connection, const void* key,
                                               size_t key_size, int64_t summand,
                                               const verbena_condition* condition,
                                               verbena_change_callback callback, void* context);
VERBENA_EXPORT verbena_code verbena_submit_append(verbena_connection* connection, const void* key,
                                                  size_t key_size, const void* suffix,
                                                  size_t suffix_size,
                                                  const verbena_condition* condition,
                                                  verbena_change_callback callback, void* context);

/// Sends what was submitted and runs the callbacks of what has completed; never blocks. The number
/// of callbacks run; -1 within a callback or for NULL.
VERBENA_EXPORT int verbena_poll(verbena_connection* connection);
/// The same, but waits for at least one callback, until nothing is in flight or the time is over.
VERBENA_EXPORT int verbena_wait(verbena_connection* connection, int64_t timeout_us);
/// Waits until nothing is in flight.
VERBENA_EXPORT verbena_code verbena_drain(verbena_connection* connection);
VERBENA_EXPORT size_t verbena_in_flight(const verbena_connection* connection);

/// For event loops: a descriptor that is readable when there may be something to do, the same for
/// the connection's whole life; only wait on it. It works if verbena_poll_and_arm was called after
/// any other call on this connection, before the loop waits. -1 for NULL.
VERBENA_EXPORT int verbena_event_fd(const verbena_connection* connection);
/// verbena_poll until there is nothing left to do for now; then verbena_event_fd's descriptor
/// becomes readable when there is again, deadlines included.
VERBENA_EXPORT int verbena_poll_and_arm(verbena_connection* connection);

#ifdef __cplusplus
}  // extern "C"
#endif
