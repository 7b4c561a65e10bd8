// What verbena-cli reads and writes. Everything is binary-safe. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/error_json.h"

namespace verbena::cli {

// Writes all of `bytes` to a file descriptor. Unavailable if its reader has gone (EPIPE; SIGPIPE
// must be ignored), else Internal with the system's text.
absl::Status WriteAll(int fd, std::string_view bytes);

// Reads a file descriptor to its end. ResourceExhausted if it has more than `limit` bytes.
absl::StatusOr<std::string> ReadAll(int fd, uint64_t limit);

// `bytes` as a field of a line: backslash, tab, line feed and carriage return become \\, \t, \n and
// \r, other control characters, and what is no UTF-8, \xHH. So a field has neither tabs nor line
// ends, does a terminal no harm, and the shell's printf %b makes bytes of it again (not of a NUL,
// which no shell can hold).
std::string EscapedField(std::string_view bytes);

// The server's info for people: one line per number, grouped, sizes with a unit as well. `json` is
// one JSON object; what is none comes back as it is.
std::string InfoTable(std::string_view json);

}  // namespace verbena::cli
