#include "bench/load/coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/load/agent_messages.h"
#include "bench/load/interrupt.h"
#include "bench/load/progress.h"
#include "common/base/clock.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

constexpr std::chrono::seconds kConnectTime{10};
// An agent connects all its connections, and may fill their caches, before it is ready.
constexpr std::chrono::seconds kReadyTime{300};
// An agent reports each second while it runs. One that says nothing for so long is lost; at the end
// it may wait that long for its last answers.
constexpr int64_t kSilenceNanos = 30'000'000'000;

absl::Status Of(const std::string& address, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("agent ", address, ": ", status.message()));
}

}  // namespace

struct Coordinator::Gathering {
  Gathering(const Config& config, size_t agents) : results(config), series(agents) {}
  ResultMerger results;
  SeriesMerger series;
  std::vector<std::string> errors;  // of agents that were lost
};

Coordinator::Coordinator(const Config& config)
    : config_(config), in_place_(isatty(STDERR_FILENO) != 0) {}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const Config& config) {
  std::unique_ptr<Coordinator> coordinator(new Coordinator(config));
  for (uint32_t i = 0; i < config.load.agents.size(); ++i) {
    const std::string& address = config.load.agents[i];
    if (absl::Status status = coordinator->Prepare(address, i); !status.ok()) {
      return Of(address, status);
    }
  }
  // They connect at the same time.
  for (const auto& agent : coordinator->agents_) {
    if (absl::Status status = coordinator->AwaitReady(*agent); !status.ok()) {
      return Of(agent->address, status);
    }
  }
  return coordinator;
}

absl::Status Coordinator::Prepare(const std::string& address, uint32_t number) {
  Preparation preparation;
  preparation.process = number;
  preparation.processes = static_cast<uint32_t>(config_.load.agents.size());
  VERBENA_ASSIGN_OR_RETURN(preparation.flags, FlagsForAgents(config_));
  preparation.flags["server"] = config_.server;
  preparation.has_properties = !config_.properties.empty();
  preparation.properties = PropertiesForAgents(config_);
  VERBENA_ASSIGN_OR_RETURN(auto socket, LineSocket::Connect(address, kConnectTime));
  nlohmann::json message = PreparationMessage(preparation);
  message["command"] = CommandName(config_.command);
  VERBENA_RETURN_IF_ERROR(socket.Write(message));
  agents_.push_back(std::make_unique<Agent>(Agent{address, std::move(socket)}));
  return absl::OkStatus();
}

absl::Status Coordinator::AwaitReady(Agent& agent) {
  const int64_t deadline = DeadlineAfter(std::chrono::nanoseconds(kReadyTime).count());
  while (MonotonicNanos() < deadline) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    VERBENA_ASSIGN_OR_RETURN(const auto message, agent.socket.Read(std::chrono::milliseconds(100)));
    if (!message.has_value()) continue;
    if (MessageType(*message) == "ready") return absl::OkStatus();
    if (MessageType(*message) == "error") return ParseError(*message);
    return absl::InvalidArgumentError("it has answered something else than ready");
  }
  return absl::DeadlineExceededError("it has not become ready");
}

void Coordinator::StopAll() {
  for (const auto& agent : agents_) {
    // One that is lost is noticed when it is listened to.
    if (!agent->done) agent->socket.Write({{"type", "stop"}}).IgnoreError();
  }
}

absl::Status Coordinator::Listen(Agent& agent, Gathering& gathering) {
  VERBENA_ASSIGN_OR_RETURN(const auto message, agent.socket.Read(std::chrono::milliseconds(5)));
  const int64_t now = MonotonicNanos();
  if (!message.has_value()) {
    return now - agent.heard_nanos <= kSilenceNanos
               ? absl::OkStatus()
               : absl::DeadlineExceededError("it has said nothing for 30 s");
  }
  agent.heard_nanos = now;
  const std::string type = MessageType(*message);
  if (type == "progress") {
    VERBENA_ASSIGN_OR_RETURN(const AgentProgress progress, ParseProgress(*message));
    agent.operations = progress.operations;
    return TakeParts(agent, progress.parts, gathering);
  }
  if (type == "error") return ParseError(*message);
  if (type != "result") return absl::InvalidArgumentError("it has sent no result");
  VERBENA_ASSIGN_OR_RETURN(const AgentResult parsed, ParseResult(*message));
  VERBENA_RETURN_IF_ERROR(TakeParts(agent, parsed.parts, gathering));
  gathering.series.End(agent.place);
  gathering.results.Add(parsed.result);
  if (context_.fabric.empty() || !context_.server.items.has_value()) context_ = parsed.context;
  agent.operations = parsed.result.operations();
  agent.done = true;
  return absl::OkStatus();
}

