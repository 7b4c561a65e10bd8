// What verbena-cli's commands do.
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/exit_status.h"
#include "verbena/options.h"

namespace verbena::cli {

// How the flags say that a connection is to be made, for one operation at a time.
Options ConnectionOptions(const Arguments& arguments);

// Connects, runs the command, writes to standard output, and errors to standard error. SIGPIPE must
// be ignored. Not for kHelp, kVersion and kDoctor.
ExitStatus RunCommand(const Arguments& arguments);

}  // namespace verbena::cli
