#include "server/admin/memory_check.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"

namespace verbena::admin {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

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

// What the process's control group may take; nullopt if it has no limit.
std::optional<uint64_t> GroupMemory() {
  // Usage is not looked at: page cache counts as used but is given up when memory is wanted.
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const std::optional<uint64_t> limit = ReadNumber(path); limit.has_value()) return limit;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> AvailableMemory() {
  std::optional<uint64_t> available = MemInfo("MemAvailable:");
  if (const std::optional<uint64_t> group = GroupMemory(); group.has_value()) {
    available = std::min(available.value_or(UINT64_MAX), *group);
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
