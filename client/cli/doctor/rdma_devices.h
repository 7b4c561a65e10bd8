// The RDMA devices that the kernel has, as its files show them (no libibverbs involved).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/doctor/system_view.h"

namespace verbena::cli::doctor {

// The names that one kind of adapter has in different places.
struct DriverNames {
  const char*
      kernel;  // what /sys/.../device/driver points to; for network adapters that of the NIC
  const char* module;    // the kernel module that makes the RDMA device
  const char* provider;  // the library and .driver file in userspace
  // Locked memory counts against RLIMIT_MEMLOCK whatever capabilities the process has. (The
  // kernel's common code for user memory lets CAP_IPC_LOCK pass; no query tells who counts
  // himself.)
  bool memlock_binds_root = false;
};
// nullptr if the driver is not known.
const DriverNames* FindDriver(const std::string& kernel_name);

struct Gid {
  int index = 0;
  std::string value;   // as in sysfs: eight groups of four hexadecimal digits
  std::string type;    // "RoCE v2", "IB/RoCE v1"
  std::string netdev;  // "" where the driver has none
};

struct RdmaPort {
  int number = 0;
  std::string path;        // of its folder
  std::string state;       // "ACTIVE"
  std::string phys_state;  // "LinkUp"
  std::string link_layer;  // "Ethernet", "InfiniBand"
  std::string rate;        // "100 Gb/sec (4X EDR)"
  uint64_t lid = 0;
  uint64_t sm_lid = 0;
  std::vector<Gid> gids;             // those that are in use
  std::vector<std::string> netdevs;  // network interfaces on this port, sorted

  bool active() const { return state == "ACTIVE"; }
  bool ethernet() const { return link_layer == "Ethernet"; }
};

struct RdmaDevice {
  std::string name;
  const DriverNames* driver = nullptr;  // nullptr: not known
  std::string kernel_driver;            // "mlx5_core", "rxe"; "" if not known
  bool software = false;                // Soft-RoCE or siw
  std::string uverbs;                   // its file in /dev/infiniband, "uverbs0"; "" if none
  bool iwarp = false;
  std::vector<RdmaPort> ports;

  // Whether it has reliable connections and is known to the connection manager. EFA is not: its
  // queue pairs are datagrams.
  bool connects() const { return kernel_driver != "efa"; }
  // RLIMIT_MEMLOCK holds even for root.
  bool memlock_binds_root() const { return driver != nullptr && driver->memlock_binds_root; }
};

// Sorted by name; empty where the kernel has none.
std::vector<RdmaDevice> FindRdmaDevices(const SystemView& system);

// The GID of an IP address as sysfs writes it (IPv4 is mapped into IPv6).
std::string GidOfAddress(const NetAddress& address);

// "mlx5_0/1"
std::string PortName(const RdmaDevice& device, const RdmaPort& port);

// Addresses of the port's interfaces that connections are made with: neither loopback nor
// link-local.
std::vector<InterfaceAddress> PortAddresses(const SystemView& system, const RdmaPort& port);

}  // namespace verbena::cli::doctor
