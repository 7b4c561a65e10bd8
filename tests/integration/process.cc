#include "tests/integration/process.h"

#include <signal.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "tests/integration/fabric_under_test.h"
#include "tests/integration/local_process.h"
#include "tests/integration/remote_process.h"

namespace verbena::testing {
namespace {

// What the server's log says last before it serves: " ready ADDR:PORT" and the line's end. Empty if
// that is not in `log`.
std::string AddressInLog(std::string_view log) {
  constexpr std::string_view kReady = " ready ";
  const size_t found = log.find(kReady);
  if (found == std::string_view::npos) return {};
  log.remove_prefix(found + kReady.size());
  const size_t end = log.find('\n');
  return std::string(end == std::string_view::npos ? "" : log.substr(0, end));
}

}  // namespace

std::string ProgramPath(std::string_view name) {
  const char* folder = std::getenv("VERBENA_BIN_DIR");
  return absl::StrCat(folder != nullptr ? folder : VERBENA_BIN_DIR, "/", ToAbsl(name));
}

absl::StatusOr<std::unique_ptr<Process>> Process::Start(ProcessOptions options) {
  const char* agent = std::getenv("VERBENA_TEST_AGENT");
  if (options.host == Host::kServer && agent != nullptr && *agent != '\0') {
    return RemoteProcess::Start(agent, options);
  }
  return LocalProcess::Start(std::move(options));
}

absl::StatusOr<std::unique_ptr<Process>> Process::Run(ProcessOptions options,
                                                      std::chrono::milliseconds patience) {
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Start(std::move(options)));
  VERBENA_RETURN_IF_ERROR(process->WaitForExit(patience).status());
  return process;
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(std::vector<std::string> flags,
                                                                    Host host) {
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  ProcessOptions options;
  options.program = ProgramPath("verbena-server");
  options.args = {"--listen=" + (host == Host::kServer ? ServerAddress() : LocalAddress()),
                  FabricFlag(), "--memory=64MiB", "--workers=1"};
  options.args.insert(options.args.end(), flags.begin(), flags.end());
  options.host = host;
  VERBENA_ASSIGN_OR_RETURN(server->process_, Process::Start(std::move(options)));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (server->address_.empty()) {
    VERBENA_RETURN_IF_ERROR(server->process_->WaitForOutput(" ready "));
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError("the server does not finish its line");
    }
    server->address_ = AddressInLog(server->process_->err());
  }
  return server;
}

absl::StatusOr<ExitStatus> ServerProcess::Stop() {
  process_->Signal(SIGTERM);
  return process_->WaitForExit();
}

}  // namespace verbena::testing
