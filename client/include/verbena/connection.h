/// \file
/// A connection to a Verbena server, for one thread at a time.
///
///     auto connection = verbena::Connection::Connect("127.0.0.1:7400", {});
///     if (!connection.ok()) ...
///     absl::StatusOr<verbena::ChangeResult> put = (*connection)->Put("key", "value");
///     if (!put.ok()) ...
///     std::string value;
///     absl::Status status = (*connection)->Get("key", &value);
///
/// GETs are one-sided: the client finds and fetches the value with RDMA READs and the server's CPU
/// does nothing. Changes are SENT and applied by the server; when a change returns OK, every GET
/// that starts afterwards, on any connection, sees it or a later one.
///
/// Synchronous calls (Get, Put, Delete...) wait for one operation. The asynchronous core
/// (Submit..., Poll, Wait) keeps up to Options::depth operations in flight; what is submitted
/// between two polls travels together. With an event loop see event_fd().
///
/// **Callbacks** run inside Poll, PollAndArm, Wait, Drain, Close, the destructor or a synchronous
/// call, exactly once for every submission that returned OK, in any order. A callback may submit
/// further operations, and may Close or destroy the connection: what else is in flight then ends
/// with Cancelled before that returns. In a callback Poll, PollAndArm, Wait and Drain do nothing,
/// and synchronous calls are refused with FailedPrecondition, since they would wait for the very
/// call that runs the callback. A callback must not throw (see Callback). An empty one is allowed:
/// the operation's outcome is dropped.
///
/// **Errors** (absl::Status codes; each call's own are with it):
///
/// - NotFound: the key is absent (Get; Delete; changes under a condition).
/// - AlreadyExists: the key is there (Condition::IfAbsent).
/// - InvalidArgument: empty or oversized key, value over the server's limit, an option or a
///   condition that cannot be.
/// - ResourceExhausted: the server is out of memory (the text says how much it has); or
///   Options::depth is reached: poll until something has completed, and submit again.
/// - Aborted: the key has another version (Condition::IfVersion): get it, decide and try again. Or,
///   very rarely, a large value changed each time while it was being read and the server was
///   keeping too many others for their readers: try again.
/// - DeadlineExceeded: no answer in time; a change may have been made or not (OutcomeUnknown).
/// - Unavailable: the server is unreachable, gone or has restarted; a change that was sent may have
///   been made or not (OutcomeUnknown).
/// - FailedPrecondition: the value is not a number (Add); a synchronous call in a callback; a call
///   after Close. When connecting: versions that do not fit, a refused connection, a device that
///   cannot do it.
/// - OutOfRange: the sum does not fit 64 bits (Add); the value does not fit its target (GetInto).
/// - Cancelled: the connection was closed while the operation was in flight.
/// - PermissionDenied: no permission on /dev/infiniband, or to lock memory (Connect).
/// - DataLoss, Internal: a defect; please report it.
///
/// Every error says its last cause in words.
///
/// **Lost connections**: when the connection is lost (the network, a server that restarts, an
/// operation without an answer in time), another is made inside Poll, Wait and the synchronous
/// calls, after random waits that grow from 5 ms to 1 s (Options::reconnect). Operations in flight
/// go on with it and new ones wait for it, each until its own deadline:
///
/// - GETs, and whatever only reads, begin again.
/// - Changes are sent again under their sequence numbers, and the server makes each once.
/// - If the server does not know them any more (it has restarted, and has other data then; or the
///   client was away for longer than its --session_linger), changes that were sent and not answered
///   fail with Unavailable, and OutcomeUnknown tells that they may have been made. They are never
///   repeated then.
/// - A change that was sent and is late fails with DeadlineExceeded, and OutcomeUnknown: it may
///   have been made once, or may still be, but never twice.
///
/// The connection is dead (status()) when the server refuses it for good (other versions), with
/// Options::reconnect off, or after a defect: then every call fails with that error.
///
/// **Fork**: the child's Connection is dead, says so with FailedPrecondition, and destroying it
/// does not disturb the parent's. (What the child inherits also keeps the parent's descriptors open
/// until it ends or calls exec.)
///
/// **Threads**: one at a time; builds with assertions notice two at once and end the process with a
/// message. Different connections are independent, also in one process. For many threads see
/// client.h.
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
#include "verbena/buffer.h"
#include "verbena/callback.h"
#include "verbena/export.h"
#include "verbena/options.h"
#include "verbena/types.h"

