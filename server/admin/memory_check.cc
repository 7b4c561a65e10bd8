#include "server/admin/memory_check.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/group_memory.h"
#include "common/base/sizes.h"

namespace verbena::admin {
namespace {

// A line like "MemAvailable:   123 kB".
std::optional<uint64_t> MemInfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string label;
  std::string unit;
  uint64_t value = 0;
  while (file >> label >> value) {
    if (label == name) return value * kKiB;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> AvailableMemory() {
  std::optional<uint64_t> available = MemInfo("MemAvailable:");
  if (const std::optional<GroupMemory> group = LeastGroupMemory(); group.has_value()) {
    available = std::min(available.value_or(UINT64_MAX), group->bytes);
  }
  return available;
}

absl::Status CheckMemory(uint64_t wanted) {
  const std::optional<uint64_t> available = AvailableMemory();
  // Reserved huge pages do not count as available, so they may make up for what is missing.
  const uint64_t reserved =
      MemInfo("HugePages_Free:").value_or(0) / kKiB * MemInfo("Hugepagesize:").value_or(0);
  if (!available.has_value() || wanted <= *available || wanted <= reserved) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("--memory=", FormatSize(wanted), ": the machine has ", FormatSize(*available),
                   " available (MemAvailable in /proc/meminfo, or the container's limit); ask for "
                   "less or free some"));
}

}  // namespace verbena::admin
