// verbena-cli: see HelpText (help.cc).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "common/base/log.h"

namespace verbena::cli {
namespace {

// A standard descriptor that the caller has closed would be given to the next file or socket that
// is opened, and a value would be written into that. So its place is taken by one that refuses:
// reads and writes then fail, and are told.
void HoldStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is the one that is missing.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) std::abort();
  }
}

int Run(int argc, char** argv) {
  HoldStandardDescriptors();
  // A closed pipe is an error of writing (kExitIo), and standard output is for values only.
  std::signal(SIGPIPE, SIG_IGN);
  SetUpLog("verbena-cli", "error", /*time_stamps=*/false);
  const auto arguments = ParseArguments({argv + 1, argv + argc});
  if (!arguments.ok()) {
    std::fprintf(stderr, "verbena-cli: %s\nTry verbena-cli --help.\n",
                 std::string(arguments.status().message()).c_str());
    return kExitUsage;
  }
  switch (arguments->command) {
    case Command::kHelp:
      return WriteAll(STDOUT_FILENO, HelpText()).ok() ? kExitOk : kExitIo;
    case Command::kVersion:
      return WriteAll(STDOUT_FILENO, "verbena-cli " VERBENA_VERSION "\n").ok() ? kExitOk : kExitIo;
    default:
      return RunCommand(*arguments);
  }
}

}  // namespace
}  // namespace verbena::cli

int main(int argc, char** argv) { return verbena::cli::Run(argc, argv); }
