// Command lines of Verbena's programs: gflags' flags with operands between them, and every mistake
// an error that names the flag (gflags by itself ends the process, and ignores unknown flags in a
// flag file).
//
// A flag is written --name=value, --name value, --name or --noname (booleans), with one dash or
// two;
// '-' in names counts as '_'. " -- " ends the flags. --flagfile=FILE[,FILE...] stands for the flags
// in these files: one a line, written --name=value, --name or --noname; empty lines and lines that
// begin with '#' are skipped; a file may name further files.
//
// Sets gflags' globals: not thread-safe, to be called at the start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace verbena {

// Takes argv[1..] and sets the flags; later ones win. Returns the operands (what is no flag) in
// their order. InvalidArgument names the flag, its value and what is wrong (a value that
// does not fit the flag's type is told with the flag's description, which should have its range);
// `known_flags` is shown where a flag is unknown ("--server, --json"; may be empty).
absl::StatusOr<std::vector<std::string>> ParseCommandLine(std::vector<std::string> args,
                                                          std::string_view known_flags);

}  // namespace verbena
