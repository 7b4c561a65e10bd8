// The same work on several systems, in turns.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/compare/system_facts.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/measure/statistics.h"
#include "bench/systems/peers.h"

namespace verbena::bench {

// What a system did in one turn.
struct Turn {
  uint32_t round = 0;
  double throughput = 0;  // operations a second
  double p50_us = 0;      // of reads; 0 if there were none
  double p99_us = 0;
};

// A system at one depth.
struct LaneResult {
  std::string system;
  uint32_t depth = 0;
  std::vector<Turn> turns;
  RunResult sum;                  // of all turns
  std::optional<WireBytes> wire;  // counted by the kernel or the device if it does, else computed

  bool partial() const { return !sum.lost.empty() || sum.interrupted; }
  Spread throughput() const;
};

struct ComparisonResult {
  std::vector<LaneResult> lanes;
  std::vector<std::string> notes;
  std::string fabric;  // of Verbena; empty without it
  std::string device;
  std::map<std::string, std::string> versions;  // of the rivals started here
  bool interrupted = false;

  // The medians over the rounds of verbena's throughput over each other system's, by
  // "verbena_over_SYSTEM" and "verbena_over_SYSTEM_depth1". Only rounds in which both had their
  // turn.
  std::map<std::string, double> Ratios(uint32_t depth) const;
};

// Loads the records into each system and gives all of them their turns. A system that is lost in
// the middle has no more turns; the others go on. An error if a system cannot be loaded at all.
absl::StatusOr<ComparisonResult> RunComparison(const Config& config, const Peers& peers);

// Parts of it that other scenarios need as well.

// Stores the records of `config` through `system`.
absl::Status LoadRecords(const Config& config, const System& system);
// Connections of `system`, config.connections many.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> OpenBackends(const Config& config,
                                                                   const System& system,
                                                                   uint32_t depth);
void AddTo(RunResult& sum, const RunResult& turn);

// 0 if every lane is well, else the greatest of their exit statuses.
int ExitStatusOf(const Config& config, const ComparisonResult& result);

}  // namespace verbena::bench
