/// \file
/// A client for many threads.
///
///     auto client = verbena::Client::Connect("127.0.0.1:7400", {});
///     ... in any thread:
///     absl::StatusOr<verbena::ChangeResult> put = (*client)->Put("key", "value");
///
/// It has a number of slots, each with a connection of its own. A thread has its slot, in which it
/// works alone as long as there are not more threads than slots; if its own is taken it uses one
/// that is free, and only if all are taken it waits. So calls of different threads go on beside
/// each other, and one thread's calls see its own changes, as anybody's: what is true of one
/// connection is true of all. What it lacks a Connection has: the asynchronous calls, GetInto and
/// RegisterBuffer (memory is registered with one connection), status, fabric and device.
///
/// **Threads**: everything here may be called by any thread at any time, except the destructor:
/// no call may be under way then. For asynchronous calls, callbacks and event loops make a
/// Connection for each thread.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verbena/batch.h"
#include "verbena/export.h"
#include "verbena/options.h"
#include "verbena/types.h"

namespace verbena {

/// Plain values; copy freely.
struct ClientOptions {
  /// Of each connection. They share one cache of the server's index, of Options::cache_bytes.
  Options connection;
  /// Connections, 1 to 1024; best as many as there are threads that use the client at once.
  uint32_t slots = 4;
};

/// The calls are those of Connection (connection.h), with the same meaning, errors and ownership;
/// FailedPrecondition also after Close. A connection that has died is made anew by the next call in
/// its slot, which fails like Connection::Connect where that is not possible: calls that were under
/// way have failed, and are not repeated. Results that a call has a place for are its own whatever
/// it returns: where it has not come as far as a connection each of them has its error.
///
/// The time-outs of calls bound the operations alone: a call may wait longer, for a slot (as long
/// as the calls ahead of it take) and for a connection that has to be made anew
/// (Options::connect_timeout).
class VERBENA_EXPORT Client {
 public:
  /// Makes all connections, one after the other, each within Options::connect_timeout. Errors as
  /// Connection::Connect; InvalidArgument for a number of slots out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::string_view server,
                                                         const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Waits for calls that are under way, then disconnects. Calls that begin later fail.
  void Close();

  /// \name Calls, as those of Connection
  /// @{

  /// As Connection's.
  absl::Status Get(std::string_view key, std::string* value, uint64_t* version = nullptr,
                   const CallOptions& options = {});
  absl::StatusOr<ChangeResult> Put(std::string_view key, std::string_view value,
                                   const PutOptions& options = {}, uint64_t* present = nullptr);
  absl::StatusOr<ChangeResult> PutIfAbsent(std::string_view key, std::string_view value,
                                           uint64_t* present = nullptr) {
    return Put(key, value, Condition::IfAbsent(), present);
  }
  absl::StatusOr<ChangeResult> Replace(std::string_view key, std::string_view value) {
    return Put(key, value, Condition::IfPresent());
  }
  absl::StatusOr<ChangeResult> CompareAndSwap(std::string_view key, uint64_t expected,
                                              std::string_view value, uint64_t* present = nullptr) {
    return Put(key, value, Condition::IfVersion(expected), present);
  }
  absl::StatusOr<ChangeResult> Delete(std::string_view key, const ChangeOptions& options = {},
                                      uint64_t* present = nullptr);
  absl::StatusOr<ChangeResult> DeleteIf(std::string_view key, uint64_t expected,
                                        uint64_t* present = nullptr) {
    return Delete(key, Condition::IfVersion(expected), present);
  }
  absl::StatusOr<ChangeResult> Add(std::string_view key, int64_t summand,
                                   const ChangeOptions& options = {}, uint64_t* present = nullptr);
  absl::StatusOr<ChangeResult> Append(std::string_view key, std::string_view suffix,
                                      const ChangeOptions& options = {},
                                      uint64_t* present = nullptr);
  absl::Status GetAndDelete(std::string_view key, std::string* value, uint64_t* version = nullptr,
                            const CallOptions& options = {});
  absl::StatusOr<ChangeResult> Expire(std::string_view key, std::chrono::milliseconds ttl,
                                      const CallOptions& options = {});
  absl::StatusOr<ChangeResult> Persist(std::string_view key, const CallOptions& options = {});
  absl::StatusOr<std::optional<std::chrono::milliseconds>> Ttl(std::string_view key,
                                                               const CallOptions& options = {});
  absl::Status Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items,
                    const CallOptions& options = {});
  absl::Status Ping();
  absl::StatusOr<std::string> Info();

  absl::Status MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                        const CallOptions& options = {});
  absl::Status MultiPut(std::span<const KeyValue> items, const PutOptions& options = {},
                        std::vector<absl::StatusOr<ChangeResult>>* results = nullptr);
  absl::Status MultiDelete(std::span<const std::string_view> keys, const CallOptions& options = {},
                           std::vector<absl::StatusOr<ChangeResult>>* results = nullptr);
  /// As Connection's. The batch belongs to one thread.
  absl::Status Execute(Batch& batch);
  /// @}

  /// As ClientOptions::slots.
  uint32_t slots() const;
  /// Limits that the server named when a connection was last made; 0 after Close. Never waits, also
  /// while connections are made anew.
  ServerLimits limits();
  /// The sums of the counters of all connections that there are and were. Waits for each slot in
  /// turn, until the call that is under way there has ended.
  ConnectionStats stats();

 private:
  class VERBENA_LOCAL Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena
