// A connection to a Verbena server.
//
//   auto connection = verbena::Connection::Connect("127.0.0.1:7400", {});
//   if (!connection.ok()) ...
//   (*connection)->Put("key", "value");
//   std::string value;
//   absl::Status status = (*connection)->Get("key", &value);
//
// GETs are one-sided: the client finds and fetches the value with RDMA READs and the server's CPU
// does nothing. Changes are SENT and applied by the server; when a change returns OK, every GET
// that starts afterwards, on any connection, sees it or a later one.
//
// Synchronous calls (Get, Put, Delete...) wait for one operation. The asynchronous core (Submit...,
// Poll, Wait) keeps up to Options::depth operations in flight; callbacks run inside Poll, Wait or a
// synchronous call, exactly once for every submission that returned OK, in any order. A callback
// may submit further operations; it must not call Poll, Wait or a synchronous call, nor destroy the
// connection.
//
// Errors (absl::Status codes):
//   NotFound            the key is absent (Get; Delete; changes under a condition that wants it)
//   AlreadyExists       the key is there (if absent)
//   InvalidArgument     empty or oversized key, value over the server's limit
//   ResourceExhausted   server out of memory (text says how much), or Options::depth reached
//   Aborted             the key has another version (if version): get it, decide and try again; or,
//                       very rarely, a large value changed each time while it was being read and
//                       the server was keeping too many others for their readers: try again
//   DeadlineExceeded    no answer in time; a change may or may not have been applied
//   Unavailable         server unreachable or gone; a change in flight may or may not be applied
//   FailedPrecondition  the value is not a number (Add); when connecting: versions that do not fit,
//                       refused connection, a device that cannot do it
//   OutOfRange          the sum does not fit 64 bits (Add)
//   PermissionDenied    Connect: no permission on /dev/infiniband, or to lock memory
//   DataLoss, Internal  a defect: please report
// After DeadlineExceeded or Unavailable the connection is dead: connect again.
//
// Thread-safety: one thread at a time. Different connections are independent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verbena/callback.h"
#include "verbena/options.h"

namespace verbena {

// What a GET found. `value` is valid only during the callback.
struct GetResult {
  std::string_view value;
  uint64_t version = 0;  // grows with every change of the key
};

// What must hold of a key for a change to be made. The server judges it and makes the change in one
// step: no other change of the key comes between. Plain value; copy freely.
struct Condition {
  enum class Kind : uint8_t { kNone, kIfAbsent, kIfPresent, kIfVersion };

  static constexpr Condition IfAbsent() { return {Kind::kIfAbsent, 0}; }
  static constexpr Condition IfPresent() { return {Kind::kIfPresent, 0}; }
  // The version is the one of a GET or of an earlier change.
  static constexpr Condition IfVersion(uint64_t version) { return {Kind::kIfVersion, version}; }