absl::Status Coordinator::TakeParts(Agent& agent, const std::vector<SeriesPart>& parts,
                                    Gathering& gathering) {
  for (const SeriesPart& part : parts) {
    if (!gathering.series.Add(agent.place, part)) {
      return absl::InvalidArgumentError("it is too many seconds ahead of another agent");
    }
  }
  return absl::OkStatus();
}

// A line each --status_interval, or each second: what all agents have done in the last second that
// is known of all of them.
void Coordinator::ShowProgress(const Config& config, int64_t begin_nanos,
                               const Gathering& gathering) {
  const int64_t interval = in_place_ ? 1'000'000'000 : config_.load.status_interval.count();
  const int64_t now = MonotonicNanos();
  if (interval == 0 || now < next_line_nanos_) return;
  next_line_nanos_ = now + interval;
  uint64_t done = 0;
  size_t busy = 0;
  for (const auto& agent : agents_) {
    done += agent->operations;
    if (!agent->done) ++busy;
  }
  if (done == 0) return;
  const double seconds = static_cast<double>(now - begin_nanos) * 1e-9;
  std::string text;
  if (const SeriesPart* const last = gathering.series.last(); last != nullptr) {
    const double rate = last->Row().throughput();
    text = absl::StrCat(RateText(rate, last->Latency()), "  ",
                        TimeLeft(config, last->end, done, rate));
  } else {
    text = FormatRate(static_cast<double>(done) / seconds) + " ops/s in the mean";
  }
  std::fprintf(stderr,
               in_place_ ? "\r\033[K%.0f s  %s  %zu of %zu agents at work"
                         : "%.0f s  %s  %zu of %zu agents at work\n",
               seconds, text.c_str(), busy, agents_.size());
}

void Coordinator::Lose(size_t agent, const absl::Status& status, Gathering& gathering) {
  gathering.series.End(agents_[agent]->place);
  gathering.errors.push_back(std::string(Of(agents_[agent]->address, status).message()));
  agents_.erase(agents_.begin() + static_cast<ptrdiff_t>(agent));
}

void Coordinator::StartAll(const Config& config, Gathering& gathering) {
  for (size_t i = 0; i < agents_.size(); ++i) agents_[i]->place = i;
  for (size_t i = 0; i < agents_.size();) {
    agents_[i]->done = false;
    agents_[i]->operations = 0;
    agents_[i]->heard_nanos = MonotonicNanos();
    if (absl::Status status = agents_[i]->socket.Write(RunMessage(config)); !status.ok()) {
      Lose(i, status, gathering);
    } else {
      ++i;
    }
  }
}

absl::StatusOr<RunResult> Coordinator::Run(const Config& config) {
  const int64_t begin = MonotonicNanos();
  next_line_nanos_ = begin + (in_place_ ? 1'000'000'000 : config_.load.status_interval.count());
  Gathering gathering(config, agents_.size());
  StartAll(config, gathering);
  bool stopped = false;
  const auto busy = [](const auto& agent) { return !agent->done; };
  while (std::any_of(agents_.begin(), agents_.end(), busy)) {
    ShowProgress(config, begin, gathering);
    if (Interrupted() && !stopped) {
      stopped = true;
      StopAll();
    }
    for (size_t i = 0; i < agents_.size();) {
      const absl::Status status =
          agents_[i]->done ? absl::OkStatus() : Listen(*agents_[i], gathering);
      if (!status.ok()) {
        Lose(i, status, gathering);
      } else {
        ++i;
      }
    }
  }
  if (in_place_) std::fprintf(stderr, "\r\033[K");
  RunResult result = gathering.results.Take();
  result.series = gathering.series.TakeRows();
  result.interrupted = Interrupted();
  result.agent_errors = std::move(gathering.errors);
  if (result.operations() == 0 && agents_.empty()) {
    return absl::UnavailableError(result.agent_errors.empty() ? "no agent is left"
                                                              : result.agent_errors.front());
  }
  return result;
}

}  // namespace verbena::bench
