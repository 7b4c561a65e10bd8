// Bytes on the wire as the kernel counts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace verbena::bench {

// Bytes that have gone out of a network interface, frames' headers included: everybody's. On "lo"
// each byte goes out once. nullopt if there is no such interface. `root` is where sysfs is.
std::optional<uint64_t> InterfaceBytes(const std::string& interface,
                                       const std::string& root = "/sys");

// Bytes that an RDMA device has sent and received on its ports: everybody's. nullopt if it does not
// count them, as most software drivers.
std::optional<uint64_t> RdmaDeviceBytes(const std::string& device,
                                        const std::string& root = "/sys");

}  // namespace verbena::bench
