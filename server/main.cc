// verbena-server: see --help.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "server/admin/signals.h"
#include "server/flags.h"
#include "server/server.h"

namespace {

using verbena::LogCritical;
using verbena::LogInfo;
using verbena::LogWarn;
using verbena::SetUpLog;
using verbena::server::CommandLine;
using verbena::server::Server;

constexpr int kCannotStart = 1;
constexpr int kWrongFlags = 2;

// Each connection may take a few descriptors.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Whoever waits for the file sees it whole or not at all.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string draft = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream file(draft);
  file << address << "\n";
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(draft.c_str());
    return absl::InvalidArgumentError(
        absl::StrCat("--port_file=", path, ": cannot write it: ", std::strerror(error)));
  }
  return absl::OkStatus();
}

int Serve(const CommandLine& line) {
  verbena::admin::StopSignals& signals = verbena::admin::StopSignals::Start();
  LogInfo("verbena-server ", verbena::server::Version());
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(line.config);
  if (!server.ok()) {
    LogCritical(server.status().message());
    return kCannotStart;
  }
  for (const std::string& text : (*server)->Banner()) LogInfo(text);
  if (!line.port_file.empty()) {
    if (const absl::Status status = WritePortFile(line.port_file, (*server)->address());
        !status.ok()) {
      LogCritical(status.message());
      return kCannotStart;
    }
  }
  signals.SetServing();
  LogInfo("ready ", (*server)->address());

  const int signal = signals.Wait();
  LogInfo(strsignal(signal), ": finishing what is under way (", (*server)->network().connections(),
          " connections)");
  const bool in_order = (*server)->Stop(absl::Seconds(line.drain_seconds));
  if (!in_order) {
    LogWarn("clients were cut off after ", line.drain_seconds, " s (--drain_seconds)");
  }
  LogInfo("final state ", (*server)->Info());
  server->reset();
  LogInfo("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  verbena::admin::BlockStopSignals();
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<CommandLine> line = verbena::server::ParseCommandLine(&argc, &argv);
  if (!line.ok()) {
    std::fprintf(stderr, "verbena-server: %s\n", std::string(line.status().message()).c_str());
    return kWrongFlags;
  }
  SetUpLog("verbena-server", line->log_level, /*time_stamps=*/true);
  RaiseFileLimit();
  return Serve(*line);
}
