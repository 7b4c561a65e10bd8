#include "bench/measure/process_cpu.h"

#include <time.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace verbena::bench {

namespace {

// The kernel's limit. A clock's number is made of the PID, and a larger one would name another
// clock.
constexpr int64_t kMaxPid = int64_t{1} << 22;

}  // namespace

// The process's CPU clock counts what utime and stime in /proc/PID/stat count, in nanoseconds
// instead of ticks of 10 ms.
std::optional<double> ProcessCpuSeconds(int64_t pid) {
  clockid_t clock;
  timespec time;
  if (pid <= 0 || pid > kMaxPid || clock_getcpuclockid(static_cast<pid_t>(pid), &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string ProcessName(int64_t pid) {
  std::string name;
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::getline(file, name);
  return name;
}

}  // namespace verbena::bench
