#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/baseline/baseline.h"
#include "bench/commands.h"
#include "bench/load/interrupt.h"
#include "bench/load/runner.h"
#include "bench/report/output.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "bench/systems/backend_verbena.h"
#include "bench/systems/server_facts.h"
#include "common/base/macros.h"
#include "common/base/wait_notice.h"

namespace verbena::bench {
namespace {

struct Connections {
  std::vector<std::unique_ptr<Backend>> backends;
  Connection* first = nullptr;
};

// What bounds the waiting, for people.
std::string TimeoutText(const Config& config) {
  return absl::StrFormat("--timeout_seconds=%g",
                         std::chrono::duration<double>(config.timeout).count());
}

absl::StatusOr<Connections> ConnectAll(const Config& config, WaitNotice* notice) {
  Connections all;
  for (uint32_t i = 0; i < config.connections; ++i) {
    notice->Begin(absl::StrCat("the server at ", config.server, " to take a connection"),
                  config.timeout, TimeoutText(config));
    VERBENA_ASSIGN_OR_RETURN(auto connection,
                             Connection::Connect(config.server, ConnectionOptions(config)));
    if (all.first == nullptr) all.first = connection.get();
    all.backends.push_back(std::make_unique<VerbenaBackend>(std::move(connection)));
  }
  notice->End();
  return all;
}

ServerFacts AskServer(const Config& config, Connection& connection, WaitNotice* notice) {
  if (!connection.status().ok()) return {};
  notice->Begin(absl::StrCat("what the server at ", config.server, " tells of itself"),
                config.timeout, TimeoutText(config));
  const auto info = connection.Info();
  notice->End();
  if (!info.ok()) {
    std::fprintf(stderr, "verbena-bench: the server tells nothing of itself: %s\n",
                 info.status().ToString().c_str());
    return {};
  }
  return ParseServerFacts(*info);
}

// Whether the server can do what the workload asks for, told before anything is measured.
absl::Status CheckScans(const Config& config, Connection& connection) {
  if (config.command != Command::kRun || !config.workload.scans()) return absl::OkStatus();
  std::vector<ScanItem> items;
  return connection.Scan({.keys_only = true}, 1, &items);
}

}  // namespace

int LoadOrRun(const Config& config) {
  if (const int checked = CheckJsonFile(config.json_file); checked != kExitOk) return checked;
  WaitNotice notice("verbena-bench");
  auto connections = ConnectAll(config, &notice);
  if (!connections.ok()) return Fail(config.json_file, connections.status(), kExitConnection);
  Connection& first = *connections->first;

  if (const absl::Status status = CheckScans(config, first); absl::IsUnimplemented(status)) {
    return Fail(config.json_file,
                absl::UnimplementedError(absl::StrFormat(
                    "%s needs scans: %s", config.workload.Title(), status.message())),
                kExitUsage);
  } else if (!status.ok()) {
    return Fail(config.json_file, status, kExitConnection);
  }

  RunContext context;
  context.fabric = first.fabric();
  context.device = first.device();
  RunnerOptions options;
  options.progress = isatty(STDERR_FILENO) != 0;
  options.awaited = absl::StrCat("the server at ", config.server, " to end any operation");
  options.bound = TimeoutText(config);
  options.server_pid =
      LocalServerPid(AskServer(config, first, &notice), config.server, config.server_pid);
  RunResult result = RunWorkload(config, connections->backends, options);
  context.server = AskServer(config, first, &notice);
  connections->backends.clear();

  int exit_status = ExitStatusOf(config, result);
  std::optional<BaselineResult> baseline;
  if (config.baseline && config.command == Command::kRun && exit_status == kExitOk) {
    if (options.progress) std::fprintf(stderr, "measuring the baseline\r");
    auto measured = MeasureBaseline(config, context.server);
    if (options.progress) std::fprintf(stderr, "\033[K");
    if (measured.ok()) {
      baseline = *std::move(measured);
    } else if (!absl::IsCancelled(measured.status())) {
      // (The results of the run itself are written.)
      exit_status = Fail("", measured.status(), kExitConnection);
    }
    if (Interrupted()) {
      result.interrupted = true;
      exit_status = ExitStatusOf(config, result);
    }
  }
  const BaselineResult* const shown = baseline.has_value() ? &*baseline : nullptr;
  exit_status = Print(RunTable(config, context, result, shown), exit_status);
  if (!config.json_file.empty()) {
    const absl::Status written =
        WriteJson(config.json_file, RunJson(config, context, result, shown));
    if (!written.ok()) {
      std::fprintf(stderr, "verbena-bench: --json: %s\n", std::string(written.message()).c_str());
      if (exit_status == kExitOk) exit_status = kExitOutput;
    }
  }
  return exit_status;
}

}  // namespace verbena::bench
