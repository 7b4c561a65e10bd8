// What processes take of the machine: processor time, in user space and in the kernel, and context
// switches. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace verbena::bench {

// Since the process began, of all its threads.
struct ProcessUsage {
  double cpu_seconds = 0;     // user and system, exact
  double user_seconds = 0;    // of another process in steps of the kernel's ticks (10 ms)
  double system_seconds = 0;  // likewise
  uint64_t voluntary_switches = 0;
  uint64_t involuntary_switches = 0;

  ProcessUsage& operator+=(const ProcessUsage& other);
  // What has come since `earlier`; nothing goes below 0 (threads that end take their switches
  // along).
  ProcessUsage operator-(const ProcessUsage& earlier) const;
};

// nullopt if there is no such process here.
std::optional<ProcessUsage> UsageOf(int64_t pid);
// Of this process, threads that have ended included.
ProcessUsage OwnUsage();

// Processor time of all of the kernel's own threads, in seconds and steps of 10 ms: what drivers do
// outside of any process. nullopt where they cannot be seen, as in most containers.
std::optional<double> KernelThreadSeconds();

// Parts of the above, for tests.

// What /proc/PID/stat tells. nullopt if it is not of that form. The name of the program may hold
// anything.
struct StatLine {
  bool kernel_thread = false;
  uint64_t user_ticks = 0;
  uint64_t system_ticks = 0;
};
std::optional<StatLine> ParseStat(std::string_view text);
// Adds the two counters of switches that /proc/PID/task/TID/status tells.
void AddSwitches(std::string_view status, ProcessUsage* usage);

}  // namespace verbena::bench
