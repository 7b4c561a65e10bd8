// Standard output of verbena-bench.
#pragma once

#include <string>

namespace verbena::bench {

// Prints `text` at once. Returns `exit_status`, or, if that is kExitOk and standard output cannot
// be written, kExitOutput; the reason has then been told on standard error.
int Print(const std::string& text, int exit_status);

}  // namespace verbena::bench
