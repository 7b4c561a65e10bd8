#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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
#include "common/base/whole_file.h"

namespace verbena::bench {
namespace {

struct Connections {
  std::vector<std::unique_ptr<Backend>> backends;
  Connection* first = nullptr;
};

absl::StatusOr<Connections> ConnectAll(const Config& config) {
  Connections all;
  for (uint32_t i = 0; i < config.connections; ++i) {
    VERBENA_ASSIGN_OR_RETURN(auto connection,
                             Connection::Connect(config.server, ConnectionOptions(config)));
    if (all.first == nullptr) all.first = connection.get();
    all.backends.push_back(std::make_unique<VerbenaBackend>(std::move(connection)));
  }
  return all;
}

ServerFacts AskServer(Connection& connection) {
  if (!connection.status().ok()) return {};
  const auto info = connection.Info();
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

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "verbena-bench: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return kExitConnection;
}

}  // namespace

int LoadOrRun(const Config& config) {
  if (!config.json_file.empty()) {
    if (const absl::Status status = CheckWholeFile(config.json_file); !status.ok()) {
      std::fprintf(stderr, "verbena-bench: --json: %s\n", std::string(status.message()).c_str());
      return kExitUsage;
    }
  }
  auto connections = ConnectAll(config);
  if (!connections.ok()) return Complain(connections.status());
  Connection& first = *connections->first;

  if (const absl::Status status = CheckScans(config, first); absl::IsUnimplemented(status)) {
    std::fprintf(stderr, "verbena-bench: --workload=%c needs scans: %s\n", config.workload.name,
                 std::string(status.message()).c_str());
    return kExitUsage;
  } else if (!status.ok()) {
    return Complain(status);
  }

  RunContext context;
  context.fabric = first.fabric();
  context.device = first.device();
  RunnerOptions options;
  options.progress = isatty(STDERR_FILENO) != 0;
  options.server_pid = LocalServerPid(AskServer(first), config.server, config.server_pid);
  RunResult result = RunWorkload(config, connections->backends, options);
  context.server = AskServer(first);
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
      exit_status = Complain(measured.status());
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
