// Links, GID tables and MTUs.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/checks.h"
#include "common/verbs/device.h"

namespace verbena::cli::doctor {
namespace {

constexpr char kRoceV2[] = "RoCE v2";
// What RoCE puts around the payload of a packet at most, within the interface's MTU: network and
// UDP headers and the transport's own, as the kernel counts them for most drivers and for the paths
// of the connection manager (iboe_get_mtu). Soft-RoCE counts 80 for its port.
constexpr uint64_t kRoceHeaders = 96;
// The interface's MTU that carries 4096 bytes of payload with every driver.
constexpr uint64_t kRecommendedMtu = 4200;

// The largest payload size of RDMA that fits an Ethernet MTU; 0 if none does.
uint64_t PayloadFor(uint64_t ethernet_mtu) {
  constexpr std::array<uint64_t, 5> kSizes = {4096, 2048, 1024, 512, 256};
  for (const uint64_t size : kSizes) {
    if (size + kRoceHeaders <= ethernet_mtu) return size;
  }
  return 0;
}

std::string SetMtu(const std::string& netdev) {
  return absl::StrCat("ip link set ", netdev, " mtu ", kRecommendedMtu,
                      ", and the same or more on every switch and host of this network");
}

bool AnyActive(const Context& context) {
  for (const RdmaDevice& device : context.devices) {
    for (const RdmaPort& port : device.ports) {
      if (port.active()) return true;
    }
  }
  return false;
}

// Whether the interfaces of the port are known in this network namespace.
std::vector<std::string> NetdevsElsewhere(const Context& context, const RdmaPort& port) {
  std::vector<std::string> elsewhere;
  for (const std::string& netdev : port.netdevs) {
    if (!context.system.Exists("/sys/class/net/" + netdev)) elsewhere.push_back(netdev);
  }
  return elsewhere;
}

void CheckLink(const Context& context, const RdmaDevice& device, const RdmaPort& port) {
  const std::string subject = PortName(device, port);
  std::string finding = absl::StrCat(port.state, ", physically ", port.phys_state, ", ",
                                     port.link_layer, ", ", port.rate);
  if (!port.netdevs.empty()) {
    absl::StrAppend(&finding, ", interface ", absl::StrJoin(port.netdevs, ", "));
  }
  if (!port.ethernet()) {
    absl::StrAppend(&finding, ", LID ", port.lid, ", subnet manager at LID ", port.sm_lid);
  }
  if (port.active()) {
    context.Ok("link", subject, finding);
    return;
  }
  std::string remedy;
  if (!port.ethernet() && port.phys_state == "LinkUp") {
    absl::StrAppend(&finding, ": no subnet manager has set the port up");
    remedy =
        "start a subnet manager on the network (a managed switch's, or `apt-get install opensm "
        "&& systemctl start opensm` on one host)";
  } else {
    absl::StrAppend(&finding, ": there is no link");
    remedy = port.netdevs.empty()
                 ? std::string("check cable, transceiver and switch port")
                 : absl::StrCat("ip link set ", port.netdevs.front(),
                                " up; if it stays down (`ip link show ", port.netdevs.front(),
                                "`), check cable, transceiver and switch port");
  }
  // A second port without a cable is no failure.
  context.Add(AnyActive(context) ? Status::kWarn : Status::kFail, "link", subject, finding, remedy,
              {});
}

// InfiniBand: rdma_cm finds the port by the IP address of an IPoIB interface.
// iWARP: by the address of its network interface. Either needs one.
void CheckAddress(const Context& context, const RdmaDevice& device, const RdmaPort& port) {
  const std::string subject = PortName(device, port);
  std::vector<std::string> addresses;
  for (const InterfaceAddress& entry : PortAddresses(context.system, port)) {
    addresses.push_back(entry.address.host());
  }
  if (!addresses.empty()) {
    context.Ok("address", subject, absl::StrJoin(addresses, ", "));
    return;
  }
  const std::string netdev = port.netdevs.empty() ? std::string("") : port.netdevs.front();
  if (!netdev.empty()) {
    context.Warn("address", subject,
                 absl::StrCat("interface ", netdev,
                              " has no IP address, and connections find their device by one"),
                 absl::StrCat("ip address add ADDRESS/PREFIX dev ", netdev));
    return;
  }
  context.Warn("address", subject,
               port.ethernet() ? "no network interface of this port is in this network namespace"
                               : "the port has no IPoIB interface, and connections find their "
                                 "device by an IP address",
               port.ethernet() ? "run in the host's network namespace (docker: --network=host), or "
                                 "move the interface here"
                               : "modprobe ib_ipoib, then ip address add ADDRESS/PREFIX dev ib0");
}

void CheckGids(const Context& context, const RdmaDevice& device, const RdmaPort& port) {
  const std::string subject = PortName(device, port);
  std::vector<std::string> found;
  std::vector<std::string> missing;
  std::string old;  // an address that has an entry of version 1 only
  for (const InterfaceAddress& entry : PortAddresses(context.system, port)) {
    const std::string wanted = GidOfAddress(entry.address);
    const std::string host = entry.address.host();
    const auto is = [&](const Gid& gid, bool v2) {
      return gid.value == wanted && (gid.type == kRoceV2) == v2;
    };
    const auto v2 = std::find_if(port.gids.begin(), port.gids.end(),
                                 [&](const Gid& gid) { return is(gid, true); });
    if (v2 != port.gids.end()) {
      found.push_back(absl::StrCat(host, " at index ", v2->index));
    } else {
      missing.push_back(host);
      if (std::any_of(port.gids.begin(), port.gids.end(),
                      [&](const Gid& gid) { return is(gid, false); })) {
        old = host;
      }
    }
  }
  const std::vector<Figure> figures = {{"gids", static_cast<double>(port.gids.size())},
                                       {"roce_v2_addresses", static_cast<double>(found.size())}};
  if (missing.empty()) {
    if (!found.empty()) {
      context.Ok("gid", subject, "RoCE v2 entries: " + absl::StrJoin(found, ", "), figures);
    }
    return;  // CheckAddress has told that there is no address
  }
  std::string finding =
      absl::StrCat("the GID table has no RoCE v2 entry for ", absl::StrJoin(missing, ", "));
  if (!old.empty()) absl::StrAppend(&finding, " (", old, " has one for RoCE v1 only)");
  const std::string netdev = port.netdevs.front();
  context.Add(
      found.empty() ? Status::kFail : Status::kWarn, "gid", subject, finding,
      old.empty()
          ? absl::StrCat(
                "take the address off and put it on again (ip address del and add), or set "
                "the interface down and up (ip link set ",
                netdev, " down; ip link set ", netdev, " up); `show_gids` or `ibv_devinfo -v -d ",
                device.name, "` shows the table")
          : "the adapter or its firmware does RoCE v1 only, or version 2 is switched off: update "
            "firmware and driver (mlx4: `options mlx4_core roce_mode=2` in /etc/modprobe.d)",
      figures);
}

// The port's MTU (payload of a packet) against the interface's.
void CheckRoceMtu(const Context& context, const RdmaDevice& device, const RdmaPort& port,
                  const std::string& netdev, uint64_t ethernet) {
  const std::string subject = PortName(device, port);
  const auto answers = context.answers.find(device.name);
  if (answers == context.answers.end() || !answers->second.ports.contains(port.number)) return;
  const ibv_port_attr& attr = answers->second.ports.at(port.number);
  const uint64_t active = verbs::MtuBytes(attr.active_mtu);
  const uint64_t most = verbs::MtuBytes(attr.max_mtu);
  const uint64_t fitting = PayloadFor(ethernet);
  const std::vector<Figure> figures = {{"active_mtu_bytes", static_cast<double>(active)},
                                       {"max_mtu_bytes", static_cast<double>(most)},
                                       {"interface_mtu_bytes", static_cast<double>(ethernet)}};
  const std::string both =
      absl::StrCat("RDMA packets carry ", active, " bytes, interface ", netdev, " ", ethernet);
  if (fitting == 0 || active > ethernet) {
    context.Fail("mtu", subject, both + ": packets of RDMA do not fit", SetMtu(netdev), figures);
  } else if (active < std::min(fitting, most)) {
    context.Warn("mtu", subject,
                 absl::StrCat(both, ", which has room for ", std::min(fitting, most),
                              ": the device has not followed the interface"),
                 absl::StrCat("ip link set ", netdev, " down; ip link set ", netdev,
                              " up (connections on it break)"),
                 figures);
  } else if (active < 1024) {
    context.Warn(
        "mtu", subject,
        both + ": small packets cost throughput, and peers at the usual MTU 1500 use 1024",
        absl::StrCat("ip link set ", netdev, " mtu 1500, or for full speed: ", SetMtu(netdev)),
        figures);
  } else if (ethernet > 1500 && active < std::min<uint64_t>(most, 4096)) {
    context.Warn("mtu", subject,
                 absl::StrCat(both, ": large frames, but not large enough for the ",
                              std::min<uint64_t>(most, 4096), " bytes that the device can do"),
                 SetMtu(netdev), figures);
  } else {
    const bool usual = active < most;
    context.Ok("mtu", subject,
               absl::StrCat(both, usual ? absl::StrCat(", as usual for MTU 1500 (", most,
                                                       " bytes would need ", kRecommendedMtu, ")")
                                        : std::string()),
               figures);
  }
}

void CheckMtu(const Context& context, const RdmaDevice& device, const RdmaPort& port) {
  if (port.netdevs.empty() || !port.ethernet()) return;
  // VLAN interfaces share the MTU of the one below; the smallest one counts.
  std::string netdev;
  uint64_t ethernet = UINT64_MAX;
  for (const std::string& name : port.netdevs) {
    const auto mtu = context.system.ReadNumber("/sys/class/net/" + name + "/mtu");
    if (mtu.has_value() && *mtu < ethernet) {
      netdev = name;
      ethernet = *mtu;
    }
  }
  if (netdev.empty()) return;
  if (!device.iwarp) {
    CheckRoceMtu(context, device, port, netdev, ethernet);
    return;
  }
  const std::vector<Figure> figures = {{"interface_mtu_bytes", static_cast<double>(ethernet)}};
  const std::string finding = absl::StrCat("iWARP runs over TCP, whose packets follow interface ",
                                           netdev, " (", ethernet, " bytes)");
  if (ethernet < 1500) {
    context.Warn("mtu", PortName(device, port), finding + ": less than the usual 1500",
                 absl::StrCat("ip link set ", netdev, " mtu 1500"), figures);
  } else {
    context.Ok("mtu", PortName(device, port), finding, figures);
  }
}

}  // namespace

void CheckPorts(const Context& context) {
  for (const RdmaDevice& device : context.devices) {
    if (!device.connects()) continue;  // CheckDevices has told
    for (const RdmaPort& port : device.ports) {
      CheckLink(context, device, port);
      const std::vector<std::string> elsewhere = NetdevsElsewhere(context, port);
      if (!elsewhere.empty()) {
        context.Warn("namespace", PortName(device, port),
                     absl::StrCat("interface ", absl::StrJoin(elsewhere, ", "),
                                  " is not in this network namespace: connections find no route "
                                  "over this device"),
                     "run in the host's network namespace (docker: --network=host), or move the "
                     "interface here; `rdma system` shows how devices follow namespaces");
        continue;
      }
      // Without a link addresses and GIDs come and go.
      if (port.active()) {
        CheckAddress(context, device, port);
        if (port.ethernet() && !device.iwarp) CheckGids(context, device, port);
      }
      CheckMtu(context, device, port);
    }
  }
}

}  // namespace verbena::cli::doctor
