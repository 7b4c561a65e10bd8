#include "bench/measure/process_usage.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/measure/process_cpu.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

// PF_KTHREAD of the kernel's task flags, which stat shows.
constexpr uint64_t kKernelThread = 0x00200000;

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The names in a folder of /proc that are numbers.
std::vector<std::string> NumbersIn(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return names;
  while (const dirent* const entry = readdir(folder.get())) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') names.emplace_back(entry->d_name);
  }
  return names;
}

double SecondsOf(uint64_t ticks) {
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

uint64_t Less(uint64_t now, uint64_t earlier) { return now > earlier ? now - earlier : 0; }

}  // namespace

ProcessUsage& ProcessUsage::operator+=(const ProcessUsage& other) {
  cpu_seconds += other.cpu_seconds;
  user_seconds += other.user_seconds;
  system_seconds += other.system_seconds;
  voluntary_switches += other.voluntary_switches;
  involuntary_switches += other.involuntary_switches;
  return *this;
}

ProcessUsage ProcessUsage::operator-(const ProcessUsage& earlier) const {
  ProcessUsage less;
  less.cpu_seconds = std::max(0.0, cpu_seconds - earlier.cpu_seconds);
  less.user_seconds = std::max(0.0, user_seconds - earlier.user_seconds);
  less.system_seconds = std::max(0.0, system_seconds - earlier.system_seconds);
  less.voluntary_switches = Less(voluntary_switches, earlier.voluntary_switches);
  less.involuntary_switches = Less(involuntary_switches, earlier.involuntary_switches);
  return less;
}

std::optional<StatLine> ParseStat(std::string_view text) {
  // The name, in parentheses, may hold blanks and parentheses itself.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  // From the third field, the state, on; flags are the 9th, utime and stime the 14th and 15th.
  const std::vector<std::string> fields =
      absl::StrSplit(ToAbsl(text.substr(name_end + 1)), ' ', absl::SkipWhitespace());
  StatLine line;
  uint64_t flags = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[6], &flags) ||
      !absl::SimpleAtoi(fields[11], &line.user_ticks) ||
      !absl::SimpleAtoi(fields[12], &line.system_ticks)) {
    return std::nullopt;
  }
  line.kernel_thread = (flags & kKernelThread) != 0;
  return line;
}

void AddSwitches(std::string_view status, ProcessUsage* usage) {
  for (const auto part : absl::StrSplit(ToAbsl(status), '\n')) {
    const std::pair<std::string, std::string> entry = absl::StrSplit(part, absl::MaxSplits(':', 1));
    uint64_t number = 0;
    if (!absl::SimpleAtoi(entry.second, &number)) continue;
    if (entry.first == "voluntary_ctxt_switches") usage->voluntary_switches += number;
    if (entry.first == "nonvoluntary_ctxt_switches") usage->involuntary_switches += number;
  }
}

std::optional<ProcessUsage> UsageOf(int64_t pid) {
  const std::optional<double> cpu = ProcessCpuSeconds(pid);
  if (!cpu.has_value()) return std::nullopt;
  ProcessUsage usage;
  usage.cpu_seconds = *cpu;
  const std::string folder = absl::StrCat("/proc/", pid);
  if (const auto line = ParseStat(FileText(folder + "/stat"))) {
    usage.user_seconds = SecondsOf(line->user_ticks);
    usage.system_seconds = SecondsOf(line->system_ticks);
  }
  for (const std::string& thread : NumbersIn(folder + "/task")) {
    AddSwitches(FileText(absl::StrCat(folder, "/task/", thread, "/status")), &usage);
  }
  return usage;
}

ProcessUsage OwnUsage() {
  ProcessUsage usage;
  rusage own{};
  getrusage(RUSAGE_SELF, &own);  // cannot fail for this process
  usage.user_seconds = SecondsOf(own.ru_utime);
  usage.system_seconds = SecondsOf(own.ru_stime);
  usage.cpu_seconds = usage.user_seconds + usage.system_seconds;
  usage.voluntary_switches = static_cast<uint64_t>(own.ru_nvcsw);
  usage.involuntary_switches = static_cast<uint64_t>(own.ru_nivcsw);
  return usage;
}

std::optional<double> KernelThreadSeconds() {
  std::optional<double> seconds;
  for (const std::string& pid : NumbersIn("/proc")) {
    const auto line = ParseStat(FileText(absl::StrCat("/proc/", pid, "/stat")));
    if (!line.has_value() || !line->kernel_thread) continue;
    seconds = seconds.value_or(0) + SecondsOf(line->user_ticks + line->system_ticks);
  }
  return seconds;
}

}  // namespace verbena::bench