namespace verbena {

/// What a GET ends with.
using GetCallback = Callback<void(const absl::Status&, const GetResult&)>;
/// What a change ends with; with an error the result tells what is there instead.
using ChangeCallback = Callback<void(const absl::Status&, const ChangeResult&)>;
/// How long the key stays still, rounded up; nullopt: for ever, or an error.
using TtlCallback = Callback<void(const absl::Status&, std::optional<std::chrono::milliseconds>)>;
/// With an error: what was found before.
using ScanCallback = Callback<void(const absl::Status&, std::vector<ScanItem>)>;
/// What an operation ends with that has nothing else to tell.
using StatusCallback = Callback<void(const absl::Status&)>;
/// What SubmitInfo ends with: the JSON object of Info, "" with an error.
using InfoCallback = Callback<void(const absl::Status&, std::string)>;
/// What SubmitExecute ends with: as Execute, and the batch, which has the results.
using BatchCallback = Callback<void(const absl::Status&, Batch)>;
/// What SubmitMultiGet ends with: as MultiGet, and what was found of each key.
using MultiGetCallback = Callback<void(const absl::Status&, std::vector<GetItem>)>;
/// What SubmitMultiPut and SubmitMultiDelete end with: as those, and what has come of each.
using MultiChangeCallback =
    Callback<void(const absl::Status&, std::vector<absl::StatusOr<ChangeResult>>)>;

/// Whether an error leaves open if the change was made. False for errors that say that it was not,
/// and for errors of operations that change nothing. Thread-safe.
VERBENA_EXPORT bool OutcomeUnknown(const absl::Status& status);

namespace client {
class Access;
}  // namespace client

/// A connection; see the top of this file for callbacks, errors and threads, which hold for all of
/// its calls. Strings and views that go into a synchronous call are borrowed until it returns.
class VERBENA_EXPORT Connection {
 public:
  /// Connects to "ADDR:PORT": an IPv4 address, an IPv6 one in brackets, or a name, which is looked
  /// up now and once: the connections in place of lost ones are made to the same address.
  /// InvalidArgument for a malformed address or option, and for a name that does not exist;
  /// Unavailable if no server is there, or nobody can tell the name's address at the moment;
  /// FailedPrecondition if it refuses (with its reason: other protocol version, connection
  /// limit...); DeadlineExceeded after Options::connect_timeout.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(std::string_view server,
                                                             const Options& options);
  /// As Close.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Ends what is in flight: each callback is called with Cancelled. Then disconnects. Every call
  /// after it fails with FailedPrecondition; Close itself does nothing then. A change that was
  /// cancelled may or may not have been applied.
  void Close();

  /// \name Synchronous operations
  /// @{

