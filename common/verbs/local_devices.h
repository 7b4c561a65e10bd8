// Which of this machine's addresses an RDMA device has, as the connection manager sees it.
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/verbs/cm.h"

namespace verbena::verbs {

// Whether the fabric is the software device, which has all of the host's addresses.
bool IsSoft(const VerbsApi& api);

// An id bound to an address. NotFound: no device has it.
absl::StatusOr<CmId> BindToDevice(CmChannel& channel, const NetAddress& address);

// Of this machine's addresses, those that a device has, with its name: "192.168.77.1 (rxe0)".
// No device is opened for it. Empty, too, where the connection manager cannot be asked.
std::vector<std::string> AddressesWithDevice(CmChannel& channel);

// The same in a sentence for people who named another one: "no address of this machine has a device
// (see `rdma link`)" or "these addresses of this machine have one: ...".
std::string AddressesWithDeviceText(CmChannel& channel);

}  // namespace verbena::verbs
