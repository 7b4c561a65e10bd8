// The kernel's connection manager asked without librdmacm, which opens a device as soon as an id is
// bound to one of its addresses and never closes it again. A process that has a device open and no
// id on it is not told when the device goes, and its removal waits until the process ends.
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/net_address.h"

namespace verbena::verbs {

// For each of `addresses` the name of the RDMA device that has it, "" where none has. No device is
// opened. Unavailable, with the reason, if the connection manager cannot be asked.
absl::StatusOr<std::vector<std::string>> DevicesOfAddresses(
    const std::vector<NetAddress>& addresses);

}  // namespace verbena::verbs
