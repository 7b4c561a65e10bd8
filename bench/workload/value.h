// Values that verify themselves: whoever reads one can tell whether it belongs to its key and is
// one whole write, without knowing which write. Thread-safe.
//
//   0   u64 check   XXH3 of all that follows, seeded with a hash of the key
//   8   u64 stamp   which write this is
//   16  filler      incompressible, from key and stamp
//
// A value under 16 bytes has less of the stamp, one under 8 bytes less of the check. Torn values,
// values of other keys, and values that lost or gained bytes do not verify (but for a chance of
// 2^-64, or 2^-8 per byte of a value under 8 bytes).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace verbena::bench {

// Fills `value` with the contents of write `stamp` of `key`.
void FillValue(std::string_view key, uint64_t stamp, std::span<char> value);

// What both are made of: incompressible bytes from a seed, and the check over contents of `key`.
void FillNoise(uint64_t seed, std::span<char> bytes);
uint64_t CheckOfContents(std::string_view key, std::string_view contents);

bool VerifyValue(std::string_view key, std::string_view value);

}  // namespace verbena::bench
