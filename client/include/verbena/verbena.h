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
/// the connection and is the one of the thread that uses it. A library that was built with
/// assertions (a debug build) notices two threads that are in one connection at once, and ends the
/// process with a message; others do not look. For many threads see verbena_client.
///
/// Growth: structs that you fill begin with zeros for "nothing special" ("= {0}") and have reserved
/// members, which must be zero, else VERBENA_INVALID_ARGUMENT; verbena_options and
/// verbena_statistics carry their size. So they can grow without a program being compiled anew.
/// What you choose of an enumeration is an int there, since any number may come; a verbena_code in
/// a struct is the library's to fill, and has the size of an int.
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

/// "not found", of a verbena_code. Never NULL; for a number that is no code it says so.
/// Thread-safe.
VERBENA_EXPORT const char* verbena_code_string(int status);

/// Of the library that the program runs with: as "0.2.0", and the number that
/// VERBENA_VERSION_NUMBER has there. Thread-safe.
VERBENA_EXPORT const char* verbena_version(void);
/// The same as a number.
VERBENA_EXPORT uint32_t verbena_version_number(void);

/// How to connect and behave: verbena/options.h explains each member. Always begins with
/// verbena_options_init(&options, sizeof options), which sets the defaults.
typedef struct verbena_options {
  size_t size;         ///< of the struct that the program was compiled with
  const char* fabric;  ///< "auto", "verbs" or "soft"; read during verbena_connect only
  /// @{ As in verbena::Options.
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
  /// @}
} verbena_options;

/// Sets all members that a struct of `size` bytes has to their defaults.
VERBENA_EXPORT void verbena_options_init(verbena_options* options, size_t size);

/// A connection to a server, for one thread at a time.
typedef struct verbena_connection verbena_connection;

/// Connects to "ADDR:PORT", or "NAME:PORT" (verbena::Connection::Connect). `options` may be NULL.
/// On an error *connection is NULL and, if `error` is not NULL, a text is written to it: at most
/// `error_size` bytes with the final zero.
VERBENA_EXPORT verbena_code verbena_connect(const char* server, const verbena_options* options,
                                            verbena_connection** connection, char* error,
                                            size_t error_size);
/// Calls the callback of each operation in flight with VERBENA_CANCELLED, disconnects and frees.
/// NULL is allowed. Within a callback, those of verbena_close and verbena_scan too, it does nothing
/// but leave a text for verbena_error_text: close when the call has returned that runs the
/// callback. The same with a connection that a verbena_client has lent.
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

/// How long each later call with this connection may take, and each operation that is submitted
/// from now on, in place of verbena_options::operation_timeout_ms (whose meaning it has: a short
/// one costs the connection); 0: as that says. A call about several keys has it as a whole
/// (verbena::Connection::MultiGet says how), a scan for each step.
VERBENA_EXPORT verbena_code verbena_set_timeout(verbena_connection* connection, int64_t timeout_ms);

/// Frees what a function has allocated for the caller. NULL is allowed. Thread-safe.
VERBENA_EXPORT void verbena_free(void* memory);

// GET.

/// Copies the value to `buffer` of `capacity` bytes. *value_size is the value's size, also with
/// VERBENA_BUFFER_TOO_SMALL, where nothing is copied; with other errors it is 0.
VERBENA_EXPORT verbena_code verbena_get(verbena_connection* connection, const void* key,
                                        size_t key_size, void* buffer, size_t capacity,
                                        size_t* value_size, uint64_t* version);
/// *value is allocated, with a zero byte behind it that does not count: verbena_free it. NULL on
/// errors. `value` itself must not be NULL.
VERBENA_EXPORT verbena_code verbena_get_alloc(verbena_connection* connection, const void* key,
                                              size_t key_size, void** value, size_t* value_size,
                                              uint64_t* version);

// Memory of the program's into which values are read, and large ones put from, without copies.

/// Stands for memory that is registered with a connection; belongs to the connection's thread.
typedef struct verbena_buffer verbena_buffer;

/// Registers `size` bytes at `memory`, which stay the program's. *buffer is NULL on errors:
/// VERBENA_INVALID_ARGUMENT for no bytes, or if some of them are registered already;
/// VERBENA_RESOURCE_EXHAUSTED if they cannot be registered (memory lock limit, device);
/// VERBENA_UNAVAILABLE while the connection is lost: verbena_poll, or make a call that waits, until
/// there is another one, and try again. See verbena::Connection::RegisterBuffer.
VERBENA_EXPORT verbena_code verbena_register_buffer(verbena_connection* connection, void* memory,
                                                    size_t size, verbena_buffer** buffer);
