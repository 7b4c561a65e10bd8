// Packages, kernel modules, devices and their providers in userspace.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/doctor/checks.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/device.h"

namespace verbena::cli::doctor {
namespace {

constexpr char kDriverFolder[] = "/etc/libibverbs.d";

// The version of an installed Debian package.
std::optional<std::string> PackageVersion(const std::string& status, const std::string& package) {
  const size_t at = status.find(absl::StrCat("Package: ", package, "\n"));
  if (at == std::string::npos || (at != 0 && status[at - 1] != '\n')) return std::nullopt;
  const std::string paragraph = status.substr(at, status.find("\n\n", at) - at);
  if (paragraph.find("Status: install ok installed") == std::string::npos) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(paragraph, '\n')) {
    if (absl::ConsumePrefix(&line, "Version: ")) return std::string(line);
  }
  return std::nullopt;
}

// The folders where libibverbs looks for providers, on Debian's and other systems.
std::vector<std::string> ProviderFolders(const SystemView& system) {
  std::vector<std::string> folders = {"/usr/lib64/libibverbs", "/usr/lib/libibverbs"};
  for (const std::string& name : system.List("/usr/lib")) {
    if (absl::StrContains(name, "-linux-gnu")) {
      folders.push_back("/usr/lib/" + name + "/libibverbs");
    }
  }
  return folders;
}

bool HasProviderLibrary(const SystemView& system, const std::string& provider) {
  const std::string prefix = absl::StrCat("lib", provider, "-rdmav");
  for (const std::string& folder : ProviderFolders(system)) {
    for (const std::string& file : system.List(folder)) {
      if (absl::StartsWith(file, prefix)) return true;
    }
  }
  return false;
}

// A module that is loaded, or built into the kernel.
bool HasModule(const SystemView& system, const std::string& module) {
  if (system.Exists("/sys/module/" + module)) return true;
  // Built in and without parameters: known by what it makes.
  if (module == "ib_uverbs") return system.Exists("/sys/class/infiniband_verbs");
  return (module == "rdma_ucm" || module == "rdma_cm") && system.Exists("/sys/class/misc/rdma_cm");
}

// Network adapters that can do RDMA, but whose RDMA module is not loaded: "eth0 (mlx5_core)".
struct IdleAdapter {
  std::string netdev;
  const DriverNames* driver;
};
std::optional<IdleAdapter> FindIdleAdapter(const SystemView& system) {
  for (const std::string& netdev : system.List("/sys/class/net")) {
    const DriverNames* const driver =
        FindDriver(system.LinkName("/sys/class/net/" + netdev + "/device/driver"));
    if (driver != nullptr && !HasModule(system, driver->module)) return IdleAdapter{netdev, driver};
  }
  return std::nullopt;
}

// A network interface to put Soft-RoCE on.
std::string SomeInterface(const SystemView& system) {
  for (const InterfaceAddress& entry : system.Addresses()) {
    if (entry.address.family() == AF_INET && !entry.address.IsLoopback()) return entry.interface;
  }
  return "eth0";
}

void CheckNoDevice(const Context& context) {
  const SystemView& system = context.system;
  std::string finding = "this machine has no RDMA device (/sys/class/infiniband is empty)";
  std::string remedy;
  if (const auto idle = FindIdleAdapter(system)) {
    absl::StrAppend(&finding, "; interface ", idle->netdev, " (driver ", idle->driver->kernel,
                    ") can do RDMA, but kernel module ", idle->driver->module, " is not loaded");
    remedy = absl::StrCat("modprobe ", idle->driver->module);
  } else {
    const std::string netdev = SomeInterface(system);
    remedy = absl::StrCat(
        "for Soft-RoCE on a network interface (as root): `modprobe rdma_rxe && "
        "rdma link add rxe0 type rxe netdev ",
        netdev, "`; real adapters: see docs/choosing-a-fabric.md");
  }
  if (context.options.connection.fabric == "verbs") {
    context.Fail("devices", "", finding + ", and --fabric=verbs needs one", remedy);
  } else {
    context.Warn("devices", "",
                 finding +
                     "; clients and server on one host can use the software device "
                     "(--fabric=soft)",
                 remedy);
  }
}

// Why libibverbs does not show a device that the kernel has.
void FailProvider(const Context& context, const RdmaDevice& device) {
  const SystemView& system = context.system;
  std::string finding = absl::StrCat("libibverbs does not show this device of the kernel: ");
  const char* const remedy =
      "apt-get install --reinstall ibverbs-providers (dnf: rdma-core, libibverbs)";
  if (device.driver == nullptr) {
    absl::StrAppend(&finding, "no provider is known for kernel driver '", device.kernel_driver,
                    "'");
    context.Fail("provider", device.name, finding,
                 "install the vendor's rdma-core package; `IBV_SHOW_WARNINGS=1 ibv_devices` tells "
                 "what libibverbs looks for");
    return;
  }
  const std::string provider = device.driver->provider;
  const std::string driver_file = absl::StrCat(kDriverFolder, "/", provider, ".driver");
  if (!system.Exists(driver_file)) {
    absl::StrAppend(&finding, "provider ", provider, " is missing (there is no ", driver_file, ")");
  } else if (!HasProviderLibrary(system, provider)) {
    absl::StrAppend(&finding, "provider ", provider, " is missing (", driver_file, " is there, lib",
                    provider, "-rdmav*.so is in no libibverbs folder)");
  } else {
    absl::StrAppend(&finding, "provider ", provider,
                    " is installed, but could not be loaded: it belongs to another version of "
                    "rdma-core, or does not know this adapter");
    context.Fail("provider", device.name, finding,
                 absl::StrCat("see why with `IBV_SHOW_WARNINGS=1 ibv_devices`; then ", remedy));
    return;
  }
  context.Fail("provider", device.name, finding, remedy);
}

// Whether the device files can be used; says so if not.
bool CheckDeviceFiles(const Context& context, const RdmaDevice& device) {
  for (const std::string& file : {device.uverbs, std::string("rdma_cm")}) {
    const std::string path = absl::StrCat("/dev/infiniband/", file);
    const Access access = file.empty() ? Access::kMissing : context.system.DeviceFile(path);
    if (access == Access::kUsable) continue;
    if (access == Access::kDenied) {
      context.Fail("device_files", device.name, "no permission to open " + path,
                   "on the machine: chmod 0666 " + path +
                       " (rdma-core's udev rules do that at boot: `udevadm trigger`); in a "
                       "container: --device=/dev/infiniband, and its device rules must allow it");
    } else {
      context.Fail("device_files", device.name,
                   file.empty() ? "the device has no uverbs file" : path + " is missing",
                   "on the machine: modprobe -a ib_uverbs rdma_ucm; in a container: run it with "
                   "--device=/dev/infiniband (Kubernetes: a device plugin for RDMA)");
    }
    return false;
  }
  return true;
}

void TellUnusable(const Context& context, const RdmaDevice& device) {
  const bool other = std::any_of(context.devices.begin(), context.devices.end(),
                                 [](const RdmaDevice& each) { return each.connects(); });
  context.Add(other || context.options.connection.fabric != "verbs" ? Status::kWarn : Status::kFail,
              "device", device.name,
              absl::StrCat("kernel driver ", device.kernel_driver,
                           " has no reliable connections and is unknown to the connection manager: "
                           "Verbena cannot use this device"),
              "use an InfiniBand, RoCE or iWARP adapter, or the software device on one host "
              "(--fabric=soft)",
              {});
}

void AskDevice(Context& context, const RdmaDevice& device) {
  const auto opened = verbs::Device::Open(context.verbs, device.name);
  if (!opened.ok()) {
    context.Fail("device", device.name, std::string(opened.status().message()),
                 "look at the kernel's log (dmesg) for this device");
    return;
  }
  DeviceAnswers answers;
  const auto attributes = opened->view().Query();
  if (!attributes.ok()) {
    context.Fail("device", device.name, std::string(attributes.status().message()),
                 "look at the kernel's log (dmesg) for this device");
    return;
  }
  answers.attributes = *attributes;
  answers.stages_reads =
      verbs::Capabilities(opened->view().transport(), *attributes).read_sink_needs_remote_write();
  for (const RdmaPort& port : device.ports) {
    const auto attr = opened->view().QueryPort(static_cast<uint8_t>(port.number));
    if (attr.ok()) answers.ports[port.number] = *attr;
  }
  context.answers[device.name] = answers;
  context.Ok("device", device.name,
             absl::StrCat(device.iwarp                      ? "iWARP"
                          : device.ports.empty()            ? "no port"
                          : device.ports.front().ethernet() ? "RoCE"
                                                            : "InfiniBand",
                          device.software ? ", software" : "", ", kernel driver ",
                          device.kernel_driver.empty() ? "unknown" : device.kernel_driver,
                          ", firmware ", answers.attributes.fw_ver, ", ", device.ports.size(),
                          device.ports.size() == 1 ? " port" : " ports"));
}

}  // namespace

