// verbena-cli: see HelpText (help.cc).
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/doctor/doctor.h"
#include "client/cli/doctor/print.h"
#include "client/cli/output.h"
#include "common/base/log.h"
#include "common/base/standard_descriptors.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/rdma_core.h"

namespace verbena::cli {
namespace {

int RunDoctor(const Arguments& arguments) {
  const doctor::Report report =
      doctor::Examine({.server = arguments.server,
                       .connection = ConnectionOptions(arguments),
                       .memory = arguments.memory,
                       .workers = arguments.workers},
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

// Of flags that could not be parsed.
bool WantsJson(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* argument) {
    const std::string_view text(argument);
    return text == "--json" || text == "-json" || text == "--json=true";
  });
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
    if (WantsJson(argc, argv)) {
      [[maybe_unused]] const absl::Status ignored =
          WriteAll(STDOUT_FILENO, ErrorJson(arguments.status().code(),
                                            std::string(arguments.status().message()), kExitUsage));
    }
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
