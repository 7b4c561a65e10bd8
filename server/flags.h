// verbena-server's command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/server.h"

namespace verbena::server {

struct CommandLine {
  ServerConfig config;
  std::string log_level;
  std::string port_file;  // empty: none
  double drain_seconds = 5;
};

// Parses and checks the flags. Prints the help and exits with 0 where it is asked for; exits with
// 2, naming it, for a flag that is not known or has a value of the wrong type. InvalidArgument
// names a flag whose value is out of range, and the range.
absl::StatusOr<CommandLine> ParseCommandLine(int* argc, char*** argv);

}  // namespace verbena::server
