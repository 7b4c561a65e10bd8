// What a coordinator and its agents say to each other: see "Several processes or hosts" in
// bench/README.md. Nothing that comes from the other side is trusted.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "nlohmann/json.hpp"

namespace verbena::bench {

// The version of the protocol; both sides must have the same.
inline constexpr int kAgentProtocol = 1;

// Names and values of flags.
using FlagValues = std::map<std::string, std::string>;

// The flags of this command line that agents need. InvalidArgument names one that was given and
// cannot be used with --agents.
absl::StatusOr<FlagValues> FlagsForAgents();
// Whether a coordinator may set this flag: none that names a file.
bool IsAgentFlag(const std::string& name);

// The first message of a coordinator, and what an agent takes from it.
struct Preparation {
  uint32_t process = 0;    // the agent's number
  uint32_t processes = 1;  // of so many
  FlagValues flags;
};
nlohmann::json PreparationMessage(const Preparation& preparation);
absl::StatusOr<Preparation> ParsePreparation(const nlohmann::json& message);

// Begins one run. It has what differs between the runs of a sweep; the rest is in the flags.
nlohmann::json RunMessage(const Config& config);
// Into a configuration that was made of the flags.
absl::Status ApplyRunMessage(const nlohmann::json& message, Config* config);

// A result. Histograms go as the counts of their cells.
nlohmann::json ResultMessage(const RunResult& result, const RunContext& context);
struct AgentResult {
  RunResult result;
  RunContext context;
};
absl::StatusOr<AgentResult> ParseResult(const nlohmann::json& message);

// {"type":"error"} with the status and its text, and back.
nlohmann::json ErrorMessage(const absl::Status& status);
absl::Status ParseError(const nlohmann::json& message);
// "" if there is none.
std::string MessageType(const nlohmann::json& message);

// What several agents have measured at the same time as one result. Rates, times due and backlogs
// add up, histograms are merged; percentiles of single seconds cannot be told.
class ResultMerger {
 public:
  explicit ResultMerger(const Config& config);
  void Add(const RunResult& part);
  RunResult Take() { return std::move(sum_); }

 private:
  RunResult sum_;
};

}  // namespace verbena::bench
