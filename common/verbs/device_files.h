// The files under /dev/infiniband through which programs reach the kernel's RDMA devices.
// Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace verbena::verbs {

// Whether this process may open the files of every device that the kernel has. OK where it has
// none. PermissionDenied or NotFound names the file, the devices behind it and what to do.
// `sysfs` ("/sys") and `dev` ("/dev") are for tests.
absl::Status CheckDeviceFiles(const std::string& sysfs = "/sys", const std::string& dev = "/dev");

}  // namespace verbena::verbs
