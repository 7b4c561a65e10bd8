// What a port of a device is, in words and units for people: link, addresses, MTU, speed.
// Thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/verbs/device.h"

namespace verbena::verbs {

// "active", "down", "initializing", "armed" or "no state".
const char* PortStateName(ibv_port_state state);

// Gigabits per second of all lanes together, from the codes of ibv_port_attr; 0: unknown code.
double PortGbps(uint8_t active_width, uint8_t active_speed);

// As IPv6 addresses are written: "fe80::1", "::ffff:192.168.77.1".
std::string FormatGid(const ibv_gid& gid);

// "IB", "RoCE v1" or "RoCE v2".
const char* GidTypeName(uint32_t gid_type);

struct PortInfo {
  int port = 0;
  bool active = false;
  std::string state;       // PortStateName
  std::string link_layer;  // LinkLayerName
  uint32_t mtu = 0;        // bytes, the active one
  double gbps = 0;
  uint16_t lid = 0;     // InfiniBand
  uint16_t sm_lid = 0;  // InfiniBand: where the subnet manager is
  int gids = 0;         // entries of the GID table
};
absl::StatusOr<PortInfo> DescribePort(const DeviceView& device, int port);

struct GidInfo {
  std::string gid;   // FormatGid; empty: the device has none
  int index = -1;    // in the port's table; -1: not found there
  std::string type;  // GidTypeName; empty: not known
};
// The entry of the port's table that holds `gid`. Where it stands there as RoCE v1 and v2, the
// second: it is what the connection manager takes, unless the administrator has it take v1
// (configfs: default_roce_mode). Which one a connection has is in its DescribeConnection.
GidInfo DescribeGid(const DeviceView& device, const PortInfo& port, const ibv_gid& gid);

// "rxe0, port 1 (active), link layer Ethernet, 10 Gb/s, MTU 1024"; LIDs on InfiniBand.
std::string ToString(const std::string& device, const PortInfo& port);
// "GID ::ffff:192.168.77.1 (index 1, RoCE v2)".
std::string ToString(const GidInfo& gid);

}  // namespace verbena::verbs