  Kind kind = Kind::kNone;
  uint64_t version = 0;  // kIfVersion
};

struct PutOptions {
  Condition condition = {};
  // How long the key stays, 1 ms to 100 years, counted from when the server makes the change; it
  // goes at most the server's --expiry_tick later. Not set: for ever, also where it had a time.
  std::optional<std::chrono::milliseconds> ttl = {};
};

// Which keys to scan, in the order of their bytes.
struct ScanRange {
  std::string_view start = {};   // the first key, which need not exist; empty: from the beginning
  bool after = false;            // begin behind `start`, with the next key
  std::string_view prefix = {};  // only keys that begin so
  bool keys_only = false;        // no values and versions
};

struct ScanItem {
  std::string key;
  std::string value;
  uint64_t version = 0;
};

// What a change did. With an error that says that it could not be made of the key as it is
// (AlreadyExists, Aborted, NotFound, FailedPrecondition, OutOfRange): what is there instead.
struct ChangeResult {
  uint64_t version = 0;  // of the key after the change; of the key as it is; 0: there is none
  bool existed = false;  // whether the key was there before
  int64_t number = 0;    // after Add: the sum
};

using GetCallback = Callback<void(const absl::Status&, const GetResult&)>;
using ChangeCallback = Callback<void(const absl::Status&, const ChangeResult&)>;

// Limits that the server named when the connection was made.
struct ServerLimits {
  uint32_t max_key_size = 0;    // bytes
  uint64_t max_value_size = 0;  // bytes
  uint32_t eager_limit = 0;     // bytes: larger values are fetched by the server with a READ
  uint32_t window = 0;          // most requests that may be unanswered at once
};

// Counters of one connection since it was made.
struct ConnectionStats {
  uint64_t gets = 0;          // finished
  uint64_t changes = 0;       // finished
  uint64_t reads = 0;         // RDMA READs posted, all kinds
  uint64_t read_retries = 0;  // items that were not accepted and read again
  uint64_t rpc_gets = 0;      // GETs answered by the server's CPU
  uint64_t pinned_gets = 0;   // of these, large values that it kept as they were meanwhile
  uint64_t cache_hits = 0;    // GETs whose bucket came from the cache
  uint64_t cache_stale = 0;   // of these, the ones that had to READ the bucket after all
  uint64_t cache_misses = 0;
  uint64_t directory_reads = 0;
  uint64_t sends = 0;      // request messages
  uint64_t doorbells = 0;  // calls of ibv_post_send
  uint64_t bytes_read = 0;
  uint64_t bytes_sent = 0;
};

namespace client {
class RawReads;
}

class Connection {
 public:
  // Connects to "ADDR:PORT". InvalidArgument for a malformed address or option; Unavailable if no
  // server is there; FailedPrecondition if it refuses (with its reason: other protocol version,
  // connection limit...); DeadlineExceeded after Options::connect_timeout.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(std::string_view server,
                                                             const Options& options);
  // Drops what is in flight: each callback is called with Cancelled. Then disconnects.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Synchronous operations.

