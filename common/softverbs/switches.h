// Hostile switches of the software device: behaviour that the verbs specification allows and that
// good hardware rarely shows. All are off by default. They act on this process only (on operations
// that it initiates) and are read from the environment when the device is first used:
//
//   VERBENA_SOFT_READ_ORDER=random   a READ copies its cache lines in random order
//   VERBENA_SOFT_READ_PAUSE_NS=N     ... with a random pause of up to N ns between lines
//   VERBENA_SOFT_READ_SPLIT=1        ... and each line as eight separate words of 8 bytes
//   VERBENA_SOFT_SEED=N              seed of the random choices (default 1)
//
// Thread-safe.
#pragma once

#include <cstdint>

namespace verbena::softverbs {

struct Switches {
  bool read_random_order = false;
  bool read_split_words = false;
  uint32_t read_pause_ns = 0;
  uint64_t seed = 1;

  // Whether a READ takes the slow, hostile path.
  bool HostileReads() const { return read_random_order || read_split_words || read_pause_ns > 0; }
};

// The values in force. The first call reads the environment.
Switches CurrentSwitches();

// Replaces the values; operations that start later obey them.
void SetSwitches(const Switches& switches);

// Parses the environment variables above; unknown values are logged and ignored.
Switches SwitchesFromEnvironment();

}  // namespace verbena::softverbs
