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
/// connection is true of all. What it lacks its connections have: asynchronous calls, GetInto and
/// RegisterBuffer (memory is registered with one connection), status, fabric and device. Borrow
/// lends one:
///
///     absl::StatusOr<verbena::Client::Lease> lease = client->Borrow();
///     if (lease.ok()) (*lease)->SubmitGet("key", ...);
///
/// **Threads**: everything here may be called by any thread at any time, except the destructor:
/// no call may be under way then.
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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verbena/batch.h"
#include "verbena/export.h"
#include "verbena/options.h"
#include "verbena/types.h"

namespace verbena {

class Connection;

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
  class VERBENA_LOCAL Impl;

 public:
  /// Makes all connections, one after the other, each within Options::connect_timeout. Errors as
  /// Connection::Connect; InvalidArgument for a number of slots out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::string_view server,
                                                         const ClientOptions& options);
  /// Disconnects; a connection that is lent when its lease ends.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Waits for calls that are under way and for connections that are lent (so it is not for a
  /// thread that has a lease), then disconnects. Calls that begin later fail.
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
  absl::Status Ping(const CallOptions& options = {});
  absl::StatusOr<std::string> Info(const CallOptions& options = {});

  absl::Status MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                        const CallOptions& options = {});
  absl::Status MultiPut(std::span<const KeyValue> items, const PutOptions& options = {},
                        std::vector<absl::StatusOr<ChangeResult>>* results = nullptr);
  absl::Status MultiDelete(std::span<const std::string_view> keys, const CallOptions& options = {},
                           std::vector<absl::StatusOr<ChangeResult>>* results = nullptr);
  /// As Connection's. The batch belongs to one thread at a time.
  absl::Status Execute(Batch& batch, const CallOptions& options = {});
  /// @}

  /// A connection that is lent: see Borrow. Move-only. Used by one thread at a time, also its
  /// destructor, as the connection; it may go from thread to thread, and outlive the Client.
  class VERBENA_EXPORT Lease {
   public:
    /// Of no connection: as after Return.
    Lease() = default;
    /// `other` has no connection then.
    Lease(Lease&& other) noexcept = default;
    /// Returns this one's connection before.
    Lease& operator=(Lease&& other) noexcept {
      if (this != &other) {
        Return();
        impl_ = std::move(other.impl_);
        slot_ = std::exchange(other.slot_, nullptr);
      }
      return *this;
    }
    /// As Return.
    ~Lease() { Return(); }

    /// Whether there is a connection.
    explicit operator bool() const { return impl_ != nullptr; }
    /// The connection; there must be one. It is the client's: it must not be used after the lease
    /// has ended.
    Connection& operator*() const;
    /// The same.
    Connection* operator->() const { return &**this; }

    /// Waits for what is in flight on the connection (each operation ends by its deadline),
    /// unregisters the memory that was registered with it, and gives it back. In a callback of the
    /// connection, which cannot wait, what is in flight ends with Cancelled and the connection is
    /// closed. Nothing where there is none.
    void Return();

   private:
    friend class Client;
    Lease(std::shared_ptr<Impl> impl, void* slot) : impl_(std::move(impl)), slot_(slot) {}

    std::shared_ptr<Impl> impl_;
    void* slot_ = nullptr;
  };

  /// Lends a connection, which nobody else uses until the lease has ended: for asynchronous calls,
  /// GetInto, or many calls after each other. Waits, for as long as it takes, while all slots are
  /// taken, so a thread that has a lease must not borrow another one where others may do so too,
  /// and what it calls on the Client itself needs a second slot. Errors as for all calls.
  absl::StatusOr<Lease> Borrow();

  /// As ClientOptions::slots.
  uint32_t slots() const;
  /// Limits that the server named when a connection was last made; 0 after Close. Never waits, also
  /// while connections are made anew.
  ServerLimits limits();
  /// The sums of the counters of all connections that there are and were. Waits for each slot in
  /// turn, until the call that is under way there, or the lease, has ended: so it is not for a
  /// thread that has a lease, either.
  ConnectionStats stats();

 private:
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace verbena
