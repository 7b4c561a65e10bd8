// Whether the machine has the memory that a server is to take.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace verbena::admin {

// Bytes that this process could still take: what the kernel calls available, or less where a
// control group limits it. nullopt where that cannot be found out.
std::optional<uint64_t> AvailableMemory();

// ResourceExhausted, with what was asked for and what there is, if a region of `wanted` bytes would
// get a process killed for want of memory.
absl::Status CheckMemory(uint64_t wanted);

}  // namespace verbena::admin
