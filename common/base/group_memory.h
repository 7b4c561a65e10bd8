// What the control group of this process (a container's, a systemd unit's) may take of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace verbena {

struct GroupMemory {
  uint64_t bytes = 0;
  std::string file;  // that has the limit
};

// The least limit of the group and those around it, of version 2 (memory.max) and version 1
// (memory.limit_in_bytes); nullopt if there is none. How much of it is used is not looked at: page
// cache counts as used but is given up when memory is wanted. `root` comes before all paths ("" is
// the machine itself). Thread-safe.
std::optional<GroupMemory> LeastGroupMemory(const std::string& root = "");

}  // namespace verbena
