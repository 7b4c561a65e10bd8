// Counters with one writing thread each and any number of readers. Adding is a plain add: no locked
// instruction, no shared cache line.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::net {

class Counter {
 public:
  // Only the owning thread.
  void Add(uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void Subtract(uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) - n, std::memory_order_relaxed);
  }
  uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Why a connection ended.
enum class CloseReason : uint8_t {
  kPeerLeft,        // the client disconnected or died
  kTransportError,  // a send or a receive failed
  kReadFailed,      // a READ of a client's large value failed
  kMalformed,       // a message that is none
  kOverGrant,       // more requests than granted
  kStalled,         // the client takes no answers
  kDeviceRemoved,   // its RDMA device is gone
  kStopping,        // the server stops
  kSuperseded,      // its client has made another connection
};
inline constexpr size_t kCloseReasons = 9;
const char* CloseReasonName(CloseReason reason);

// By wire::OpCode and wire::ResultCode; index 0 of the codes is not used.
inline constexpr size_t kOpCodes = 15;
inline constexpr size_t kResultCodes = 13;

struct alignas(64) WorkerCounters {
  Counter connections;         // now
  Counter connections_opened;  // ever
  std::array<Counter, kCloseReasons> closed;
  Counter requests;  // messages
  std::array<std::array<Counter, kResultCodes>, kOpCodes> operations;
  Counter bytes_received;  // in messages
  Counter bytes_sent;      // in messages
  Counter bytes_read;      // large values, by READ
  Counter malformed;
  Counter receives_posted;
  Counter sends_posted;
  Counter reads_posted;
  Counter doorbells;  // calls of ibv_post_send
  Counter completions;
  Counter probes;
  Counter waits_for_room;     // requests that had to wait for a response buffer or a send slot
  Counter staging_in_use;     // pieces of staging memory, now
  Counter waits_for_staging;  // how often a large value had to wait for a piece of it
  Counter pins;               // items kept for clients that READ them, now
  Counter pins_made;          // ever
  Counter pins_refused;       // large values answered without, as there were too many
  Counter pins_expired;       // whose client did not release them in time
  Counter repeated;           // changes that had been made, on an earlier connection
  Counter sleeps;
};

}  // namespace verbena::net