  /// Replaces `*value`; leaves it unspecified on errors. Null: the value is not wanted. `*version`,
  /// where given, is 0 on every error.
  absl::Status Get(std::string_view key, std::string* value, uint64_t* version = nullptr);
  /// The same, with a time of its own.
  absl::Status Get(std::string_view key, std::string* value, uint64_t* version,
                   const CallOptions& options);
  /// Puts a value, in place of the one that the key has. Where a condition does not hold nothing
  /// has changed, and `*present`, where given, is set to the version that the key has, 0 if there
  /// is no such key. With other errors it is 0; without one it stays as it was.
  absl::StatusOr<ChangeResult> Put(std::string_view key, std::string_view value,
                                   const PutOptions& options = {}, uint64_t* present = nullptr);
  /// Put under Condition::IfAbsent.
  absl::StatusOr<ChangeResult> PutIfAbsent(std::string_view key, std::string_view value,
                                           uint64_t* present = nullptr) {
    return Put(key, value, Condition::IfAbsent(), present);
  }
  /// Put under Condition::IfPresent.
  absl::StatusOr<ChangeResult> Replace(std::string_view key, std::string_view value) {
    return Put(key, value, Condition::IfPresent());
  }
  /// Put under Condition::IfVersion(expected).
  absl::StatusOr<ChangeResult> CompareAndSwap(std::string_view key, uint64_t expected,
                                              std::string_view value, uint64_t* present = nullptr) {
    return Put(key, value, Condition::IfVersion(expected), present);
  }
  /// NotFound if the key was absent. Of the conditions only IfVersion is allowed (else
  /// InvalidArgument). `*present` as for Put.
  absl::StatusOr<ChangeResult> Delete(std::string_view key, const ChangeOptions& options = {},
                                      uint64_t* present = nullptr);
  /// Delete under Condition::IfVersion(expected).
  absl::StatusOr<ChangeResult> DeleteIf(std::string_view key, uint64_t expected,
                                        uint64_t* present = nullptr) {
    return Delete(key, Condition::IfVersion(expected), present);
  }
  /// Adds to a number that is stored as decimal text: an optional minus and digits, no spaces and
  /// no zeros ahead (only "0" itself), from -2^63 to 2^63 - 1. An absent key counts as 0.
  /// ChangeResult::number is the sum. FailedPrecondition if the value is not a number, OutOfRange
  /// if the sum does not fit: `*present`, as for Put, is that value's version then, too. IfAbsent
  /// is not allowed.
  absl::StatusOr<ChangeResult> Add(std::string_view key, int64_t summand,
                                   const ChangeOptions& options = {}, uint64_t* present = nullptr);
  /// Puts `suffix` (at most ServerLimits::eager_limit) behind the value; an absent key gets it as
  /// its value. InvalidArgument if the whole would be too long. IfAbsent is not allowed.
  absl::StatusOr<ChangeResult> Append(std::string_view key, std::string_view suffix,
                                      const ChangeOptions& options = {},
                                      uint64_t* present = nullptr);
  /// Deletes the key and replaces `*value` by what was deleted: of several that do this at once,
  /// one gets it. `*value` is unspecified on errors, `*version` is 0. A value that does not fit a
  /// message is got with READs and then deleted if it is still the same; Aborted if it changed each
  /// time meanwhile.
  absl::Status GetAndDelete(std::string_view key, std::string* value, uint64_t* version = nullptr,
                            const CallOptions& options = {});
  /// Gives the key a time to live from now, in place of the one it had (PutOptions::ttl has the
  /// limits). The value and its version stay as they are. ChangeResult::existed tells whether it
  /// had a time before. (A Put sets or takes away the time with the value; Add and Append keep it.)
  absl::StatusOr<ChangeResult> Expire(std::string_view key, std::chrono::milliseconds ttl,
                                      const CallOptions& options = {});
  /// Takes the time to live away.
  absl::StatusOr<ChangeResult> Persist(std::string_view key, const CallOptions& options = {});
  /// How long the key stays still, rounded up; nullopt: for ever.
  absl::StatusOr<std::optional<std::chrono::milliseconds>> Ttl(std::string_view key,
                                                               const CallOptions& options = {});
  /// Replaces `*items` by the first keys of the range, at most `limit` of them (0: no limit, so all
  /// that there are), with their values.
  /// The server names the keys and this client READs the values. No snapshot: each value was its
  /// key's at some time during the call; keys that come or go meanwhile may be in it or not.
  /// Unimplemented if the server runs with --ordered_index=off. On errors `*items` has what was
  /// found before. The time-out is for each of the requests and READs that it takes.
  absl::Status Scan(const ScanRange& range, size_t limit, std::vector<ScanItem>* items,
                    const CallOptions& options = {});
  /// A round trip to a server worker.
  absl::Status Ping(const CallOptions& options = {});
  /// What the server says of itself: one JSON object (docs/operations.md names its members).
  absl::StatusOr<std::string> Info(const CallOptions& options = {});
  /// @}

  /// \name Without copies
  /// @{

