// The first words on a new connection: hello, what the server says of itself, and the parts of its
// slice that every client needs. Blocks, and uses nothing but the endpoint: so it can be done in
// another thread than the one that will use the connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "client/src/slice_shape.h"
#include "common/wire/messages.h"
#include "verbena/connection.h"

namespace verbena::client {

struct GreetOptions {
  int64_t deadline = 0;         // MonotonicNanos()
  uint32_t operations = 0;      // of the session, as in wire::Hello; 0: no session
  bool want_directory = false;  // READ it, if it is small
  // Gives up (Cancelled) when it is set. May be null.
  const std::atomic<bool>* cancelled = nullptr;
};

// What has been learnt.
struct Greeting {
  wire::Welcome welcome{};
  ServerLimits limits;
  uint32_t max_message = 0;  // bytes
  uint32_t grant = 1;        // requests that may be unanswered
  SliceShape shape;
  std::vector<uint64_t> directory;  // whole, or empty
  uint64_t reads = 0;               // of directory pages
};

// On an endpoint that has just been connected. FailedPrecondition, InternalError: the server cannot
// be used; Unavailable: the connection has failed; DeadlineExceeded.
absl::StatusOr<Greeting> Greet(Endpoint& endpoint, const GreetOptions& options);

}  // namespace verbena::client