void CheckPackages(const Context& context) {
  const SystemView& system = context.system;
  size_t providers = 0;
  for (const std::string& file : system.List(kDriverFolder)) {
    const absl::string_view name = absl::StripSuffix(file, ".driver");
    if (name.size() < file.size() && HasProviderLibrary(system, std::string(name))) ++providers;
  }
  const std::vector<Figure> figures = {{"providers", static_cast<double>(providers)}};
  const Status missing = context.devices.empty() ? Status::kWarn : Status::kFail;
  const auto dpkg = system.Read("/var/lib/dpkg/status");
  if (!dpkg.has_value()) {
    // Not Debian's way of keeping packages: what they install tells as much.
    if (providers > 0) {
      context.Ok("packages", "", absl::StrCat(providers, " providers of libibverbs"), figures);
    } else {
      context.Add(missing, "packages", "", "no provider of libibverbs is installed",
                  "install rdma-core and the providers: dnf install rdma-core libibverbs, or "
                  "apt-get install rdma-core ibverbs-providers",
                  figures);
    }
    return;
  }
  const auto core = PackageVersion(*dpkg, "rdma-core");
  const auto userspace = PackageVersion(*dpkg, "ibverbs-providers");
  if (core.has_value() && userspace.has_value() && providers > 0) {
    context.Ok("packages", "",
               absl::StrCat("rdma-core ", *core, ", ibverbs-providers ", *userspace, " with ",
                            providers, " providers"),
               figures);
    return;
  }
  std::vector<std::string> what;
  if (!core.has_value()) {
    what.emplace_back("rdma-core is not installed (it loads the kernel modules at boot)");
  }
  if (!userspace.has_value()) {
    what.emplace_back("ibverbs-providers is not installed (without it libibverbs shows no device)");
  } else if (providers == 0) {
    what.emplace_back("ibverbs-providers is installed, but its files are not there");
  }
  const bool works = userspace.has_value() && providers > 0;
  context.Add(works ? Status::kWarn : missing, "packages", "", absl::StrJoin(what, "; "),
              absl::StrCat("apt-get install ",
                           userspace.has_value() && providers == 0 ? "--reinstall " : "",
                           "rdma-core ibverbs-providers"),
              figures);
}

