// Memory: of the machine, of the control group, and what may be locked, against what a server (and
// a client) needs.
#include <linux/capability.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/checks.h"
#include "client/cli/doctor/needs.h"
#include "common/base/default_workers.h"
#include "common/base/group_memory.h"
#include "common/base/sizes.h"

namespace verbena::cli::doctor {
namespace {

std::string WholeMiB(uint64_t bytes) { return FormatSize(bytes / kMiB * kMiB); }

// What a server locks for the devices that it listens on, at most.
struct LockedByServer {
  uint32_t workers = 0;
  bool staging = false;  // for one of them at least
  uint64_t largest = 0;  // for one device
  uint64_t all = 0;      // for all of them together
  std::string text;
};

// Registered memory is locked once for each device: the region, and for each worker its message
// buffers and, where READs are staged, its staging memory. Devices with small limits have fewer
// buffers, flags (--srq_depth) change their number; what is counted here is the default.
LockedByServer CountLocked(const Context& context) {
  const uint64_t memory = context.options.memory;
  LockedByServer locked;
  locked.workers = context.options.workers == 0 ? DefaultWorkers() : context.options.workers;
  const std::string of_workers =
      absl::StrCat(" for ", locked.workers, locked.workers == 1 ? " worker" : " workers");
  std::vector<std::string> devices;
  const auto add = [&](const std::string& name, bool stages) {
    const uint64_t messages = locked.workers * kMessageMemory;
    const uint64_t staging = stages ? locked.workers * kStagingMemory : 0;
    const uint64_t need = memory + messages + staging;
    locked.staging |= stages;
    locked.largest = std::max(locked.largest, need);
    locked.all += need;
    devices.push_back(absl::StrCat(
        FormatSize(AlignUp(need, kMiB)), " for ", name, " (region ", FormatSize(memory),
        ", message buffers", of_workers, " ", FormatSize(AlignUp(messages, kMiB)),
        stages ? absl::StrCat(", staging memory ", FormatSize(staging)) : "", ")"));
  };
  for (const auto& [name, answers] : context.answers) add(name, answers.stages_reads);
  if (context.answers.empty()) add("a device", false);
  locked.text =
      absl::StrCat("a server locks up to ", absl::StrJoin(devices, " and "),
                   devices.size() > 1 ? absl::StrCat(", ", FormatSize(AlignUp(locked.all, kMiB)),
                                                     " if it listens on all of them (0.0.0.0)")
                                      : "");
  return locked;
}

std::string MemlockRemedy() {
  return "`ulimit -l unlimited` in the shell (hard limit in /etc/security/limits.conf: `* - "
         "memlock unlimited`); containers: --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity";
}

}  // namespace

// What the machine has, or where that is less what the control group may take, against the region.
void CheckMemory(const Context& context) {
  const uint64_t memory = context.options.memory;
  const auto total = context.system.MemInfo("MemTotal");
  if (memory == 0 || !total.has_value()) return;
  const uint64_t available = context.system.MemInfo("MemAvailable").value_or(*total);
  const uint64_t huge = context.system.MemInfo("HugePages_Free").value_or(0) *
                        context.system.MemInfo("Hugepagesize").value_or(0);
  const auto group = context.system.GroupLimit();
  std::vector<Figure> figures = {{"region_bytes", static_cast<double>(memory)},
                                 {"total_bytes", static_cast<double>(*total)},
                                 {"available_bytes", static_cast<double>(available)}};
  std::string finding =
      absl::StrCat("a region of ", FormatSize(memory), "; this machine has ", WholeMiB(*total),
                   " of memory, ", WholeMiB(available), " of it available");
  uint64_t least = available;
  if (group.has_value()) {
    figures.emplace_back("group_limit_bytes", static_cast<double>(group->bytes));
    absl::StrAppend(&finding, "; this control group (container) may take ", WholeMiB(group->bytes),
                    " (", group->file, ")");
    least = std::min(least, group->bytes);
  }
  // The server takes free huge pages, too, which neither count as available nor for the group.
  const std::string smaller =
      absl::StrCat("verbena-server --memory=", WholeMiB(std::max(least, huge)), " or less");
  if (memory > *total) {
    context.Fail("memory", "", finding + ": the machine does not hold such a region",
                 smaller + ", or a machine with more memory", figures);
  } else if (memory <= huge || memory <= least) {
    context.Ok("memory", "", finding, figures);
  } else if (group.has_value() && memory > group->bytes) {
    context.Fail("memory", "", finding + ": the control group's limit is less than the region",
                 smaller +
                     ", or a higher limit (docker run --memory, Kubernetes "
                     "resources.limits.memory, systemd MemoryMax)",
                 figures);
  } else {
    context.Warn("memory", "", finding + ": a server that is started now refuses it",
                 "end what takes the memory, or " + smaller, figures);
  }
}

void CheckLockedMemory(const Context& context) {
  const auto limits = context.system.ProcessLimit("Max locked memory");
  if (!limits.has_value()) return;  // no /proc: nothing is known
  const uint64_t limit = limits->soft;
  LockedByServer locked;
  if (context.options.memory == 0) {
    locked.largest = locked.all = kClientMemory;
    locked.text =
        absl::StrCat("a client needs about ", FormatSize(kClientMemory), " for each connection");
  } else {
    locked = CountLocked(context);
  }
  std::vector<Figure> figures = {{"need_bytes", static_cast<double>(locked.all)}};
  if (locked.workers > 0) figures.emplace_back("workers", locked.workers);
  if (limit == UINT64_MAX) {
    context.Ok("memory_lock", "", "unlimited; " + locked.text, figures);
    return;
  }
  figures.push_back({"limit_bytes", static_cast<double>(limit)});
  const std::string finding =
      absl::StrCat("this process may lock ", FormatSize(limit), "; ", locked.text);
  std::vector<std::string> binding;  // devices that do not ask for the capability
  for (const RdmaDevice& device : context.devices) {
    if (device.memlock_binds_root()) binding.push_back(device.name);
  }
  const bool capable = context.system.HasCapability(CAP_IPC_LOCK);
  if (context.devices.empty() || context.options.connection.fabric == "soft") {
    context.Ok(
        "memory_lock", "",
        finding + ", which only RDMA devices want locked (the software device locks nothing)",
        figures);
  } else if (limit >= locked.all) {
    context.Ok("memory_lock", "", finding, figures);
  } else if (capable && binding.empty()) {
    context.Ok("memory_lock", "",
               finding + ", but the limit does not bind this process (CAP_IPC_LOCK)", figures);
  } else if (capable) {
    context.Warn("memory_lock", "",
                 absl::StrCat(finding, ": the driver of ", absl::StrJoin(binding, ", "),
                              " holds even root to it (others let CAP_IPC_LOCK pass)"),
                 MemlockRemedy(), figures);
  } else if (limit >= locked.largest) {
    context.Warn("memory_lock", "",
                 finding +
                     ": enough for each of them, but not for all, so a server that listens "
                     "on all leaves some out",
                 MemlockRemedy() + "; or verbena-server --listen=ADDR:PORT with the address of one",
                 figures);
  } else {
    context.Fail(
        "memory_lock", "", finding,
        MemlockRemedy() + (limit >= kClientMemory
                               ? "; on a machine with clients only: verbena-cli doctor --memory=0"
                               : ""),
        figures);
  }
}

}  // namespace verbena::cli::doctor