/// Ends it, once no operation uses the memory any more; also after verbena_close or
/// verbena_client_return, which unregister the memory themselves. NULL is allowed.
VERBENA_EXPORT void verbena_unregister_buffer(verbena_buffer* buffer);
/// As verbena_get, into memory that is registered (else VERBENA_INVALID_ARGUMENT). After an error
/// `target` holds garbage, and behind the value in any case.
VERBENA_EXPORT verbena_code verbena_get_into(verbena_connection* connection, const void* key,
                                             size_t key_size, void* target, size_t capacity,
                                             size_t* value_size, uint64_t* version);

// Changes.

/// What must hold of a key for a change to be made; the server judges it and makes the change in
/// one step.
typedef enum verbena_condition_kind {
  VERBENA_ALWAYS = 0,
  VERBENA_IF_ABSENT = 1,
  VERBENA_IF_PRESENT = 2,
  VERBENA_IF_VERSION = 3
} verbena_condition_kind;

/// Zeros: whatever is there.
typedef struct verbena_condition {
  int kind;              ///< a verbena_condition_kind (an int: other languages, any value)
  uint64_t version;      ///< VERBENA_IF_VERSION: of a GET or of an earlier change
  uint64_t reserved[2];  ///< 0
} verbena_condition;

/// How a put behaves.
typedef struct verbena_put_options {
  verbena_condition condition;  ///< zeros: none
  int64_t ttl_ms;               ///< how long the key stays; 0: for ever
  uint64_t reserved[4];         ///< 0
} verbena_put_options;

