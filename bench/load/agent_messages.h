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
inline constexpr int kAgentProtocol = 2;

// Names and values of flags, and of YCSB's properties.
using FlagValues = std::map<std::string, std::string>;
using PropertyValues = std::map<std::string, std::string>;

// The flags of this command line that agents need, and the properties. InvalidArgument names a flag
// that was given and cannot be used with --agents. Where sizes stand in a file, both have them as a
// list: agents read no files.
absl::StatusOr<FlagValues> FlagsForAgents(const Config& config);
PropertyValues PropertiesForAgents(const Config& config);
// Whether a coordinator may set this flag: none that names a file.
bool IsAgentFlag(const std::string& name);

// The first message of a coordinator, and what an agent takes from it.
struct Preparation {
  uint32_t process = 0;    // the agent's number
  uint32_t processes = 1;  // of so many
  FlagValues flags;
  bool has_properties = false;  // YCSB's defaults hold, even if none is given
  PropertyValues properties;
};
nlohmann::json PreparationMessage(const Preparation& preparation);
absl::StatusOr<Preparation> ParsePreparation(const nlohmann::json& message);

// Begins one run. It has what differs between the runs of a sweep; the rest is in the flags.
nlohmann::json RunMessage(const Config& config);
// Into a configuration that was made of the flags.
absl::Status ApplyRunMessage(const nlohmann::json& message, Config* config);

// Each second of a run: the operations so far, and the seconds that have not been told yet.
// Histograms go as the counts of their cells.
nlohmann::json ProgressMessage(uint64_t operations, const std::vector<SeriesPart>& parts);
struct AgentProgress {
  uint64_t operations = 0;
  std::vector<SeriesPart> parts;
};
absl::StatusOr<AgentProgress> ParseProgress(const nlohmann::json& message);

// A result, with the rest of the seconds; result.series is not in it.
nlohmann::json ResultMessage(const RunResult& result, const RunContext& context,
                             const std::vector<SeriesPart>& parts = {});
struct AgentResult {
  RunResult result;
  RunContext context;
  std::vector<SeriesPart> parts;
};
absl::StatusOr<AgentResult> ParseResult(const nlohmann::json& message);

// {"type":"error"} with the status and its text, and back.
nlohmann::json ErrorMessage(const absl::Status& status);
absl::Status ParseError(const nlohmann::json& message);
// "" if there is none.
std::string MessageType(const nlohmann::json& message);

// What several agents have measured at the same time as one result. Rates, times due and backlogs
// add up, histograms are merged; of what the server has done each agent has seen the whole. The
// series is left to SeriesMerger.
class ResultMerger {
 public:
  explicit ResultMerger(const Config& config);
  void Add(const RunResult& part);
  RunResult Take() { return std::move(sum_); }

 private:
  RunResult sum_;
};

}  // namespace verbena::bench
