// A store, or the fabric itself, as `compare` drives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/systems/backend.h"

namespace verbena::bench {

// A store that runs, under the name that reports use. Several systems may be one server seen in
// different ways.
struct System {
  std::string name;
  int64_t server_pid = 0;   // 0: not on this host, or not known
  bool loads_data = false;  // whether the records have to be loaded through this system
  // Connection number `index` (below config.connections), with room for `depth` operations.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(uint32_t depth, uint32_t index)> connect;
  std::string interface;  // of the kernel, over which all of its traffic goes; empty: none
};

}  // namespace verbena::bench
