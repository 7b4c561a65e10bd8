// Switches of the software device, read from the environment when the device is first used. All are
// off by default. The hostile ones, for behaviour that the verbs specification allows and that good
// hardware rarely shows, act on operations that this process initiates:
//
//   VERBENA_SOFT_READ_ORDER=random   a READ copies its cache lines in random order
//   VERBENA_SOFT_READ_PAUSE_NS=N     ... with a random pause of up to N ns between lines
//   VERBENA_SOFT_READ_SPLIT=1        ... and each line as eight separate words of 8 bytes
//   VERBENA_SOFT_SEED=N              seed of the random choices (default 1)
//
// And those that make it another kind of device; both ends of a connection must have the same:
//
//   VERBENA_SOFT_LINK_LAYER=infiniband   the port is InfiniBand's: peers are addressed by LID,
//                                        without a GRH (default: ethernet, as RoCE v2)
//   VERBENA_SOFT_TRANSPORT=iwarp         it says that its transport is iWARP, and like an iWARP
//                                        adapter it wants the sinks of READs to allow REMOTE_WRITE
//                                        (default: infiniband, which RoCE v2 is too). Looked at
//                                        when the device is first used, and never again.
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
  bool infiniband = false;  // the link layer
  bool iwarp = false;       // the transport

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
