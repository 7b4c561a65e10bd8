// The two things that every event channel's file descriptor needs. Thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::verbs {

// Makes reads of `fd` return EAGAIN instead of waiting.
absl::Status SetNonBlocking(int fd);

// Waits until `fd` is readable, at most `timeout_ms` (-1: for ever; 0: only looks). False if the
// time passed. Goes on after signals with the time that is left.
absl::StatusOr<bool> WaitReadable(int fd, int timeout_ms);

}  // namespace verbena::verbs