  // Replaces `*value`; leaves it unspecified on errors.
  absl::Status Get(std::string_view key, std::string* value, uint64_t* version = nullptr);
  // Where a condition does not hold (AlreadyExists if absent, NotFound if present, Aborted or
  // NotFound if version) nothing has changed, and `*present`, where given, is set to the version
  // that the key has, 0 if there is no such key.
  absl::StatusOr<ChangeResult> Put(std::string_view key, std::string_view value,
                                   const PutOptions& options = {}, uint64_t* present = nullptr);
  absl::StatusOr<ChangeResult> PutIfAbsent(std::string_view key, std::string_view value,
                                           uint64_t* present = nullptr) {
    return Put(key, value, {.condition = Condition::IfAbsent()}, present);
  }
  // Puts if the key is there.
  absl::StatusOr<ChangeResult> Replace(std::string_view key, std::string_view value) {
    return Put(key, value, {.condition = Condition::IfPresent()});
  }
  // Puts if the key has the version `expected`.
  absl::StatusOr<ChangeResult> CompareAndSwap(std::string_view key, uint64_t expected,
                                              std::string_view value, uint64_t* present = nullptr) {
    return Put(key, value, {.condition = Condition::IfVersion(expected)}, present);
  }
  // NotFound if the key was absent. Of the conditions only IfVersion is allowed (else
  // InvalidArgument).
  absl::StatusOr<ChangeResult> Delete(std::string_view key, const Condition& condition = {},
                                      uint64_t* present = nullptr);
  absl::StatusOr<ChangeResult> DeleteIf(std::string_view key, uint64_t expected,
                                        uint64_t* present = nullptr) {
    return Delete(key, Condition::IfVersion(expected), present);
  }
  // Adds to a number that is stored as decimal text: an optional minus and digits, no spaces and no
  // zeros ahead (only "0" itself), from -2^63 to 2^63 - 1. An absent key counts as 0.
  // ChangeResult::number is the sum. IfAbsent is not allowed.
  absl::StatusOr<ChangeResult> Add(std::string_view key, int64_t summand,
                                   const Condition& condition = {});
  // Puts `suffix` (at most ServerLimits::eager_limit) behind the value; an absent key gets it as
  // its value. InvalidArgument if the whole would be too long. IfAbsent is not allowed.
  absl::StatusOr<ChangeResult> Append(std::string_view key, std::string_view suffix,
                                      const Condition& condition = {});
  // Deletes the key and replaces `*value` by what was deleted: of several that do this at once, one
  // gets it. `*value` is unspecified on errors. A value that does not fit a message is got with
  // READs and then deleted if it is still the same; Aborted if it changed each time meanwhile.
  absl::Status GetAndDelete(std::string_view key, std::string* value, uint64_t* version = nullptr);
  // Gives the key a time to live from now, in place of the one it had. The value and its version
  // stay as they are. ChangeResult::existed tells whether it had a time before. (A Put sets or
  // takes away the time with the value; Add and Append keep it.)
  absl::StatusOr<ChangeResult> Expire(std::string_view key, std::chrono::milliseconds ttl);
  // Takes the time to live away.
  absl::StatusOr<ChangeResult> Persist(std::string_view key);
  // How long the key stays still, rounded up; nullopt: for ever.
  absl::StatusOr<std::optional<std::chrono::milliseconds>> Ttl(std::string_view key);
  // Replaces `*items` by the first keys of the range, at most `limit` of them, with their values.
  // The server names the keys and this client READs the values. No snapshot: each value was its
  // key's at some time during the call; keys that come or go meanwhile may be in it or not.
  // Unimplemented if the server runs with --ordered_index=off. On errors `*items` has what was
  // found before.
  absl::Status Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items);
  // A round trip to a server worker.
  absl::Status Ping();
  // What the server says of itself: one JSON object (docs/operations.md names its members).
  absl::StatusOr<std::string> Info();

  // Asynchronous operations. Key and value are copied before the call returns, except that a value
  // over ServerLimits::eager_limit is borrowed until the callback. On an error nothing was
  // submitted and the callback is not called.
  absl::Status SubmitGet(std::string_view key, GetCallback callback);
  absl::Status SubmitPut(std::string_view key, std::string_view value, ChangeCallback callback,
                         const PutOptions& options = {});
  absl::Status SubmitDelete(std::string_view key, ChangeCallback callback,
                            const Condition& condition = {});
  absl::Status SubmitAdd(std::string_view key, int64_t summand, ChangeCallback callback,
                         const Condition& condition = {});
  absl::Status SubmitAppend(std::string_view key, std::string_view suffix, ChangeCallback callback,
                            const Condition& condition = {});
  absl::Status SubmitGetAndDelete(std::string_view key, GetCallback callback);
  absl::Status SubmitExpire(std::string_view key, std::chrono::milliseconds ttl,
                            ChangeCallback callback);
  absl::Status SubmitPersist(std::string_view key, ChangeCallback callback);

  // Sends what was submitted, takes what has completed and runs callbacks; never blocks. Returns
  // the number of callbacks run. (With nothing in flight, too: so an idle connection learns that
  // the server has gone, or lets go of a device that is to be removed.)
  int Poll();
  // A descriptor to wait on in an event loop of your own (epoll, poll, libuv, asio): readable when
  // there may be something to do. It is the same for the connection's whole life; only wait on it.
  // It works if PollAndArm was called after any other call on this connection, before the loop
  // waits.
  int event_fd() const;
  // For event loops: polls until there is nothing left to do for now (or for a while, if that does
  // not end), and sees to it that event_fd() becomes readable when there is again, deadlines
  // included. To be called when event_fd() is readable, and after submitting. Returns the number of
  // callbacks run; never blocks.
  int PollAndArm();
  // Polls until at least one callback has run, nothing is in flight, or the time is over; sleeps
  // after Options::poll_time. Returns the number of callbacks run.
  int Wait(std::chrono::nanoseconds timeout);
  // Waits until nothing is in flight. Every operation ends by Options::operation_timeout.
  void Drain();

  size_t in_flight() const;
  // OK, or why the connection is dead.
  absl::Status status() const;

  // "verbs" or "soft", and the device's name: what carries this connection.
  std::string fabric() const;
  std::string device() const;
  // The server's incarnation; another one has other data.
  uint64_t server_epoch() const;
  const ServerLimits& limits() const;
  const ConnectionStats& stats() const;

 private:
  friend class client::RawReads;  // measures the fabric alone, on this connection's queue pair
  class Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena
