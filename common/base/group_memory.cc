#include "common/base/group_memory.h"

#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace verbena {
namespace {

// "max", and what version 1 has for no limit (2^63 less a page), are none.
std::optional<uint64_t> ReadLimit(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value) || value >> 62 != 0) return std::nullopt;
  return value;
}

// The limits of the group `path` ("/a/b"; "/": none but the one at the mount) below `mount`, and of
// those around it. In a namespace of its own, or where only this group is mounted, the group is at
// the mount itself, and the folders of `path` are not there.
void AddFiles(const std::string& mount, std::string path, const char* name,
              std::vector<std::string>* files) {
  while (path.size() > 1) {
    files->push_back(mount + path + name);
    path.erase(path.rfind('/'));
  }
  files->push_back(mount + name);
}

}  // namespace

std::optional<GroupMemory> LeastGroupMemory(const std::string& root) {
  std::vector<std::string> files;
  std::ifstream groups(root + "/proc/self/cgroup");
  // "0::/path" (version 2) or "4:memory:/path", "4:cpu,memory:/path" (version 1).
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2].front() != '/') continue;
    if (parts[1].empty()) AddFiles("/sys/fs/cgroup", parts[2], "/memory.max", &files);
    for (const absl::string_view controller : absl::StrSplit(parts[1], ',')) {
      if (controller != "memory") continue;
      AddFiles("/sys/fs/cgroup/memory", parts[2], "/memory.limit_in_bytes", &files);
    }
  }
  files.emplace_back("/sys/fs/cgroup/memory.max");
  files.emplace_back("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  std::optional<GroupMemory> least;
  for (const std::string& file : files) {
    const std::optional<uint64_t> limit = ReadLimit(root + file);
    if (limit.has_value() && (!least.has_value() || *limit < least->bytes)) {
      least = GroupMemory{*limit, file};
    }
  }
  return least;
}

}  // namespace verbena
