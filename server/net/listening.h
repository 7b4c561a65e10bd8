// Which addresses a server listens on, and which of them an RDMA device has. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/verbs/cm.h"

namespace verbena::net {

// Ids on the devices of a server's addresses while it starts, each with a port of its own. The
// connection manager's library keeps a device open once it has been bound to, and the kernel's
// removal of one waits for that: without an id nobody would hear of it.
struct HeldDevices {
  struct Held {
    NetAddress address;  // any port
    verbs::CmId id;
  };
  verbs::CmChannel channel;  // not valid() if there are none
  std::vector<Held> held;
};

// Whether a failed bind says that there is no device for the address, rather than that something
// is wrong with it.
bool MeansNoDevice(const absl::Status& status);

// The addresses to listen on for one that the user gave: itself, or for a wildcard address on a
// fabric of devices each of the machine's own, since a listener on a wildcard has no device. As
// with TCP, [::] stands for IPv4 too.
std::vector<NetAddress> AddressesToListenOn(const verbs::VerbsApi& api, const NetAddress& address);

// Holds the devices of AddressesToListenOn; nothing of the software device, which does not go.
HeldDevices HoldDevices(verbs::VerbsApi& api, const NetAddress& address);

// The error for an address (or all of a wildcard's: `reasons`) without a device: says which
// addresses have one, or why none can be used. `channel` may be not valid().
absl::Status NoDeviceFor(verbs::VerbsApi& api, verbs::CmChannel& channel, const NetAddress& address,
                         const std::vector<std::string>& reasons);

}  // namespace verbena::net
