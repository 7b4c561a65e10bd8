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
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/print.h"
#include "client/cli/output.h"
#include "common/base/log.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/rdma_core.h"

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

int RunDoctor(const Arguments& arguments) {
  const doctor::Report report =
      doctor::Examine({.server = arguments.server,
                       .connection = ConnectionOptions(arguments),
                       .memory = arguments.memory},
                      doctor::SystemView(), verbs::RdmaCoreVerbs(), softverbs::SoftVerbs());
  const std::string text = arguments.json
                               ? doctor::ReportJson(report) + "\n"
                               : doctor::ReportText(report, doctor::StyleOfStandardOutput());
  if (const absl::Status written = WriteAll(STDOUT_FILENO, text); !written.ok()) {
    std::fprintf(stderr, "verbena-cli: %s\n", std::string(written.message()).c_str());
    return kExitIo;
  }
  return report.ExitStatus();
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
      return WriteAll(STDOUT_FILENO,
                      arguments->topic == Command::kDoctor ? doctor::HelpText() : HelpText())
                     .ok()
                 ? kExitOk
                 : kExitIo;
    case Command::kVersion:
      return WriteAll(STDOUT_FILENO, "verbena-cli " VERBENA_VERSION "\n").ok() ? kExitOk : kExitIo;
    case Command::kDoctor:
      return RunDoctor(*arguments);
    default:
      return RunCommand(*arguments);
  }
}

}  // namespace
}  // namespace verbena::cli

int main(int argc, char** argv) { return verbena::cli::Run(argc, argv); }
