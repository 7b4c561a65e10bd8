// Makes connections: for a client that begins, while it waits, and for one that has lost its
// connection, in a thread of its own, so that nothing that polls ever blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "client/src/greeting.h"
#include "client/src/waiter.h"
#include "common/verbs/verbs_api.h"

namespace verbena::client {

// A connection that is ready for use.
struct Connected {
  std::unique_ptr<Endpoint> endpoint;
  Greeting greeting;
};

// How to make one.
struct Dialling {
  verbs::VerbsApi* api = nullptr;
  EndpointOptions endpoint;  // its deadline is set for each attempt
  GreetOptions greet;        // likewise
};

// Connects and greets; blocks. `deadline`: MonotonicNanos(). Gives up soon (Cancelled) once
// `*cancelled` is set; it may be null.
absl::StatusOr<Connected> Dial(const Dialling& dialling, int64_t deadline,
                               const std::atomic<bool>* cancelled);

// How long to wait before the next attempt: a random time below a limit (so that clients that have
// lost their server together do not come back together), which doubles from 5 ms to 1 s.
class BackOff {
 public:
  BackOff();
  int64_t Next();  // ns
  void Reset() { limit_ = kFirst; }

 private:
  static constexpr int64_t kFirst = 5'000'000;
  static constexpr int64_t kMost = 1'000'000'000;

  int64_t limit_ = kFirst;
  std::mt19937_64 random_;
};

// One attempt at a time. Not thread-safe but for its own thread.
class Reconnector {
 public:
  // Wakes `waiter` (borrowed) when there is an outcome.
  Reconnector(const Dialling& dialling, const Waiter& waiter)
      : dialling_(dialling), waiter_(waiter) {}
  // Gives up an attempt under way, and waits for its thread.
  ~Reconnector();
  Reconnector(const Reconnector&) = delete;
  Reconnector& operator=(const Reconnector&) = delete;

  // Begins an attempt. Only if !running(). ResourceExhausted if no thread can be had.
  absl::Status Start(int64_t deadline);
  // An attempt is under way, or its outcome has not been taken.
  bool running() const { return thread_.joinable(); }
  // The outcome, if it is there.
  std::optional<absl::StatusOr<Connected>> Take();
  // Gives up an attempt under way, without waiting for it, and drops its outcome. There are no more
  // attempts after it.
  void Cancel();
  // In the child after a fork, where its thread is not.
  void Abandon();

 private:
  void Run(int64_t deadline);

  const Dialling dialling_;
  const Waiter& waiter_;
  std::thread thread_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::optional<absl::StatusOr<Connected>> outcome_;  // guarded by mutex_
};

}  // namespace verbena::client
