#include "client/cli/doctor/rdma_devices.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace verbena::cli::doctor {
namespace {

constexpr DriverNames kDrivers[] = {
    {"mlx5_core", "mlx5_ib", "mlx5"},
    {"mlx4_core", "mlx4_ib", "mlx4"},
    {"bnxt_en", "bnxt_re", "bnxt_re"},
    {"ice", "irdma", "irdma"},
    {"i40e", "irdma", "irdma"},
    {"cxgb4", "iw_cxgb4", "cxgb4"},
    {"efa", "efa", "efa"},
    {"erdma", "erdma", "erdma"},
    {"hfi1", "hfi1", "hfi1verbs"},
    {"hns3", "hns_roce_hw_v2", "hns"},
    {"ib_mthca", "ib_mthca", "mthca"},
    {"ib_qib", "ib_qib", "ipathverbs"},
    {"mana", "mana_ib", "mana"},
    {"be2net", "ocrdma", "ocrdma"},
    {"qede", "qedr", "qedr"},
    {"vmw_pvrdma", "vmw_pvrdma", "vmw_pvrdma"},
    {"rxe", "rdma_rxe", "rxe"},
    {"siw", "siw", "siw", /*memlock_binds_root=*/true},
};

constexpr absl::string_view kNoGid = "0000:0000:0000:0000:0000:0000:0000:0000";

// "4: ACTIVE" -> "ACTIVE"
std::string AfterNumber(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(": ", 1));
  return parts.back();
}

std::string Trimmed(const std::optional<std::string>& text) { return text.value_or(""); }

std::vector<Gid> FindGids(const SystemView& system, const std::string& port) {
  std::vector<Gid> gids;
  for (const std::string& name : system.List(port + "/gids")) {
    Gid gid;
    gid.value = Trimmed(system.Read(absl::StrCat(port, "/gids/", name)));
    if (!absl::SimpleAtoi(name, &gid.index) || gid.value.empty() || gid.value == kNoGid) continue;
    gid.type = Trimmed(system.Read(absl::StrCat(port, "/gid_attrs/types/", name)));
    gid.netdev = Trimmed(system.Read(absl::StrCat(port, "/gid_attrs/ndevs/", name)));
    gids.push_back(std::move(gid));
  }
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

// iWARP's only GID begins with the hardware address of the interface.
std::string HardwareAddress(const Gid& gid) {
  const std::string digits = absl::StrReplaceAll(gid.value, {{":", ""}});
  if (digits.size() != 32) return "";
  std::string text;
  for (size_t i = 0; i < 12; i += 2) {
    absl::StrAppend(&text, i == 0 ? "" : ":", digits.substr(i, 2));
  }
  return text;
}

std::vector<std::string> FindNetdevs(const SystemView& system, const RdmaDevice& device,
                                     const RdmaPort& port) {
  std::set<std::string> names;
  for (const Gid& gid : port.gids) {
    if (!gid.netdev.empty()) names.insert(gid.netdev);
  }
  const std::string folder = "/sys/class/infiniband/" + device.name;
  // Soft-RoCE names its interface.
  if (const auto parent = system.Read(folder + "/parent")) names.insert(*parent);
  if (device.iwarp && !port.gids.empty()) {
    const std::string wanted = HardwareAddress(port.gids.front());
    for (const std::string& netdev : system.List("/sys/class/net")) {
      if (system.Read("/sys/class/net/" + netdev + "/address") == wanted) names.insert(netdev);
    }
  }
  if (names.empty()) {
    // All interfaces of an adapter; dev_port (from 0) tells which of its ports they are on.
    for (const std::string& netdev : system.List(folder + "/device/net")) {
      const auto dev_port = system.ReadNumber("/sys/class/net/" + netdev + "/dev_port");
      const bool only_port = device.ports.size() < 2 && port.number == 1;
      if (only_port || dev_port == static_cast<uint64_t>(port.number - 1)) names.insert(netdev);
    }
  }
  return {names.begin(), names.end()};
}

RdmaPort FindPort(const SystemView& system, const RdmaDevice& device, const std::string& name) {
  RdmaPort port;
  port.path = absl::StrCat("/sys/class/infiniband/", device.name, "/ports/", name);
  if (!absl::SimpleAtoi(name, &port.number)) port.number = 0;
  port.state = AfterNumber(Trimmed(system.Read(port.path + "/state")));
  port.phys_state = AfterNumber(Trimmed(system.Read(port.path + "/phys_state")));
  port.link_layer = Trimmed(system.Read(port.path + "/link_layer"));
  port.rate = Trimmed(system.Read(port.path + "/rate"));
  port.lid = system.ReadNumber(port.path + "/lid").value_or(0);
  port.sm_lid = system.ReadNumber(port.path + "/sm_lid").value_or(0);
  port.gids = FindGids(system, port.path);
  return port;
}

// The kernel's driver of a software device, which has no `device` link.
std::string SoftwareDriver(const SystemView& system, const std::string& folder, bool iwarp) {
  const std::string description = Trimmed(system.Read(folder + "/node_desc"));
  if (system.Exists(folder + "/parent") || description == "rxe") return "rxe";
  if (iwarp && description.find("Software iWARP") != std::string::npos) return "siw";
  return "";
}

}  // namespace

