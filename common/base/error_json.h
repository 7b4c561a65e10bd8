// How programs tell errors to programs. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace verbena {

// Whether these are well-formed UTF-8 (and so can stand in JSON as text).
bool IsUtf8(std::string_view bytes);

// A line of JSON that tells an error: {"error":{"status":...,"message":...,"exit_status":...}},
// with the version that is there where that is not 0.
std::string ErrorJson(absl::StatusCode code, const std::string& message, int exit_status,
                      uint64_t version = 0);

}  // namespace verbena
