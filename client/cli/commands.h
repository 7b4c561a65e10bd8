// What verbena-cli's commands do.
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/exit_status.h"

namespace verbena::cli {

// Connects, runs the command, writes to standard output, and errors to standard error. SIGPIPE must
// be ignored. Not for kHelp and kVersion.
ExitStatus RunCommand(const Arguments& arguments);

}  // namespace verbena::cli
