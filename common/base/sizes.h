// Sizes in bytes as people write them: "512", "64KiB", "1.5GiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace verbena {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;
inline constexpr uint64_t kTiB = 1024 * kGiB;

// Parses a number with an optional suffix B, KiB, MiB, GiB or TiB (K, M, G, T mean the same).
// InvalidArgument with the text in question if it is none, negative or over 2^63.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);

// The shortest exact or two-digit form: 1048576 -> "1MiB", 1536 -> "1.5KiB", 100 -> "100B".
std::string FormatSize(uint64_t bytes);

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace verbena
