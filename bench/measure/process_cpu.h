// Processor time of another process on this host.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace verbena::bench {

// Seconds that all threads of `pid` have used so far, user and system time. nullopt if there is no
// such process here.
std::optional<double> ProcessCpuSeconds(int64_t pid);

// The name of the process's program, at most 15 bytes; empty if there is no such process.
std::string ProcessName(int64_t pid);

}  // namespace verbena::bench
