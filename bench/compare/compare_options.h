// What a user asked of `compare` beyond the workload.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace verbena::bench {

// The systems that can be compared, in the order of reports: verbena, verbena-send, memcached-tcp,
// memcached-unix, redis-tcp, redis-unix, raw-read, raw-send.
const std::vector<std::string>& ComparedSystems();
// One more, measured only if it is asked for by name: a ping-pong over TCP with no store behind it.
inline constexpr char kTcpPingPong[] = "tcp-pingpong";

// Where a rival is.
struct RivalPlace {
  enum class Kind { kOff, kProgram, kTcp, kUnix };
  Kind kind = Kind::kProgram;
  std::string where;  // a program to start, ADDR:PORT, or a socket's path
};

// "off", "ADDR:PORT", "unix:PATH", or a program; several with commas between, of which at most one
// over TCP and one Unix socket, and programs and "off" only alone. InvalidArgument says what is
// wrong with `text`.
absl::StatusOr<std::vector<RivalPlace>> ParseRivals(std::string_view text);

enum class Scenario { kNone, kStorage4k };

struct CompareOptions {
  std::vector<std::string> systems;  // those wanted; empty: all
  std::vector<RivalPlace> redis;
  std::vector<RivalPlace> memcached;
  bool meta_protocol = false;  // of memcached
  Scenario scenario = Scenario::kNone;

  bool Wants(std::string_view system) const;
  bool WantsTcpPingPong() const { return !systems.empty() && Wants(kTcpPingPong); }
};

// What the flags --systems, --redis, --redis_server, --memcached, --memcached_protocol and
// --scenario say. InvalidArgument names the flag, its value and what is allowed.
absl::StatusOr<CompareOptions> CompareOptionsFromFlags();

}  // namespace verbena::bench
