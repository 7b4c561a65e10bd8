// What a connection waits on: one descriptor for the connection's whole life, whatever becomes of
// the verbs objects behind it.
//
// An epoll descriptor that watches the endpoint's completion channel and its connection manager's
// channel (both replaceable), a timer, and a counter by which other threads wake the one that
// waits. It is readable when any of these has something; so it fits into another epoll, poll,
// libuv or asio.
//
// Not thread-safe, except Wake.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace verbena::client {

class Waiter {
 public:
  // Descriptors that are not the waiter's own.
  enum class Source : uint8_t { kCompletions, kEvents };

  struct Ready {
    bool completions = false;  // the completion channel has an event: take it
    bool events = false;       // the connection manager has an event
    bool timer = false;        // the time that WakeAt named has come
    bool woken = false;        // Wake was called
    bool any() const { return completions || events || timer || woken; }
  };

  // ResourceExhausted if no descriptors can be had; it says how many are allowed.
  static absl::StatusOr<std::unique_ptr<Waiter>> Create();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Readable when Check would find something. The same descriptor for the waiter's whole life.
  int fd() const { return epoll_.get(); }

  // Watches `fd` (borrowed; -1: nothing) in place of what was watched as this source before. A
  // descriptor is to be taken out before it is closed: another process may have a copy of it.
  absl::Status Watch(Source source, int fd);

  // Sleeps until something is ready or `deadline` (MonotonicNanos) has passed; a signal handler
  // ends it too. Timer and wake-ups are taken by this, the two channels are left as they are.
  Ready Wait(int64_t deadline);
  // The same without sleeping.
  Ready Check() { return Take(0); }

  // The descriptor becomes readable at `deadline` (MonotonicNanos; in the past: at once; INT64_MAX:
  // not because of this call). A time that was named before and comes earlier stays, so that moving
  // a deadline on costs nothing; a waiter may be woken too early, never too late.
  void WakeAt(int64_t deadline);
  // Makes the descriptor readable now, and ends a Wait that another thread is in. Thread-safe and
  // safe in a signal handler.
  void Wake() const;

 private:
  // What epoll hands back, beside the sources' own numbers.
  static constexpr uint32_t kTimer = 2;
  static constexpr uint32_t kWake = 3;

  Waiter(UniqueFd epoll, UniqueFd timer, UniqueFd wake);
  absl::Status Add(int fd, uint32_t what);
  Ready Take(int timeout_ms);

  UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd wake_;
  std::array<int, 2> watched_{-1, -1};  // by source
  int64_t timer_at_ = INT64_MAX;        // what the timer is set to; INT64_MAX: not set
};

}  // namespace verbena::client
