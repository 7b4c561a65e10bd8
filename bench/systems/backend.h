// What the load generator drives: one connection to a store of whatever make.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::bench {

// Counters of a connection since it was made. Zero where a store has no such thing.
struct BackendCounters {
  uint64_t gets = 0;
  uint64_t reads = 0;         // RDMA READs
  uint64_t read_retries = 0;  // READs whose result was not accepted
  uint64_t rpc_gets = 0;      // GETs answered by the server's CPU
  uint64_t doorbells = 0;     // calls that posted work to the adapter
  uint64_t sends = 0;         // SENDs
  uint64_t completions = 0;   // CQEs: entries taken from the completion queue
  uint64_t bytes_read = 0;    // by READs
  uint64_t bytes_sent = 0;    // by SENDs
  uint64_t bytes_out = 0;     // given to the socket or the fabric, without its own headers
  uint64_t bytes_in = 0;      // taken from it, likewise
  uint64_t system_calls = 0;  // of this connection, for its operations
  uint64_t reconnects = 0;    // connections made in place of lost ones

  BackendCounters& operator+=(const BackendCounters& other) {
    gets += other.gets;
    reads += other.reads;
    read_retries += other.read_retries;
    rpc_gets += other.rpc_gets;
    doorbells += other.doorbells;
    sends += other.sends;
    completions += other.completions;
    bytes_read += other.bytes_read;
    bytes_sent += other.bytes_sent;
    bytes_out += other.bytes_out;
    bytes_in += other.bytes_in;
    system_calls += other.system_calls;
    reconnects += other.reconnects;
    return *this;
  }
  BackendCounters operator-(const BackendCounters& other) const {
    return {gets - other.gets,
            reads - other.reads,
            read_retries - other.read_retries,
            rpc_gets - other.rpc_gets,
            doorbells - other.doorbells,
            sends - other.sends,
            completions - other.completions,
            bytes_read - other.bytes_read,
            bytes_sent - other.bytes_sent,
            bytes_out - other.bytes_out,
            bytes_in - other.bytes_in,
            system_calls - other.system_calls,
            reconnects - other.reconnects};
  }
};

// How a value is written, where that is not simply put there.
struct WriteOptions {
  enum class Condition : uint8_t { kNone, kIfAbsent, kIfPresent };

  Condition condition = Condition::kNone;
  std::chrono::seconds ttl{0};  // the value goes after that; 0: it stays
};

// What a scan has found of one record.
struct ScannedRecord {
  std::string_view key;
  std::string_view value;
};

// Told of each finished operation, inside Backend::Poll and Wait. `slot` is the number that the
// operation was submitted with. May submit further operations, but not poll.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // NotFound for an absent key. `value` is good during the call.
  virtual void OnRead(uint32_t slot, const absl::Status& status, std::string_view value) = 0;
  virtual void OnWrite(uint32_t slot, const absl::Status& status) = 0;
  // In the order of their keys. `records` are good during the call.
  virtual void OnScan(uint32_t slot, const absl::Status& status,
                      std::span<const ScannedRecord> records) = 0;
};

// One thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;

  // `sink` is borrowed; it must be set before anything is submitted. With nullptr, what still
  // finishes is told to nobody.
  void set_sink(CompletionSink* sink) { sink_ = sink; }

  // The caller keeps at most the agreed depth in flight. Key and value are borrowed until the
  // operation has finished. On an error nothing was submitted.
  virtual absl::Status SubmitRead(uint32_t slot, std::string_view key) = 0;
  virtual absl::Status SubmitWrite(uint32_t slot, std::string_view key, std::string_view value) = 0;
  // The same; finishes with AlreadyExists or NotFound where the condition does not hold.
  // Unimplemented: this backend knows no conditions and no times to live.
  virtual absl::Status SubmitWriteWith(uint32_t /*slot*/, std::string_view /*key*/,
                                       std::string_view /*value*/,
                                       const WriteOptions& /*options*/) {
    return absl::UnimplementedError("no conditions and no times to live: this backend only writes");
  }
  // Finishes with OnWrite: OK, or NotFound for a key that was absent. Unimplemented: the backend
  // cannot delete.
  virtual absl::Status SubmitDelete(uint32_t /*slot*/, std::string_view /*key*/) {
    return absl::UnimplementedError("no deletes: this backend cannot take keys away");
  }
  // At most `count` records from `start` on, of those whose keys begin with `prefix`; both are
  // borrowed likewise. While a scan is in flight nothing else may be submitted. Unimplemented: the
  // store keeps no order of its keys.
  virtual absl::Status SubmitScan(uint32_t /*slot*/, std::string_view /*start*/,
                                  std::string_view /*prefix*/, uint32_t /*count*/) {
    return absl::UnimplementedError("no scans: this store keeps no order of its keys");
  }

  // Sends what was submitted and takes what has come; never blocks. Returns how many operations
  // finished.
  virtual int Poll() = 0;
  // The same, but waits until at least one has finished, nothing is in flight or time is over.
  virtual int Wait(std::chrono::nanoseconds timeout) = 0;

  // Whether reads return what was written, so that values can be verified. The fabric alone does
  // not.
  virtual bool keeps_values() const { return true; }

  // OK, or why the connection is dead; then nothing more will finish.
  virtual absl::Status status() const = 0;
  virtual BackendCounters counters() const { return {}; }

 protected:
  CompletionSink* sink_ = nullptr;
};

}  // namespace verbena::bench
