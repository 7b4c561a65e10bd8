// What is known of the compared systems by their construction. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/config.h"
#include "bench/load/result.h"

namespace verbena::bench {

// How often processors copy a value in one read, the server's and the client's; what an adapter
// moves by itself is none of these. `explanation` is one line.
struct CopyFacts {
  int server = 0;
  int client = 0;
  const char* explanation = "";
};

// Of a system of ComparedSystems(). `soft`: on the software device, which has no adapter: a thread
// of the client's process copies in its place.
CopyFacts CopiesOf(std::string_view system, bool soft);

// Bytes that operations have put on the wire, both directions, and how that is known.
struct WireBytes {
  double per_op = 0;
  std::string source;
};

// Payload of `result`'s operations as computed or counted by this program, without headers of the
// fabric or of TCP/IP. nullopt without operations.
std::optional<WireBytes> PayloadOf(const Config& config, std::string_view system,
                                   const RunResult& result);

}  // namespace verbena::bench
