// RoCE congestion settings, where the driver shows them: priority flow control (PFC), explicit
// congestion notification with DCQCN, which mark of a packet decides its priority (trust), and the
// mark that connections get (traffic class).
#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/doctor/checks.h"

namespace verbena::cli::doctor {
namespace {

constexpr int kPriorities = 8;
// The priority and mark that vendors' guides use for RoCE: DSCP 26 (AF31), priority 3.
constexpr int kUsualPriority = 3;
constexpr int kUsualDscp = 26;

struct Settings {
  std::optional<std::set<int>> pfc;    // priorities that are paused instead of dropped
  std::optional<std::set<int>> ecn;    // priorities whose two ends of DCQCN are on
  std::optional<std::string> trust;    // "dscp" or "pcp"
  std::optional<int> traffic_class;    // type of service of new connections
  std::optional<std::string> version;  // of RoCE, by default
  std::map<int, int> dscp_priority;    // where it differs from dscp / 8

  bool empty() const { return !pfc && !ecn && !trust && !traffic_class && !version; }
  int PriorityOf(int dscp) const {
    const auto found = dscp_priority.find(dscp);
    return found == dscp_priority.end() ? dscp / kPriorities : found->second;
  }
};

// The two numbers of words like "26:3" behind the word `name`, and of "3:on" as {3, 1}.
std::optional<std::map<int, int>> PairsAfter(const std::string& text, const std::string& name) {
  const size_t at = text.find(name);
  if (at == std::string::npos) return std::nullopt;
  std::map<int, int> pairs;
  const std::string rest = text.substr(at + name.size());
  for (const absl::string_view word : absl::StrSplit(rest, absl::ByAnyChar(" \n"))) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, ':');
    int key = 0;
    int value = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &key)) continue;
    if (parts[1] == "on") {
      value = 1;
    } else if (parts[1] != "off" && !absl::SimpleAtoi(parts[1], &value)) {
      continue;
    }
    pairs[key] = value;
  }
  return pairs;
}

