// What verbena-cli reads and writes. Everything is binary-safe. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::cli {

// Writes all of `bytes` to a file descriptor. Unavailable if its reader has gone (EPIPE; SIGPIPE
// must be ignored), else Internal with the system's text.
absl::Status WriteAll(int fd, std::string_view bytes);

// Reads a file descriptor to its end. ResourceExhausted if it has more than `limit` bytes.
absl::StatusOr<std::string> ReadAll(int fd, uint64_t limit);

// Whether these are well-formed UTF-8 (and so can stand in JSON as text).
bool IsUtf8(std::string_view bytes);

// `bytes` as a field of a line: backslash, tab, line feed and carriage return become \\, \t, \n and
// \r, other control characters, and what is no UTF-8, \xHH. So a field has neither tabs nor line
// ends, does a terminal no harm, and the shell's printf %b makes bytes of it again (not of a NUL,
// which no shell can hold).
std::string EscapedField(std::string_view bytes);

// A line of JSON that tells an error: {"error":{"status":...,"message":...,"exit_status":...}},
// with the version that is there where that is not 0.
std::string ErrorJson(absl::StatusCode code, const std::string& message, int exit_status,
                      uint64_t version = 0);

// The server's info for people: one line per number, grouped, sizes with a unit as well. `json` is
// one JSON object; what is none comes back as it is.
std::string InfoTable(std::string_view json);

}  // namespace verbena::cli
