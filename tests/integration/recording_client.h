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
  // Puts that give a time to live, of some milliseconds; if not 0, times are also set by
  // themselves and taken away.
  uint32_t ttl_in_1000 = 0;
  // Ahead of its first stretch, while others record theirs, it fills the server with keys that
  // nobody else has, until some have been evicted and some moved: this many small ones, most of
  // which it deletes again, then larger ones and more small ones.
  uint32_t ballast_keys = 0;
  // Whether the software device copies the words of its READs in random order, else whole lines.
  bool read_words = false;
};

// Runs as client `number` of the recording until it is stopped. An error ends the process with
// status 1 and a message on stderr.
void RunRecordingClient(Recording& recording, uint32_t number, const ClientRole& role);

}  // namespace verbena::testing