/// What a change did. With an error that a condition, or the key as it is, has caused, `version` is
/// the version that is there; 0: there is no such key.
typedef struct verbena_change {
  uint64_t version;  ///< of the key after the change
  int64_t number;    ///< after verbena_add: the sum
  uint32_t existed;  ///< 1 if the key was there before (verbena_expire, _persist: had a time)
  uint32_t outcome_unknown;  ///< 1: an error that leaves open whether the change was made
  uint64_t reserved[2];      ///< 0
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
/// As verbena_get_alloc, and the key is gone; also with VERBENA_RESOURCE_EXHAUSTED "out of memory
/// for the value", where its value is lost. verbena_outcome_unknown tells of other errors whether
/// the key may be gone.
VERBENA_EXPORT verbena_code verbena_get_and_delete(verbena_connection* connection, const void* key,
                                                   size_t key_size, void** value,
                                                   size_t* value_size, uint64_t* version);

// Times to live, in milliseconds.

/// Gives the key a time to live from now. verbena_change::existed: it had one before.
VERBENA_EXPORT verbena_code verbena_expire(verbena_connection* connection, const void* key,
                                           size_t key_size, int64_t ttl_ms, verbena_change* change);
/// Takes the time to live away.
VERBENA_EXPORT verbena_code verbena_persist(verbena_connection* connection, const void* key,
                                            size_t key_size, verbena_change* change);
/// *ttl_ms is -1 if the key stays for ever.
VERBENA_EXPORT verbena_code verbena_ttl(verbena_connection* connection, const void* key,
                                        size_t key_size, int64_t* ttl_ms);

// Several keys at once: as many in flight as verbena_options::depth allows, which is far quicker
// than one after the other.

/// A key to get.
typedef struct verbena_get_item {
  const void* key;       ///< any bytes
  size_t key_size;       ///< bytes
  void* buffer;          ///< where the value goes
  size_t capacity;       ///< bytes
  size_t value_size;     ///< filled, as by verbena_get
  uint64_t version;      ///< filled
  verbena_code status;   ///< filled, as what verbena_get returns
  uint32_t reserved1;    ///< 0
  uint64_t reserved[2];  ///< 0
} verbena_get_item;

/// A key to put.
typedef struct verbena_put_item {
  const void* key;                     ///< any bytes
  size_t key_size;                     ///< bytes
  const void* value;                   ///< any bytes
  size_t value_size;                   ///< bytes
  const verbena_put_options* options;  ///< NULL: none
  verbena_change change;               ///< filled, as by verbena_put
  verbena_code status;                 ///< filled, as what verbena_put returns
  uint32_t reserved1;                  ///< 0
  uint64_t reserved[2];                ///< 0
} verbena_put_item;

/// A key to delete.
typedef struct verbena_delete_item {
  const void* key;                     ///< any bytes
  size_t key_size;                     ///< bytes
  const verbena_condition* condition;  ///< NULL: none
  verbena_change change;               ///< filled, as by verbena_delete
  verbena_code status;                 ///< filled, as what verbena_delete returns
  uint32_t reserved1;                  ///< 0
  uint64_t reserved[2];                ///< 0
} verbena_delete_item;

/// VERBENA_OK if each item succeeded, where an absent key is no error of a get, a delete or a
/// get-and-delete; else the status of the first of them that failed, whose text is the one of
/// verbena_error_text then. Each item has its own status in any case; where the call is refused as
/// a whole (within a callback, say) all have that error, and no item tells what an earlier call has
/// left in it. The order in which they are done is not defined.
VERBENA_EXPORT verbena_code verbena_multi_get(verbena_connection* connection,
                                              verbena_get_item* items, size_t count);
/// The same, for puts.
VERBENA_EXPORT verbena_code verbena_multi_put(verbena_connection* connection,
                                              verbena_put_item* items, size_t count);
/// The same, for deletes.
VERBENA_EXPORT verbena_code verbena_multi_delete(verbena_connection* connection,
                                                 verbena_delete_item* items, size_t count);

/// What a verbena_operation does, as the function of the same name.
typedef enum verbena_operation_kind {
  VERBENA_OP_GET = 1,
  VERBENA_OP_PUT = 2,
  VERBENA_OP_DELETE = 3,
  VERBENA_OP_ADD = 4,
  VERBENA_OP_APPEND = 5,
  VERBENA_OP_GET_AND_DELETE = 6,
  VERBENA_OP_EXPIRE = 7,
  VERBENA_OP_PERSIST = 8
} verbena_operation_kind;

/// One of several operations of any kinds. What its kind has no use for is not looked at.
typedef struct verbena_operation {
  int kind;                     ///< a verbena_operation_kind
  uint32_t reserved1;           ///< 0
  const void* key;              ///< any bytes
  size_t key_size;              ///< bytes
  const void* value;            ///< put, append: any bytes
  size_t value_size;            ///< bytes
  verbena_condition condition;  ///< put, delete, add, append
  int64_t ttl_ms;               ///< put (0: for ever), expire
  int64_t summand;              ///< add
  int64_t timeout_ms;           ///< 0: as verbena_set_timeout says
  /// Filled: get and get-and-delete: the value, allocated as by verbena_get_alloc (verbena_free
  /// it); NULL on errors.
  void* result;
  size_t result_size;  ///< filled: bytes of it
  /// Filled: as by the function; get, get-and-delete: the version and, of errors, outcome_unknown.
  verbena_change change;
  verbena_code status;   ///< filled: as what the function returns
  uint32_t reserved2;    ///< 0
  uint64_t reserved[4];  ///< 0
} verbena_operation;

/// As verbena_multi_get, for operations of any kinds.
VERBENA_EXPORT verbena_code verbena_execute(verbena_connection* connection,
                                            verbena_operation* operations, size_t count);

// Keys in the order of their bytes.

/// Which keys to scan.
typedef struct verbena_scan_range {
  const void* start;     ///< the first key, which need not exist; of size 0: from the beginning
  size_t start_size;     ///< bytes
  const void* prefix;    ///< only keys that begin so
  size_t prefix_size;    ///< bytes
  uint32_t after;        ///< 1: begin behind `start`
  uint32_t keys_only;    ///< 1: no values and versions
  uint64_t reserved[2];  ///< 0
} verbena_scan_range;

/// A key that a scan has found.
typedef struct verbena_item {
  const void* key;       ///< any bytes
  size_t key_size;       ///< bytes
  const void* value;     ///< any bytes
  size_t value_size;     ///< bytes
  uint64_t version;      ///< of the value
  uint64_t reserved[2];  ///< 0; so that arrays of it stay as they are when it grows
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

/// A round trip to the server.
VERBENA_EXPORT verbena_code verbena_ping(verbena_connection* connection);
/// *json is an allocated text: verbena_free it. NULL on errors.
VERBENA_EXPORT verbena_code verbena_info(verbena_connection* connection, char** json);

/// "verbs" or "soft": what carries the connection; valid until it is closed. "" for NULL.
VERBENA_EXPORT const char* verbena_fabric(const verbena_connection* connection);
/// The name of the device that carries it now; valid until this is called again, or the connection
/// is closed.
VERBENA_EXPORT const char* verbena_device(const verbena_connection* connection);
/// The server's incarnation; another one has other data. 0 for NULL.
VERBENA_EXPORT uint64_t verbena_server_epoch(const verbena_connection* connection);

/// In bytes, but for `window`: requests that may be unanswered at once.
typedef struct verbena_limits {
  /// @{ As in verbena::ServerLimits.
  uint64_t max_key_size;
  uint64_t max_value_size;
  uint64_t eager_limit;
  uint64_t window;
  /// @}
  uint64_t reserved[4];  ///< 0
} verbena_limits;

/// What the server named when the connection was last made.
VERBENA_EXPORT verbena_code verbena_get_limits(verbena_connection* connection,
                                               verbena_limits* limits);

/// Counters since the connection was made: verbena::ConnectionStats explains them.
typedef struct verbena_statistics {
  /// @{ As in verbena::ConnectionStats.
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
  uint64_t completions;
  /// @}
} verbena_statistics;

/// `size` is sizeof *statistics; members that this library does not have are 0.
VERBENA_EXPORT verbena_code verbena_get_statistics(verbena_connection* connection,
                                                   verbena_statistics* statistics, size_t size);

// Asynchronous operations: up to verbena_options::depth in flight, one more is refused with
// VERBENA_RESOURCE_EXHAUSTED. Where a submission has returned VERBENA_OK its callback is called
// once, by verbena_poll, verbena_wait, verbena_drain, verbena_close or a function that waits. A
// callback may submit more; a function that waits returns VERBENA_FAILED_PRECONDITION there.
//
// A key, a suffix and a range are copied. A value must stay until the callback, whatever its size.

/// `value` is valid during the call; NULL and 0 on errors.
typedef void (*verbena_get_callback)(void* context, verbena_code status, const void* value,
                                     size_t value_size, uint64_t version);
/// `change` is valid during the call.
typedef void (*verbena_change_callback)(void* context, verbena_code status,
                                        const verbena_change* change);

/// @{ As the function of the same name that waits.
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

VERBENA_EXPORT verbena_code verbena_submit_expire(verbena_connection* connection, const void* key,
                                                  size_t key_size, int64_t ttl_ms,
                                                  verbena_change_callback callback, void* context);
VERBENA_EXPORT verbena_code verbena_submit_persist(verbena_connection* connection, const void* key,
                                                   size_t key_size,
                                                   verbena_change_callback callback, void* context);
VERBENA_EXPORT verbena_code verbena_submit_get_and_delete(verbena_connection* connection,
                                                          const void* key, size_t key_size,
                                                          verbena_get_callback callback,
                                                          void* context);
/// @}
/// As verbena_get_into. `target` is the library's until the callback, whose value is in it; with
/// VERBENA_BUFFER_TOO_SMALL the callback's value is NULL, and its size what the value takes.
VERBENA_EXPORT verbena_code verbena_submit_get_into(verbena_connection* connection, const void* key,
                                                    size_t key_size, void* target, size_t capacity,
                                                    verbena_get_callback callback, void* context);

/// `ttl_ms` is as verbena_ttl sets it: -1 if the key stays for ever, and on errors.
typedef void (*verbena_ttl_callback)(void* context, verbena_code status, int64_t ttl_ms);
/// As verbena_ttl.
VERBENA_EXPORT verbena_code verbena_submit_ttl(verbena_connection* connection, const void* key,
                                               size_t key_size, verbena_ttl_callback callback,
                                               void* context);

/// Nothing but how it has ended.
typedef void (*verbena_ping_callback)(void* context, verbena_code status);
/// As verbena_ping.
VERBENA_EXPORT verbena_code verbena_submit_ping(verbena_connection* connection,
                                                verbena_ping_callback callback, void* context);

/// `json` is valid during the call, with a zero byte behind it that `json_size` does not count; on
/// errors it is NULL, and `json_size` 0.
typedef void (*verbena_info_callback)(void* context, verbena_code status, const char* json,
                                      size_t json_size);
/// As verbena_info.
VERBENA_EXPORT verbena_code verbena_submit_info(verbena_connection* connection,
                                                verbena_info_callback callback, void* context);

/// All that was found, valid during the call; with an error: what was found before.
typedef void (*verbena_scan_ended_callback)(void* context, verbena_code status,
                                            const verbena_item* items, size_t count);
/// As verbena_scan, but the keys are handed over together. It takes up to half of
/// verbena_options::depth for a while, all of which verbena_in_flight counts.
VERBENA_EXPORT verbena_code verbena_submit_scan(verbena_connection* connection,
                                                const verbena_scan_range* range, uint64_t limit,
                                                verbena_scan_ended_callback callback,
                                                void* context);

/// `status` is as verbena_execute returns it; the operations are those of the submission.
typedef void (*verbena_execute_callback)(void* context, verbena_code status,
                                         verbena_operation* operations, size_t count);
/// As verbena_execute. The operations are the library's until the callback, and have their results
/// then; keys and values are copied. It takes as many places of verbena_options::depth as are free,
/// and begins the others as its own end. `timeout_ms` of an operation is for itself.
VERBENA_EXPORT verbena_code verbena_submit_execute(verbena_connection* connection,
                                                   verbena_operation* operations, size_t count,
                                                   verbena_execute_callback callback,
                                                   void* context);

/// Sends what was submitted and runs the callbacks of what has completed; never blocks. The number
/// of callbacks run; -1 within a callback or for NULL.
VERBENA_EXPORT int verbena_poll(verbena_connection* connection);
/// The same, but waits for at least one callback, until nothing is in flight or the time is over; a
/// negative time never is.
VERBENA_EXPORT int verbena_wait(verbena_connection* connection, int64_t timeout_us);
/// Waits until nothing is in flight.
VERBENA_EXPORT verbena_code verbena_drain(verbena_connection* connection);
/// Operations that were submitted and whose callback has not been called. 0 for NULL.
VERBENA_EXPORT size_t verbena_in_flight(const verbena_connection* connection);
/// 1 if verbena_options::depth has room for one operation more, else 0, for NULL too.
VERBENA_EXPORT int verbena_has_room(const verbena_connection* connection);

/// For event loops: a descriptor that is readable when there may be something to do, the same for
/// the connection's whole life; only wait on it. It works if verbena_poll_and_arm was called after
/// any other call on this connection, before the loop waits. -1 for NULL.
VERBENA_EXPORT int verbena_event_fd(const verbena_connection* connection);
/// verbena_poll until there is nothing left to do for now; then verbena_event_fd's descriptor
/// becomes readable when there is again, deadlines included.
VERBENA_EXPORT int verbena_poll_and_arm(verbena_connection* connection);

// For many threads: a client has a number of connections, and lends each to one thread at a time.
//
//     verbena_connection* connection = NULL;
//     if (verbena_client_borrow(client, &connection, error, sizeof error) == VERBENA_OK) {
//       verbena_put(connection, "key", 3, "value", 5, NULL, NULL);
//       verbena_client_return(client, connection);
//     }

/// A number of connections to one server, for many threads.
typedef struct verbena_client verbena_client;

/// Makes `connections` connections (1 to 1024; best as many as there are threads that use the
/// client at once), one after the other, which share one cache of the server's index. Else as
/// verbena_connect.
VERBENA_EXPORT verbena_code verbena_client_connect(const char* server,
                                                   const verbena_options* options,
                                                   uint32_t connections, verbena_client** client,
                                                   char* error, size_t error_size);
/// Waits until every connection has been returned, then disconnects and frees. Not by a thread that
/// has borrowed one, nor within a callback of one, which would wait for itself. Meanwhile other
/// threads may return what they have, and nothing else; nothing may come later. NULL is allowed.
VERBENA_EXPORT void verbena_client_close(verbena_client* client);
/// Lends the calling thread a connection, which it has for itself until verbena_client_return: best
/// for a few calls. Waits, for as long as it takes, if all are lent; so a thread that has one must
/// not borrow another. One that has died is made anew, which may take
/// verbena_options::connect_timeout_ms. On an error *connection is NULL and `error` as
/// verbena_connect writes it. Thread-safe.
VERBENA_EXPORT verbena_code verbena_client_borrow(verbena_client* client,
                                                  verbena_connection** connection, char* error,
                                                  size_t error_size);
/// Waits for what is in flight on the connection and gives it back, by any thread, once; its error
/// text and verbena_set_timeout are as at first then. Memory that was registered with it is
/// unregistered, and verbena_unregister_buffer, at any time and in any thread, only frees its
/// handle. NULL is allowed, and a connection that nobody has borrowed, with which it does nothing:
/// but one that was returned may be another thread's by then, so no call may use it any more.
/// Within a callback, and with a connection of another client, it does nothing but leave a text for
/// verbena_error_text.
VERBENA_EXPORT void verbena_client_return(verbena_client* client, verbena_connection* connection);

#ifdef __cplusplus
}  // extern "C"
#endif
