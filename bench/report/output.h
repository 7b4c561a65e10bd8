// What verbena-bench writes: standard output, and errors.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace verbena::bench {

// Prints `text` at once. Returns `exit_status`, or, if that is kExitOk and standard output cannot
// be written, kExitOutput; the reason has then been told on standard error.
int Print(const std::string& text, int exit_status);

// The run has no results, and `error` is why: tells it on standard error, and instead of results in
// `json_file` (empty: none), as verbena-cli does: {"error":{"status":...,"message":...,
// "exit_status":...}}. A file of an earlier run is not taken for this one's. Returns `exit_status`.
int Fail(const std::string& json_file, const absl::Status& error, int exit_status);

}  // namespace verbena::bench