std::optional<std::set<int>> ReadPfc(const SystemView& system, const std::string& netdev) {
  std::set<int> on;
  if (const auto text = system.Read("/sys/class/net/" + netdev + "/qos/pfc")) {
    // "0 0 0 1 0 0 0 0" or with commas
    int priority = 0;
    for (const absl::string_view word :
         absl::StrSplit(*text, absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
      if (word == "1") on.insert(priority);
      ++priority;
    }
    return on;
  }
  const auto shown = system.RunTool({"dcb", "pfc", "show", "dev", netdev, "prio-pfc"});
  const auto pairs = shown.has_value() ? PairsAfter(*shown, "prio-pfc") : std::nullopt;
  if (!pairs.has_value() || pairs->empty()) return std::nullopt;
  for (const auto& [priority, value] : *pairs) {
    if (value != 0) on.insert(priority);
  }
  return on;
}

// Both ends: the notification point answers marks, the reaction point slows down.
std::optional<std::set<int>> ReadEcn(const SystemView& system, const RdmaDevice& device,
                                     const RdmaPort& port, const std::string& netdev) {
  const std::string folder = "/sys/class/net/" + netdev + "/ecn/";
  if (system.Exists(folder + "roce_np/enable")) {
    std::set<int> on;
    for (int priority = 0; priority < kPriorities; ++priority) {
      const auto np = system.ReadNumber(absl::StrCat(folder, "roce_np/enable/", priority));
      const auto rp = system.ReadNumber(absl::StrCat(folder, "roce_rp/enable/", priority));
      if (np == 1U && rp == 1U) on.insert(priority);
    }
    return on;
  }
  // Broadcom: one switch for the port.
  const auto all = system.ReadNumber(absl::StrCat("/sys/kernel/config/bnxt_re/", device.name,
                                                  "/ports/", port.number, "/cc/ecn_enable"));
  if (!all.has_value()) return std::nullopt;
  std::set<int> on;
  for (int priority = 0; *all != 0 && priority < kPriorities; ++priority) on.insert(priority);
  return on;
}

// The number at the end of "106" or "Global tclass=106".
std::optional<int> LastNumber(const std::optional<std::string>& text) {
  if (!text.has_value()) return std::nullopt;
  const size_t digits = text->find_last_not_of("0123456789");
  int value = 0;
  const std::string number = digits == std::string::npos ? *text : text->substr(digits + 1);
  return absl::SimpleAtoi(number, &value) ? std::optional(value) : std::nullopt;
}

Settings ReadSettings(const SystemView& system, const RdmaDevice& device, const RdmaPort& port,
                      const std::string& netdev) {
  Settings settings;
  settings.pfc = ReadPfc(system, netdev);
  settings.ecn = ReadEcn(system, device, port, netdev);
  settings.trust = system.Read("/sys/class/net/" + netdev + "/qos/trust");
  const auto shown = system.RunTool({"dcb", "-N", "app", "show", "dev", netdev, "dscp-prio"});
  if (shown.has_value()) {
    settings.dscp_priority = PairsAfter(*shown, "dscp-prio").value_or(std::map<int, int>());
  }
  // A table of marks is what makes an adapter go by them.
  if (!settings.trust.has_value() && settings.pfc.has_value() && shown.has_value()) {
    settings.trust = settings.dscp_priority.empty() ? "pcp" : "dscp";
  }
  const std::string config =
      absl::StrCat("/sys/kernel/config/rdma_cm/", device.name, "/ports/", port.number, "/");
  settings.traffic_class = LastNumber(system.Read(config + "default_roce_tos"));
  if (settings.traffic_class.value_or(0) == 0) {
    const auto forced = LastNumber(system.Read(absl::StrCat(
        "/sys/class/infiniband/", device.name, "/tc/", port.number, "/traffic_class")));
    if (forced.has_value()) settings.traffic_class = forced;
  }
  settings.version = system.Read(config + "default_roce_mode");
  return settings;
}

std::string Names(const std::set<int>& priorities) { return absl::StrJoin(priorities, ", "); }

void CheckPfc(const Context& context, const std::string& subject, const std::string& netdev,
              const Settings& settings) {
  if (!settings.pfc.has_value()) return;
  const std::set<int>& on = *settings.pfc;
  if (on.size() == kPriorities) {
    context.Warn("pfc", subject,
                 "priority flow control is on for all priorities: one slow receiver pauses all "
                 "traffic of the network",
                 absl::StrCat("dcb pfc set dev ", netdev, " prio-pfc all:off ", kUsualPriority,
                              ":on, and the same on the switch"));
  } else if (!on.empty()) {
    context.Ok("pfc", subject, "priority flow control is on for priority " + Names(on));
  } else if (settings.ecn.has_value() && !settings.ecn->empty()) {
    context.Ok("pfc", subject, "priority flow control is off; DCQCN alone has to prevent losses");
  } else {
    context.Warn("pfc", subject,
                 "priority flow control is off: congested switches drop packets, and RoCE recovers "
                 "from that slowly",
                 absl::StrCat("dcb pfc set dev ", netdev, " prio-pfc all:off ", kUsualPriority,
                              ":on (with NVIDIA's tools: mlnx_qos -i ", netdev,
                              " --pfc 0,0,0,1,0,0,0,0), and the same on the switch"));
  }
}

void CheckEcn(const Context& context, const RdmaDevice& device, const RdmaPort& port,
              const std::string& netdev, const Settings& settings) {
  if (!settings.ecn.has_value()) return;
  const std::string subject = PortName(device, port);
  // The priorities that matter: those of PFC, else the usual one.
  std::set<int> wanted = settings.pfc.value_or(std::set<int>());
  if (wanted.empty() || wanted.size() == kPriorities) wanted = {kUsualPriority};
  std::set<int> off;
  for (const int priority : wanted) {
    if (!settings.ecn->contains(priority)) off.insert(priority);
  }
  if (off.empty()) {
    context.Ok("ecn", subject,
               "DCQCN (ECN marks, answered by slowing down) is on for priority " + Names(wanted));
    return;
  }
  const bool broadcom = device.kernel_driver == "bnxt_en";
  context.Warn(
      "ecn", subject,
      absl::StrCat("DCQCN is off for priority ", Names(off),
                   ": senders do not slow down before switches drop or pause"),
      broadcom
          ? absl::StrCat("echo 1 > /sys/kernel/config/bnxt_re/", device.name, "/ports/",
                         port.number, "/cc/ecn_enable, and 1 > .../cc/apply")
          : absl::StrCat("echo 1 > /sys/class/net/", netdev, "/ecn/roce_np/enable/", *off.begin(),
                         "; echo 1 > /sys/class/net/", netdev, "/ecn/roce_rp/enable/", *off.begin(),
                         "; and ECN marking on the switch"));
}

void CheckTrust(const Context& context, const std::string& subject, const std::string& netdev,
                const Settings& settings) {
  if (!settings.trust.has_value()) return;
  if (*settings.trust == "dscp") {
    context.Ok("trust", subject, "packets are sorted by DSCP");
    return;
  }
  context.Warn(
      "trust", subject,
      absl::StrCat("packets are sorted by ", *settings.trust,
                   " (the VLAN tag): DSCP is ignored, and untagged RoCE falls into "
                   "priority 0"),
      absl::StrCat("dcb app add dev ", netdev, " dscp-prio ", kUsualDscp, ":", kUsualPriority,
                   " (with NVIDIA's tools: mlnx_qos -i ", netdev, " --trust dscp)"));
}

void CheckTrafficClass(const Context& context, const RdmaDevice& device, const RdmaPort& port,
                       const Settings& settings) {
  const bool lossless =
      settings.pfc.has_value() && !settings.pfc->empty() && settings.pfc->size() < kPriorities;
  if (!settings.traffic_class.has_value() && !lossless) return;
  const std::string subject = PortName(device, port);
  const std::optional<uint32_t>& wanted_tos = context.options.connection.tos;
  const int tos =
      wanted_tos.has_value() ? static_cast<int>(*wanted_tos) : settings.traffic_class.value_or(0);
  const int dscp = tos / 4;
  const int priority = settings.PriorityOf(dscp);
  const std::string finding =
      absl::StrCat("connections ", wanted_tos.has_value() ? "get" : "without --tos get",
                   " type of service ", tos, " (DSCP ", dscp, ", priority ", priority, ")");
  const std::vector<Figure> figures = {{"tos", tos}, {"dscp", dscp}, {"priority", priority}};
  if (!lossless || settings.pfc->contains(priority)) {
    context.Ok("traffic_class", subject, finding, figures);
    return;
  }
  int wanted = *settings.pfc->begin() * kPriorities + 2;
  for (const auto& [mark, mapped] : settings.dscp_priority) {
    if (settings.pfc->contains(mapped)) wanted = mark;
  }
  context.Warn(
      "traffic_class", subject,
      absl::StrCat(finding, ", but flow control is on for priority ", Names(*settings.pfc),
                   ": they are not protected"),
      absl::StrCat("--tos=", wanted * 4,
                   " for verbena-server and its clients, or for all programs: cma_roce_tos "
                   "-d ",
                   device.name, " -p ", port.number, " -t ", wanted * 4),
      figures);
}

void CheckVersion(const Context& context, const RdmaDevice& device, const RdmaPort& port,
                  const Settings& settings) {
  if (!settings.version.has_value()) return;
  if (absl::StrContains(*settings.version, "v2")) {
    context.Ok("roce_version", PortName(device, port), "connections use " + *settings.version);
    return;
  }
  const std::string path =
      absl::StrCat("/sys/kernel/config/rdma_cm/", device.name, "/ports/", port.number);
  context.Warn("roce_version", PortName(device, port),
               absl::StrCat("connections use ", *settings.version,
                            " by default, which no router passes on and which has no DSCP"),
               absl::StrCat("echo 'RoCE v2' > ", path, "/default_roce_mode"));
}

}  // namespace

void CheckCongestion(const Context& context) {
  for (const RdmaDevice& device : context.devices) {
    if (device.iwarp || !device.connects()) continue;  // TCP does it, or nobody
    for (const RdmaPort& port : device.ports) {
      if (!port.ethernet() || port.netdevs.empty()) continue;
      const std::string subject = PortName(device, port);
      const std::string& netdev = port.netdevs.front();
      const Settings settings = ReadSettings(context.system, device, port, netdev);
      if (settings.empty()) {
        context.Ok("congestion", subject,
                   device.software
                       ? "Soft-RoCE has no flow or congestion control to set"
                       : "the driver shows no settings of PFC, ECN and trust here; the vendor's "
                         "tool tells (docs/choosing-a-fabric.md says what they should be)");
        continue;
      }
      CheckPfc(context, subject, netdev, settings);
      CheckEcn(context, device, port, netdev, settings);
      CheckTrust(context, subject, netdev, settings);
      CheckTrafficClass(context, device, port, settings);
      CheckVersion(context, device, port, settings);
    }
  }
}

}  // namespace verbena::cli::doctor
