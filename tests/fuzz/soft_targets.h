// The software device against a hostile peer: as wire_targets.h.
#pragma once

#include <cstdint>
#include <span>

namespace verbena::fuzz {

// Messages of the device's connection manager over its Unix socket, with descriptors of all kinds,
// as a listener gets them from whoever connects, and as a client gets them from a false server. The
// first byte chooses the side. Whatever comes: the other end's closing is noticed, the application
// is told how the connection ended, and all of it can be destroyed. One thread at a time.
void SoftSetup(std::span<const uint8_t> input);

}  // namespace verbena::fuzz