void CheckModules(const Context& context) {
  const SystemView& system = context.system;
  std::vector<std::string> wanted = {"ib_uverbs", "rdma_cm", "rdma_ucm"};
  for (const RdmaDevice& device : context.devices) {
    if (device.driver != nullptr) wanted.emplace_back(device.driver->module);
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<std::string> missing;
  for (const std::string& module : wanted) {
    // A device whose driver is built in is there without its module.
    const bool driver = module != "ib_uverbs" && module != "rdma_cm" && module != "rdma_ucm";
    if (!driver && !HasModule(system, module)) missing.push_back(module);
  }
  if (missing.empty()) {
    context.Ok("modules", "", absl::StrCat("loaded: ", absl::StrJoin(wanted, ", ")));
    return;
  }
  const std::string release = system.Read("/proc/sys/kernel/osrelease").value_or("");
  const std::string modules = absl::StrCat("/lib/modules/", release);
  std::string finding = absl::StrCat("not loaded: ", absl::StrJoin(missing, ", "));
  std::string remedy =
      absl::StrCat("modprobe -a ", absl::StrJoin(missing, " "), " (rdma-core does it at boot)");
  if (!release.empty() && system.Exists(modules) &&
      !system.Exists(modules + "/kernel/drivers/infiniband")) {
    absl::StrAppend(&finding, "; kernel ", release, " comes without RDMA modules");
    remedy =
        "boot a full kernel (Debian: apt-get install linux-image-amd64; the cloud flavour has "
        "no RDMA)";
  } else if (!release.empty() && !system.Exists(modules)) {
    absl::StrAppend(
        &finding, "; there are no modules for this kernel (", release,
        ") here: in a container or a small virtual machine that is the host's business");
  }
  context.Add(context.devices.empty() && context.options.connection.fabric != "verbs"
                  ? Status::kWarn
                  : Status::kFail,
              "modules", "", finding, remedy, {});
}

void CheckDevices(Context& context) {
  if (context.devices.empty()) {
    CheckNoDevice(context);
    return;
  }
  std::vector<std::string> shown;
  if (auto list = verbs::Device::List(context.verbs); list.ok()) shown = *std::move(list);
  for (const RdmaDevice& device : context.devices) {
    if (!device.connects()) {
      TellUnusable(context, device);
    } else if (!CheckDeviceFiles(context, device)) {
      // Said. libibverbs hides a device whose file is missing, so its provider is not in question.
    } else if (std::find(shown.begin(), shown.end(), device.name) == shown.end()) {
      FailProvider(context, device);
    } else {
      AskDevice(context, device);
    }
  }
}

}  // namespace verbena::cli::doctor
