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
// Synchronous calls (Get, Put, Delete) wait for one operation. The asynchronous core (Submit...,
// Poll, Wait) keeps up to Options::depth operations in flight; callbacks run inside Poll, Wait or a
// synchronous call, exactly once for every submission that returned OK, in any order. A callback
// may submit further operations; it must not call Poll, Wait or a synchronous call, nor destroy the
// connection.
//
// Errors (absl::Status codes):
//   NotFound            the key is absent (Get; Delete)
//   InvalidArgument     empty or oversized key, value over the server's limit
//   ResourceExhausted   server out of memory (text says how much), or Options::depth reached
//   Aborted             a large value changed each time while it was being read: try again
//   DeadlineExceeded    no answer in time; a change may or may not have been applied
//   Unavailable         server unreachable or gone; a change in flight may or may not be applied
//   FailedPrecondition  versions that do not fit, refused connection, a device that cannot do it
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
#include <string>
#include <string_view>

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

// What a change did.
struct ChangeResult {
  uint64_t version = 0;  // of the key after the change
  bool existed = false;  // whether the key was there before
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
  absl::StatusOr<ChangeResult> Put(std::string_view key, std::string_view value);
  // NotFound if the key was absent.
  absl::StatusOr<ChangeResult> Delete(std::string_view key);
  // A round trip to a server worker.
  absl::Status Ping();
  // What the server says of itself: one JSON object (docs/operations.md names its members).
  absl::StatusOr<std::string> Info();

  // Asynchronous operations. Key and value are copied before the call returns, except that a value
  // over ServerLimits::eager_limit is borrowed until the callback. On an error nothing was
  // submitted and the callback is not called.
  absl::Status SubmitGet(std::string_view key, GetCallback callback);
  absl::Status SubmitPut(std::string_view key, std::string_view value, ChangeCallback callback);
  absl::Status SubmitDelete(std::string_view key, ChangeCallback callback);

  // Sends what was submitted, takes what has completed and runs callbacks; never blocks. Returns
  // the number of callbacks run. (With nothing in flight, too: so an idle connection learns that
  // the server has gone, or lets go of a device that is to be removed.)
  int Poll();
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
