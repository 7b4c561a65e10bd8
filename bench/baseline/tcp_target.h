// The other end of a ping-pong over TCP: what a socket costs with no store behind it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/net_address.h"

namespace verbena::bench {

// Begins each ping, in this machine's order; the rest of it may be anything.
struct TcpPing {
  uint32_t size;    // bytes of the ping, this header included
  uint32_t answer;  // bytes of the pong that is wanted
};
inline constexpr uint32_t kMostTcpPing = 4 << 20;  // of either

// The whole life of the target: listens on `address` (port 0: a free one), prints "PORT n" and
// answers every connection until it is killed. A connection that sends what is no ping is closed.
absl::Status ServeTcpTarget(NetAddress address);

}  // namespace verbena::bench
