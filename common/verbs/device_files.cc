#include "common/verbs/device_files.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"
#include "common/base/unique_fd.h"
#include "common/verbs/device.h"

namespace verbena::verbs {
namespace {

// Device names by the name of their file: "uverbs0" -> "mlx5_0".
std::map<std::string, std::string> KernelDevices(const std::string& sysfs) {
  std::map<std::string, std::string> devices;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(sysfs + "/class/infiniband_verbs", error)) {
    std::ifstream file(entry.path() / "ibdev");
    std::string name;
    if (file >> name) devices[entry.path().filename()] = name;
  }
  return devices;
}

std::string Owner(const struct stat& status) {
  const group* const owner = getgrgid(status.st_gid);
  return absl::StrFormat("its group is %s, its mode %04o",
                         owner != nullptr ? owner->gr_name : absl::StrCat(status.st_gid),
                         status.st_mode & 07777);
}

}  // namespace

absl::Status CheckDeviceFiles(const std::string& sysfs, const std::string& dev) {
  const std::map<std::string, std::string> devices = KernelDevices(sysfs);
  if (devices.empty()) return absl::OkStatus();
  std::map<std::string, std::string> files;  // and what each is for
  std::vector<std::string> names;
  for (const auto& [file, name] : devices) {
    files[file] = "device " + name;
    names.push_back(name);
  }
  files["rdma_cm"] = absl::StrCat("connections of ", absl::StrJoin(names, ", "));
  for (const auto& [file, purpose] : files) {
    const std::string path = absl::StrCat(dev, "/infiniband/", file);
    const UniqueFd opened(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (opened.valid()) continue;
    const int error = errno;
    struct stat status {};
    if (error == ENOENT) {
      return absl::NotFoundError(absl::StrCat(
          path, " (", purpose, ") does not exist, although the kernel has the device: in a ",
          "container, start it with --device=/dev/infiniband; else load the modules ib_uverbs and ",
          "rdma_ucm"));
    }
    if (error == EACCES || error == EPERM) {
      const bool known = stat(path.c_str(), &status) == 0;
      return absl::PermissionDeniedError(absl::StrCat(
          "no permission to open ", path, " (", purpose, "): ", std::strerror(error),
          known ? absl::StrCat("; ", Owner(status)) : std::string(),
          ". Put this user into the file's group, or have a udev rule open it (KERNEL==\"", file,
          "\", MODE=\"0666\"); start a container with --device=/dev/infiniband"));
    }
    return absl::UnavailableError(absl::StrCat(
        path, " (", purpose, ") cannot be opened: ", std::strerror(error),
        ". The kernel's log (dmesg) may say why; does the file belong to a device that has gone?"));
  }
  return absl::OkStatus();
}

absl::Status CheckProviders(const std::vector<std::string>& listed, const std::string& sysfs) {
  std::vector<std::string> hidden;
  for (const auto& [file, name] : KernelDevices(sysfs)) {
    if (std::find(listed.begin(), listed.end(), name) == listed.end()) hidden.push_back(name);
  }
  if (hidden.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "libibverbs has no provider for ", absl::StrJoin(hidden, ", "),
      ", although the kernel has the device: install the package ibverbs-providers (or the ",
      "vendor's), and see that /etc/libibverbs.d names it"));
}

absl::Status CheckKernelDevices(VerbsApi& api) {
  VERBENA_RETURN_IF_ERROR(CheckDeviceFiles());
  VERBENA_ASSIGN_OR_RETURN(const std::vector<std::string> listed, Device::List(api));
  return CheckProviders(listed);
}

}  // namespace verbena::verbs
