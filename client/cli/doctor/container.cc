// Whether this is a container, and what that means for RDMA.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/doctor/checks.h"

namespace verbena::cli::doctor {
namespace {

// What shows that this process is in a container; "" if nothing does.
std::string ContainerSign(const SystemView& system) {
  if (system.Exists("/.dockerenv")) return "/.dockerenv";
  if (system.Exists("/run/.containerenv")) return "/run/.containerenv";
  const std::string groups = system.Read("/proc/1/cgroup").value_or("");
  for (const char* sign : {"docker", "kubepods", "containerd", "lxc", "libpod"}) {
    if (absl::StrContains(groups, sign)) return absl::StrCat("control group of ", sign);
  }
  if (system.Exists("/var/run/secrets/kubernetes.io")) return "Kubernetes service account";
  return "";
}

// The folder of this process's control group that limits RDMA resources: version 2 (one line
// "0::/path") or version 1 ("N:rdma:/path").
std::vector<std::string> RdmaGroupFiles(const SystemView& system) {
  std::vector<std::string> files;
  for (absl::string_view line :
       absl::StrSplit(system.Read("/proc/self/cgroup").value_or(""), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    if (parts[1].empty()) files.push_back("/sys/fs/cgroup" + path + "/rdma.max");
    if (parts[1] == "rdma") files.push_back("/sys/fs/cgroup/rdma" + path + "/rdma.max");
  }
  // Within a namespace of its own, or where only this group is mounted.
  files.emplace_back("/sys/fs/cgroup/rdma.max");
  return files;
}

// A number of "hca_handle=2 hca_object=2000"; nullopt if it is "max" or not there.
std::optional<uint64_t> LimitOf(const std::string& line, const std::string& name) {
  for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipWhitespace())) {
    uint64_t value = 0;
    if (absl::ConsumePrefix(&word, name + "=") && absl::SimpleAtoi(word, &value)) return value;
  }
  return std::nullopt;
}

void CheckGroupLimits(const Context& context) {
  // A server opens a device once for itself and once through the connection manager; its objects
  // are a protection domain, registrations and queues for each worker, and a QP for each
  // connection.
  constexpr uint64_t kHandles = 2;
  constexpr uint64_t kObjects = 64;
  for (const std::string& file : RdmaGroupFiles(context.system)) {
    const auto text = context.system.Read(file);
    if (!text.has_value()) continue;
    for (const absl::string_view part : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
      const std::string line(part);
      const auto handles = LimitOf(line, "hca_handle");
      const auto objects = LimitOf(line, "hca_object");
      if (!handles.has_value() && !objects.has_value()) continue;
      const std::string device = line.substr(0, line.find(' '));
      const std::string finding = absl::StrCat(file, ": ", line);
      if (handles.value_or(kHandles) < kHandles || objects.value_or(kObjects) < kObjects) {
        context.Warn("cgroup", device,
                     absl::StrCat(finding, " (a server needs at least ", kHandles, " handles and ",
                                  kObjects, " objects, and one more object for each connection)"),
                     absl::StrCat("echo '", device, " hca_handle=max hca_object=max' > ", file));
      } else {
        context.Ok("cgroup", device, finding);
      }
    }
    return;
  }
}

}  // namespace

void CheckContainer(const Context& context) {
  const SystemView& system = context.system;
  CheckGroupLimits(context);
  const std::string sign = ContainerSign(system);
  const bool files = !system.List("/dev/infiniband").empty();
  if (sign.empty()) {
    context.Ok("container", "", "none seen");
    return;
  }
  const std::string finding = absl::StrCat("this is a container (", sign, ")");
  if (context.devices.empty() || files) {
    context.Ok("container", "",
               absl::StrCat(finding,
                            files ? ", /dev/infiniband is there" : ", no RDMA device is visible"));
    return;
  }
  std::vector<std::string> names;
  for (const RdmaDevice& device : context.devices) names.push_back(device.name);
  context.Fail(
      "container", "",
      absl::StrCat(finding, "; the machine has ", absl::StrJoin(names, ", "),
                   ", but /dev/infiniband is missing here"),
      "docker run --device=/dev/infiniband --ulimit memlock=-1 --network=host (Kubernetes: "
      "request the resource of an RDMA device plugin)");
}

}  // namespace verbena::cli::doctor