const DriverNames* FindDriver(const std::string& kernel_name) {
  const auto* const found =
      std::find_if(std::begin(kDrivers), std::end(kDrivers),
                   [&](const DriverNames& names) { return names.kernel == kernel_name; });
  return found == std::end(kDrivers) ? nullptr : found;
}

std::vector<RdmaDevice> FindRdmaDevices(const SystemView& system) {
  std::vector<RdmaDevice> devices;
  for (const std::string& name : system.List("/sys/class/infiniband")) {
    const std::string folder = "/sys/class/infiniband/" + name;
    RdmaDevice device;
    device.name = name;
    // "1: CA", "4: RNIC"
    device.iwarp = AfterNumber(Trimmed(system.Read(folder + "/node_type"))) == "RNIC";
    device.kernel_driver = SoftwareDriver(system, folder, device.iwarp);
    device.software = !device.kernel_driver.empty();
    if (!device.software) device.kernel_driver = system.LinkName(folder + "/device/driver");
    device.driver = FindDriver(device.kernel_driver);
    for (const std::string& uverbs : system.List("/sys/class/infiniband_verbs")) {
      if (system.Read("/sys/class/infiniband_verbs/" + uverbs + "/ibdev") == name) {
        device.uverbs = uverbs;
      }
    }
    for (const std::string& port : system.List(folder + "/ports")) {
      device.ports.push_back(FindPort(system, device, port));
    }
    for (RdmaPort& port : device.ports) port.netdevs = FindNetdevs(system, device, port);
    devices.push_back(std::move(device));
  }
  return devices;
}

std::string GidOfAddress(const NetAddress& address) {
  unsigned char bytes[16] = {};
  if (address.family() == AF_INET6) {
    std::memcpy(bytes, &reinterpret_cast<const sockaddr_in6*>(address.addr())->sin6_addr, 16);
  } else {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes + 12, &reinterpret_cast<const sockaddr_in*>(address.addr())->sin_addr, 4);
  }
  std::string text;
  for (int i = 0; i < 16; i += 2) {
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  }
  return text;
}

std::string PortName(const RdmaDevice& device, const RdmaPort& port) {
  return absl::StrCat(device.name, "/", port.number);
}

std::vector<InterfaceAddress> PortAddresses(const SystemView& system, const RdmaPort& port) {
  std::vector<InterfaceAddress> addresses;
  for (const InterfaceAddress& candidate : system.Addresses()) {
    const bool here = std::find(port.netdevs.begin(), port.netdevs.end(), candidate.interface) !=
                      port.netdevs.end();
    const bool link_local =
        candidate.address.family() == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(
            &reinterpret_cast<const sockaddr_in6*>(candidate.address.addr())->sin6_addr);
    if (here && !link_local && !candidate.address.IsLoopback()) addresses.push_back(candidate);
  }
  return addresses;
}

}  // namespace verbena::cli::doctor
