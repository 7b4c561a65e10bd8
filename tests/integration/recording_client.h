// A client that does random operations and records them.
#pragma once

#include <cstdint>

#include "tests/integration/recording.h"

namespace verbena::testing {

// What a client does.
struct ClientRole {
  uint32_t changes_in_1000 = 0;  // operations that are changes; the others are gets
  uint64_t cache_bytes = 0;
  uint32_t depth = 1;           // operations in flight
  uint32_t filler_bytes = 200;  // longest value, or so, of keys that are not hot
  uint32_t ttl_in_1000 = 0;     // puts that give a time to live, of some milliseconds
};

// Runs as client `number` of the recording until it is stopped. An error ends the process with
// status 1 and a message on stderr.
void RunRecordingClient(Recording& recording, uint32_t number, const ClientRole& role);

}  // namespace verbena::testing
