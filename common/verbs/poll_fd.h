// What every event channel's file descriptor needs. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/macros.h"

namespace verbena::verbs {

// Makes reads of `fd` return EAGAIN instead of waiting.
absl::Status SetNonBlocking(int fd);

// Waits until `fd` is readable, at most `timeout_ms` (-1: for ever; 0: only looks). False if the
// time passed. Goes on after signals with the time that is left.
absl::StatusOr<bool> WaitReadable(int fd, int timeout_ms);

// What `try_get` returns, an absl::StatusOr<std::optional<...>>, as soon as that is an error or an
// event; nullopt when `timeout_ms` (-1: for ever) have passed. `fd` is readable when it has one.
template <typename TryGet>
auto WaitForEvent(int fd, int timeout_ms, TryGet&& try_get) -> decltype(try_get()) {
  const int64_t deadline = MonotonicNanos() + int64_t{timeout_ms} * 1'000'000;
  int left_ms = timeout_ms;
  while (true) {
    VERBENA_ASSIGN_OR_RETURN(auto event, try_get());
    if (event.has_value()) return event;
    VERBENA_ASSIGN_OR_RETURN(const bool readable, WaitReadable(fd, left_ms));
    if (!readable) return std::nullopt;
    if (timeout_ms >= 0) {
      const int64_t left = deadline - MonotonicNanos();
      left_ms = left > 0 ? static_cast<int>((left + 999'999) / 1'000'000) : 0;
    }
  }
}

}  // namespace verbena::verbs
