#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/baseline/baseline.h"
#include "bench/commands.h"
#include "bench/load/agent.h"
#include "bench/load/coordinator.h"
#include "bench/load/interrupt.h"
#include "bench/load/rates.h"
#include "bench/load/runner.h"
#include "bench/load/trace_reader.h"
#include "bench/report/output.h"
#include "bench/report/rates_report.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "bench/report/result_files.h"
#include "bench/report/run_report.h"
#include "bench/systems/server_facts.h"
#include "bench/systems/verbena_connections.h"
#include "common/base/macros.h"
#include "common/base/wait_notice.h"

namespace verbena::bench {
namespace {

// The run has no results: told on standard error and in --json.
int NoResults(const Config& config, const absl::Status& status, bool may_be_usage) {
  const bool usage =
      absl::IsUnimplemented(status) || (may_be_usage && absl::IsInvalidArgument(status));
  return Fail(config.json_file, status, usage ? kExitUsage : kExitConnection);
}

// What makes the runs: the connections of this process, or agents.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual absl::StatusOr<RunResult> Run(const Config& config) = 0;
  // After the last run.
  virtual RunContext Context() = 0;
};

class LocalEngine : public Engine {
 public:
  // `trace` is borrowed; null: there is none.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(const Config& config, TraceReader* trace) {
    auto notice = std::make_unique<WaitNotice>("verbena-bench");
    VERBENA_ASSIGN_OR_RETURN(auto connections, ConnectToVerbena(config, notice.get()));
    return std::make_unique<LocalEngine>(config, trace, std::move(connections), std::move(notice));
  }

  LocalEngine(const Config& config, TraceReader* trace, VerbenaConnections connections,
              std::unique_ptr<WaitNotice> notice)
      : config_(config),
        notice_(std::move(notice)),
        connections_(std::move(connections)),
        facts_(AskServer(config, *connections_.first, notice_.get())) {
    options_.trace = trace;
    options_.awaited = absl::StrCat("the server at ", config.server, " to end any operation");
    options_.bound = TimeoutText(config);
    options_.progress = isatty(STDERR_FILENO) != 0;
    options_.status_interval = config.load.status_interval;
    options_.server_pid = LocalServerPid(facts_, config.server, config.server_pid);
  }

  absl::StatusOr<RunResult> Run(const Config& config) override {
    const auto before = facts_.verbs;
    RunResult result = RunWorkload(config, connections_.backends, options_);
    facts_ = AskServer(config_, *connections_.first, notice_.get());
    if (before.has_value() && facts_.verbs.has_value()) {
      result.server_verbs = *facts_.verbs - *before;
    }
    return result;
  }

  RunContext Context() override {
    RunContext context;
    context.fabric = connections_.first->fabric();
    context.device = connections_.first->device();
    context.server = facts_;
    connections_.backends.clear();
    connections_.first = nullptr;
    return context;
  }

 private:
  const Config& config_;
  std::unique_ptr<WaitNotice> notice_;
  VerbenaConnections connections_;
  RunnerOptions options_;
  ServerFacts facts_;  // after the last run
};

class AgentsEngine : public Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Start(const Config& config) {
    VERBENA_ASSIGN_OR_RETURN(auto coordinator, Coordinator::Start(config));
    return std::make_unique<AgentsEngine>(std::move(coordinator));
  }

  explicit AgentsEngine(std::unique_ptr<Coordinator> coordinator)
      : coordinator_(std::move(coordinator)) {}
  absl::StatusOr<RunResult> Run(const Config& config) override { return coordinator_->Run(config); }
  RunContext Context() override { return coordinator_->context(); }

 private:
  std::unique_ptr<Coordinator> coordinator_;
};

int Finish(const Config& config, const RunResult& result, const std::string& table,
           const nlohmann::json& json, const std::function<Report()>& report, int exit_status) {
  exit_status = Print(FormattedResult(
                          config, result, [&table] { return table; }, json),
                      exit_status);
  // Those who read another form are told here what the table says of the end.
  if (config.load.format != OutputFormat::kTable) {
    std::fputs(EndLines(config, result).c_str(), stderr);
  }
  return WriteResultFiles(config, result, json, report, exit_status);
}

