// verbena-server: see --help.
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/standard_descriptors.h"
#include "common/base/whole_file.h"
#include "common/verbs/rdma_core.h"
#include "server/admin/signals.h"
#include "server/flags.h"
#include "server/server.h"

namespace {

using verbena::CheckWholeFile;
using verbena::LogCritical;
using verbena::LogInfo;
using verbena::LogWarn;
using verbena::SetUpLog;
using verbena::WriteWholeFile;
using verbena::admin::StopSignals;
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

int Serve(const CommandLine& line) {
  const absl::StatusOr<StopSignals*> signals = StopSignals::Start();
  if (!signals.ok()) {
    LogCritical(signals.status().message());
    return kCannotStart;
  }
  LogInfo("verbena-server ", verbena::server::Version());
  const auto cannot_write = [&](const absl::Status& status) {
    LogCritical("--port_file=", line.port_file, ": ", status.message());
    return kCannotStart;
  };
  // Asked before minutes go by with touching the memory.
  if (!line.port_file.empty()) {
    if (const absl::Status status = CheckWholeFile(line.port_file); !status.ok()) {
      return cannot_write(status);
    }
  }
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(line.config);
  if (!server.ok()) {
    LogCritical(server.status().message());
    return kCannotStart;
  }
  for (const std::string& text : (*server)->Warnings()) LogWarn(text);
  for (const std::string& text : (*server)->Banner()) LogInfo(text);
  if (!line.port_file.empty()) {
    if (const absl::Status status =
            WriteWholeFile(line.port_file, absl::StrCat((*server)->address(), "\n"));
        !status.ok()) {
      return cannot_write(status);
    }
  }
  (*signals)->SetServing();
  LogInfo("ready ", (*server)->address());

  const int signal = (*signals)->Wait();
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
  verbena::HoldStandardDescriptors();
  // Only the acceptor's thread destroys what is on devices, and takes their events; a worker takes
  // the events of its own completion queues, which are destroyed when it has given them up or
  // ended.
  verbena::verbs::AllowDestroyingAfterRemoval();
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
