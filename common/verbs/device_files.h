// Whether programs can reach the kernel's RDMA devices: through files under /dev/infiniband, and by
// a provider library that libibverbs has for each. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

// Whether this process can open the files of every device that the kernel has. OK where it has
// none. PermissionDenied, NotFound or Unavailable names the file, the devices behind it and what to
// do. `sysfs` ("/sys") and `dev` ("/dev") are for tests.
absl::Status CheckDeviceFiles(const std::string& sysfs = "/sys", const std::string& dev = "/dev");

// Whether `listed` (Device::List) has every device that the kernel has: libibverbs hides one that
// it has no provider for. FailedPrecondition names those that are missing, and what to install.
absl::Status CheckProviders(const std::vector<std::string>& listed,
                            const std::string& sysfs = "/sys");

// Both: what keeps this process from using a device that the kernel has, first of all its files. A
// route or an address that has no device for libibverbs may be such a device's.
absl::Status CheckKernelDevices(VerbsApi& api);

}  // namespace verbena::verbs
