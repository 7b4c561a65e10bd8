// What the software device needs of the system.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/checks.h"
#include "common/base/unique_fd.h"
#include "common/verbs/device.h"

namespace verbena::cli::doctor {
namespace {

// Empty if memory can be shared by descriptor and be sealed; else what failed.
std::string TrySharedMemory() {
  const UniqueFd fd(memfd_create("verbena-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return absl::StrCat("memfd_create: ", std::strerror(errno));
  if (ftruncate(fd.get(), 4096) != 0) {
    return absl::StrCat("memory of a memfd: ", std::strerror(errno));
  }
  return "";
}

// Empty if a Unix-domain socket can be bound to an abstract address.
std::string TrySocket() {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::StrCat("a Unix-domain socket: ", std::strerror(errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The first byte stays 0: the address is in no folder, and gone with the socket.
  const std::string name = absl::StrCat("verbena-doctor-", getpid());
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return absl::StrCat("an address for a Unix-domain socket: ", std::strerror(errno));
  }
  return "";
}

// Empty if the system has the call; whether it may be used on a peer is another matter.
std::string TryProcessMemory() {
  char source = 'v';
  char target = 0;
  const iovec local = {&target, 1};
  const iovec remote = {&source, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1 || target != source) {
    return absl::StrCat("process_vm_readv: ", std::strerror(errno));
  }
  return "";
}

}  // namespace

void CheckSoftwareDevice(const Context& context) {
  const auto devices = verbs::Device::List(context.soft);
  std::string problem =
      devices.ok() && !devices->empty()
          ? ""
          : std::string(devices.ok() ? "it shows no device" : devices.status().message());
  if (problem.empty()) problem = TrySharedMemory();
  if (problem.empty()) problem = TrySocket();
  if (!problem.empty()) {
    context.Add(context.options.connection.fabric == "verbs" ? Status::kWarn : Status::kFail,
                "software_device", "", "it cannot work here: " + problem,
                "allow memfd_create and Unix-domain sockets (a container's seccomp profile or a "
                "sandbox forbids them)",
                {});
    return;
  }
  // Memory of Verbena's own programs is passed as descriptors; the call is for other memory, such
  // as buffers of an application.
  const auto scope = context.system.ReadNumber("/proc/sys/kernel/yama/ptrace_scope");
  const std::string call = TryProcessMemory();
  std::string note;
  if (!call.empty()) {
    note = absl::StrCat("; other processes' memory cannot be read (", call,
                        "), which only applications with buffers of their own need");
  } else if (scope.value_or(0) > 0) {
    note = absl::StrCat("; kernel.yama.ptrace_scope is ", *scope,
                        ", so only memory passed as descriptors can be reached, which Verbena's "
                        "always is");
  }
  context.Ok("software_device", "",
             absl::StrCat(devices->front(),
                          " (fabric soft) works for clients and servers on this "
                          "host: memfd and Unix-domain sockets are there",
                          note));
}

}  // namespace verbena::cli::doctor