  /// Registers memory of the caller's with the adapter, so that GetInto may read into it, and large
  /// values that lie in it are put without a copy: the server READs them from there. Takes a system
  /// call or more, so it is for memory that is used again and again; all of it is locked in memory.
  /// The server may READ all of it while it is registered. It must stay mapped so long: operations
  /// on memory that is not there any more when a lost connection is made again end with
  /// FailedPrecondition, and a Put of memory that is mapped but cannot be READ (a file behind it
  /// was cut short; the software device, and a server that may not look into this process) with
  /// InvalidArgument, once the server has lost some connections over it.
  ///
  /// InvalidArgument for memory of no bytes, or that shares bytes with other registered memory;
  /// ResourceExhausted if it cannot be registered (memory lock limit, limits of the device);
  /// Unavailable while the connection is lost, since there is no device then: this waits for
  /// nothing, so Poll, or make a synchronous call, until there is another, and try again.
  absl::StatusOr<Buffer> RegisterBuffer(std::span<std::byte> memory);
  /// Reads the value into `target`, which must lie within a registered buffer (else
  /// InvalidArgument), and sets `*size` to its bytes. OutOfRange if it does not fit, and then
  /// `*size` says how many it takes; 0 on other errors.
  ///
  /// Without a copy where the device can part a READ between two pieces of memory
  /// (ConnectionStats::gets_without_copy), with one copy where it cannot, or where the value had to
  /// be got from the server (gets_copied). Either way `target` is written to before the value is
  /// known to be whole, and behind the value too: **after an error it holds garbage**, and after OK
  /// what lies behind the value does.
  absl::Status GetInto(std::string_view key, std::span<std::byte> target, size_t* size,
                       uint64_t* version = nullptr, const CallOptions& options = {});
  /// As GetInto. `target` is borrowed until the callback; GetResult::value is in it, and
  /// GetResult::size is what `*size` would be.
  absl::Status SubmitGetInto(std::string_view key, std::span<std::byte> target,
                             GetCallback callback, const CallOptions& options = {});
  /// @}

  /// \name Several operations at once
  /// All are begun before any is waited for, as far as the depth allows, and each has an outcome of
  /// its own. n cached keys are got with n READs, one doorbell and one wait (more of them where the
  /// device or the server allow fewer READs at once), others with a second round; changes share
  /// messages. They are not done as one, and not in any order, also where they are about the same
  /// key.
  ///
  /// A time-out that is given bounds the call as a whole. Without one each operation has
  /// Options::operation_timeout, from when it is begun, so that a call of many which gets on may
  /// take as long as it needs. Either way, when the time of one is over no further ones are begun:
  /// those end with DeadlineExceeded too, and have not been made (OutcomeUnknown is false).
  /// @{

  /// Resizes `*results` to keys.size(), with what was found of each key; values reuse the memory of
  /// the strings that are there. OK if each key was found or is absent, else the first other error.
  absl::Status MultiGet(std::span<const std::string_view> keys, std::vector<GetItem>* results,
                        const CallOptions& options = {});
  /// OK if all were put, else the first error. `*results`, where given, is replaced by what Put
  /// would have returned for each, also where all are refused.
  absl::Status MultiPut(std::span<const KeyValue> items, const PutOptions& options = {},
                        std::vector<absl::StatusOr<ChangeResult>>* results = nullptr);
  /// OK if none of the keys is there any more, else the first error. `*results` as for MultiPut,
  /// NotFound for keys that were absent.
  absl::Status MultiDelete(std::span<const std::string_view> keys, const CallOptions& options = {},
                           std::vector<absl::StatusOr<ChangeResult>>* results = nullptr);
  /// Carries out operations of any kinds; the batch has the results. OK if each succeeded, where an
  /// absent key is no error of a Get, Delete or GetAndDelete; else the first error. Operations with
  /// a time-out of their own have that one, as far as the call's allows.
  absl::Status Execute(Batch& batch, const CallOptions& options = {});
  /// @}

  /// \name Asynchronous operations
  /// As the synchronous ones of these names. A key, a suffix and a range are copied before the call
  /// returns. A value is **borrowed until the callback**, whatever its size: a small one, which a
  /// message has room for, is in fact copied at once, but what is small the server decides. So
  /// SubmitPut of a temporary that owns its bytes does not compile: keep them, or let SubmitExecute
  /// and SubmitMultiPut copy them.
  ///
  /// On an error nothing was submitted and the callback is not called, but destroyed, since it went
  /// into the call by value: keep what it owns elsewhere, or ask has_room() before, where the
  /// operation is to be submitted again. ResourceExhausted if Options::depth operations are in
  /// flight. Nothing leaves before the next Poll, PollAndArm or Wait.
  /// @{

