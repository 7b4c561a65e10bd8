// What a server with its default flags, and a client, need of a device and of the system. These
// follow from the server's queue plan and the client's buffers (tests compare them).
#pragma once

#include <cstdint>

#include "common/base/sizes.h"

namespace verbena::cli::doctor {

inline constexpr uint32_t kServerReceives = 4096;  // of a worker
inline constexpr uint32_t kReservedQps = 2;        // that are not for clients
inline constexpr uint32_t kWindow = 32;            // requests of a client that are unanswered
// Sends of a connection: an answer to each request, 3 unasked messages, 4 READs and one more.
inline constexpr uint32_t kSendDepth = kWindow + 8;
// Registered message buffers of a worker: receives and answers.
inline constexpr uint64_t kMessageMemory = uint64_t{kServerReceives + 1024} * 193 * 64;
// Registered memory of a worker for READs to land in, on devices (iWARP) whose READ sinks need a
// right that the region must not have.
inline constexpr uint64_t kStagingMemory = 8 * kMiB;
// Registered memory of a client's connection: messages, and places for READs at depth 64.
inline constexpr uint64_t kClientMemory = 4 * kMiB;
// File descriptors of a connection over the software device, at either end.
inline constexpr uint64_t kSoftConnectionFiles = 8;
// READs in flight that a client can use at its default depth, as far as devices usually allow.
inline constexpr uint32_t kUsualReadDepth = 16;

}  // namespace verbena::cli::doctor
