#include "bench/load/agent.h"

#include <gflags/gflags.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/load/agent_messages.h"
#include "bench/load/interrupt.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

constexpr std::chrono::seconds kFirstMessageTime{10};
constexpr std::chrono::milliseconds kSlice{100};

// The flags are this process's own; they get back their values when the coordinator is gone.
absl::StatusOr<Config> ConfigOf(const nlohmann::json& message) {
  VERBENA_ASSIGN_OR_RETURN(const Preparation preparation, ParsePreparation(message));
  for (const auto& [name, value] : preparation.flags) {
    if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", value.substr(0, 100), " is not allowed"));
    }
  }
  const auto command = message.find("command");
  const bool load = command != message.end() && *command == "load";
  Properties properties;
  if (preparation.has_properties) {
    VERBENA_RETURN_IF_ERROR(properties.AddText("", "the coordinator"));
  }
  for (const auto& [name, value] : preparation.properties) {
    VERBENA_RETURN_IF_ERROR(properties.AddAssignment(absl::StrCat(name, "=", value)));
  }
  VERBENA_ASSIGN_OR_RETURN(Config config,
                           ConfigFromFlags(load ? Command::kLoad : Command::kRun, properties));
  config.process = preparation.process;
  config.processes = preparation.processes;
  return config;
}

// Runs, and tells each second how far it is; looks meanwhile whether the coordinator wants an end
// or is gone.
absl::Status RunFor(LineSocket& socket, const Config& config, AgentBackends& backends) {
  std::atomic<bool> stop{false};
  absl::Status lost;
  RunnerOptions options;
  options.server_pid = backends.server_pid;
  options.stop = &stop;
  std::vector<SeriesPart> parts;  // not told yet
  options.on_part = [&parts](SeriesPart part) { parts.push_back(std::move(part)); };
  options.on_progress = [&](uint64_t done) {
    lost.Update(socket.Write(ProgressMessage(done, parts)));
    parts.clear();
    const auto message = socket.Read(std::chrono::milliseconds(0));
    if (!message.ok()) lost.Update(message.status());
    if (!lost.ok() || (message->has_value() && MessageType(**message) == "stop")) {
      stop.store(true, std::memory_order_relaxed);
    }
  };
  const ServerFacts before = backends.facts ? backends.facts() : ServerFacts{};
  RunResult result = RunWorkload(config, backends.backends, options);
  VERBENA_RETURN_IF_ERROR(lost);
  RunContext context = backends.context;
  if (backends.facts) context.server = backends.facts();
  if (before.verbs.has_value() && context.server.verbs.has_value()) {
    result.server_verbs = *context.server.verbs - *before.verbs;
  }
  return socket.Write(ResultMessage(result, context, parts));
}

absl::Status Serve(LineSocket& socket, const ConnectBackends& connect) {
  VERBENA_ASSIGN_OR_RETURN(const auto first, socket.Read(kFirstMessageTime));
  if (!first.has_value()) return absl::DeadlineExceededError("the coordinator says nothing");
  VERBENA_ASSIGN_OR_RETURN(const Config config, ConfigOf(*first));
  VERBENA_ASSIGN_OR_RETURN(AgentBackends backends, connect(config));
  VERBENA_RETURN_IF_ERROR(socket.Write({{"type", "ready"}}));
  while (!Interrupted()) {
    const auto message = socket.Read(kSlice);
    if (!message.ok()) {  // the end, as a rule
      return absl::IsUnavailable(message.status()) ? absl::OkStatus() : message.status();
    }
    if (!message->has_value()) continue;
    const std::string type = MessageType(**message);
    if (type == "stop") continue;  // came too late
    if (type != "run") return absl::InvalidArgumentError("the coordinator wants what nobody knows");
    Config run = config;
    VERBENA_RETURN_IF_ERROR(ApplyRunMessage(**message, &run));
    VERBENA_RETURN_IF_ERROR(RunFor(socket, run, backends));
  }
  return absl::CancelledError("interrupted");
}

}  // namespace

absl::Status CheckAgentCommandLine(const Properties& properties) {
  if (!properties.empty()) {
    return absl::InvalidArgumentError(
        "-p and -P are not for agents: the coordinator gives them theirs");
  }
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  for (const gflags::CommandLineFlagInfo& flag : all) {
    if (flag.is_default || !IsAgentFlag(flag.name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag.name, "=", flag.current_value,
                                                   " is not for agents: the coordinator says it"));
  }
  return absl::OkStatus();
}

absl::Status ServeCoordinator(LineSocket& socket, const ConnectBackends& connect) {
  const gflags::FlagSaver saver;
  const absl::Status status = Serve(socket, connect);
  if (!status.ok()) socket.Write(ErrorMessage(status)).IgnoreError();
  return status;
}

}  // namespace verbena::bench