  /// As the synchronous operation of this name.
  absl::Status SubmitGet(std::string_view key, GetCallback callback);
  absl::Status SubmitGet(std::string_view key, GetCallback callback, const CallOptions& options);
  absl::Status SubmitPut(std::string_view key, std::string_view value, ChangeCallback callback,
                         const PutOptions& options = {});
  /// The value would be gone before it is put.
  template <OwningTemporary Value>
  absl::Status SubmitPut(std::string_view key, Value&& value, ChangeCallback callback,
                         const PutOptions& options = {}) = delete;
  absl::Status SubmitDelete(std::string_view key, ChangeCallback callback,
                            const ChangeOptions& options = {});
  absl::Status SubmitAdd(std::string_view key, int64_t summand, ChangeCallback callback,
                         const ChangeOptions& options = {});
  absl::Status SubmitAppend(std::string_view key, std::string_view suffix, ChangeCallback callback,
                            const ChangeOptions& options = {});
  absl::Status SubmitGetAndDelete(std::string_view key, GetCallback callback,
                                  const CallOptions& options = {});
  absl::Status SubmitExpire(std::string_view key, std::chrono::milliseconds ttl,
                            ChangeCallback callback, const CallOptions& options = {});
  absl::Status SubmitPersist(std::string_view key, ChangeCallback callback,
                             const CallOptions& options = {});
  absl::Status SubmitTtl(std::string_view key, TtlCallback callback,
                         const CallOptions& options = {});
  /// A scan takes one place of the depth, and while it fetches values up to half of the depth as
  /// far as it is free, all of which in_flight() counts.
  absl::Status SubmitScan(const ScanRange& range, size_t limit, ScanCallback callback,
                          const CallOptions& options = {});
  absl::Status SubmitPing(StatusCallback callback, const CallOptions& options = {});
  absl::Status SubmitInfo(InfoCallback callback, const CallOptions& options = {});
  /// @}

  /// \name Several operations at once, asynchronously
  /// As the synchronous calls of these names, with one callback for the whole, which comes when all
  /// have ended. The call takes as many places of the depth as are free, one at least, and begins
  /// the others as its own end; in_flight() counts those that are begun. So it is refused with
  /// ResourceExhausted only where the depth is reached already. Keys and values are copied.
  /// @{

  /// Takes the batch, which the callback gives back with its results. On an error `batch` is left
  /// as it was. What is wrong with one of its operations is no error here, but that one's result.
  absl::Status SubmitExecute(Batch&& batch, BatchCallback callback,
                             const CallOptions& options = {});
  absl::Status SubmitMultiGet(std::span<const std::string_view> keys, MultiGetCallback callback,
                              const CallOptions& options = {});
  absl::Status SubmitMultiPut(std::span<const KeyValue> items, MultiChangeCallback callback,
                              const PutOptions& options = {});
  absl::Status SubmitMultiDelete(std::span<const std::string_view> keys,
                                 MultiChangeCallback callback, const CallOptions& options = {});
  /// @}

  /// \name Completions
  /// @{

  /// Sends what was submitted, takes what has completed and runs callbacks; never blocks. Returns
  /// the number of callbacks run. (With nothing in flight, too: so an idle connection learns that
  /// the server has gone, or lets go of a device that is to be removed.)
  int Poll();
  /// Polls until at least one callback has run, nothing is in flight, or the time is over; sleeps
  /// after Options::poll_time. Returns the number of callbacks run.
  int Wait(std::chrono::nanoseconds timeout);
  /// Waits until nothing is in flight. Every operation ends by its deadline.
  void Drain();

  /// A descriptor to wait on in an event loop of your own (epoll, poll, libuv, asio): readable when
  /// there may be something to do. It is the same for the connection's whole life; only wait on it.
  /// It works if PollAndArm was called after any other call on this connection, before the loop
  /// waits.
  int event_fd() const;
  /// For event loops: polls until there is nothing left to do for now (or for a while, if that does
  /// not end), and sees to it that event_fd() becomes readable when there is again, deadlines
  /// included. To be called when event_fd() is readable, and after submitting. Returns the number
  /// of callbacks run; never blocks.
  int PollAndArm();
  /// @}

  /// Operations that were submitted and whose callback has not been called, and the further places
  /// of the depth that scans take for a while.
  size_t in_flight() const;
  /// Whether Options::depth has room for one operation more.
  bool has_room() const;
  /// OK, or why the connection is dead. OK also while another is being made.
  absl::Status status() const;

  /// "verbs" or "soft": what carries this connection.
  std::string fabric() const;
  /// The name of the device that carries it.
  std::string device() const;
  /// The server's incarnation; another one has other data.
  uint64_t server_epoch() const;
  /// As long as the connection lives, as for stats().
  const ServerLimits& limits() const;
  /// Brought up to date by this call.
  const ConnectionStats& stats() const;

  /// The library's own.
  class VERBENA_LOCAL Impl;

 private:
  friend class client::Access;  // the library's own
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace verbena