int SeveralRates(const Config& config, Engine& engine) {
  const RatesResult rates =
      RunRates(config, [&engine](const Config& run) { return engine.Run(run); });
  const RunContext context = engine.Context();
  const RunResult sum = rates.Sum();
  int exit_status = ExitStatusOf(config, sum);
  if (!rates.failure.ok() && exit_status == kExitOk)
    exit_status = Fail("", rates.failure, kExitConnection);
  return Finish(
      config, sum, RatesTable(config, context, rates), RatesJson(config, context, rates),
      [&] { return RatesReport(config, context, rates); }, exit_status);
}

int OneRun(const Config& config, Engine& engine) {
  auto measured = engine.Run(config);
  if (!measured.ok()) return NoResults(config, measured.status(), false);
  RunResult& result = *measured;
  const RunContext context = engine.Context();
  int exit_status = ExitStatusOf(config, result);
  std::optional<BaselineResult> baseline;
  if (config.baseline && config.command == Command::kRun && exit_status == kExitOk) {
    const bool progress = isatty(STDERR_FILENO) != 0;
    if (progress) std::fprintf(stderr, "measuring the baseline\r");
    auto raw = MeasureBaseline(config, context.server);
    if (progress) std::fprintf(stderr, "\033[K");
    if (raw.ok()) {
      baseline = *std::move(raw);
    } else if (!absl::IsCancelled(raw.status())) {
      // (The results of the run itself are written.)
      exit_status = Fail("", raw.status(), kExitConnection);
    }
    if (Interrupted()) {
      result.interrupted = true;
      exit_status = ExitStatusOf(config, result);
    }
  }
  const BaselineResult* const shown = baseline.has_value() ? &*baseline : nullptr;
  return Finish(
      config, result, RunTable(config, context, result, shown),
      RunJson(config, context, result, shown),
      [&] { return RunReport(config, context, result, MomentsOf(result)); }, exit_status);
}

absl::StatusOr<AgentBackends> ConnectForAgent(const Config& config) {
  const auto notice = std::make_shared<WaitNotice>("verbena-bench agent");
  VERBENA_ASSIGN_OR_RETURN(auto connections, ConnectToVerbena(config, notice.get()));
  AgentBackends agent;
  Connection* const first = connections.first;
  agent.backends = std::move(connections.backends);
  agent.context.fabric = first->fabric();
  agent.context.device = first->device();
  agent.facts = [config, first, notice] { return AskServer(config, *first, notice.get()); };
  agent.server_pid = LocalServerPid(agent.facts(), config.server, 0);
  return agent;
}

}  // namespace

int LoadOrRun(const Config& config) {
  if (const absl::Status status = CheckResultFiles(config); !status.ok()) {
    std::fprintf(stderr, "verbena-bench: %s\n", std::string(status.message()).c_str());
    return kExitOutput;
  }
  std::unique_ptr<TraceReader> trace;
  if (!config.trace.file.empty()) {
    auto opened = TraceReader::Open({.path = config.trace.file,
                                     .speed = config.trace.speed,
                                     .strict = config.trace.strict,
                                     .limit = config.operations});
    if (!opened.ok()) return NoResults(config, opened.status(), true);
    trace = *std::move(opened);
  }
  const bool agents = !config.load.agents.empty();
  auto engine = agents ? AgentsEngine::Start(config) : LocalEngine::Start(config, trace.get());
  // What an agent or its flags cannot have is wrong usage; of a server it would be its answer.
  if (!engine.ok()) return NoResults(config, engine.status(), agents);
  return config.load.several_rates() ? SeveralRates(config, **engine) : OneRun(config, **engine);
}

int RunAgent(const std::string& address) {
  auto listener = LineListener::Listen(address);
  if (!listener.ok()) {
    std::fprintf(stderr, "verbena-bench: --listen=%s: %s\n", address.c_str(),
                 std::string(listener.status().message()).c_str());
    return kExitUsage;
  }
  const std::string told = listener->address().ToString();
  std::printf("verbena-bench agent listening on %s\n", told.c_str());
  if (!listener->address().IsLoopback()) {
    std::printf(
        "there is no authentication: whoever reaches this port can have it load any server\n");
  }
  std::fflush(stdout);
  while (!Interrupted()) {
    auto socket = listener->Accept(std::chrono::milliseconds(100));
    if (!socket.ok() || !socket->has_value()) continue;
    const absl::Status status = ServeCoordinator(**socket, ConnectForAgent);
    if (!status.ok()) {
      std::fprintf(stderr, "verbena-bench agent: %s\n", std::string(status.message()).c_str());
    }
  }
  return kExitOk;
}

}  // namespace verbena::bench
