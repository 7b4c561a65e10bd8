// A storage cluster's work: reads of 4 KiB at a fixed rate, the same for every system, which rises
// until each has had enough; and what the servers' processors do at it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/report/html_report.h"
#include "bench/systems/peers.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

// One system at one rate.
struct RateProbe {
  std::string system;
  double target = 0;  // operations a second
  RunResult result;   // of an open loop

  bool kept() const { return result.lost.empty() && result.schedule_kept(); }
  // Of the server's processor, in percent of a core; nullopt where it is not known.
  std::optional<double> server_load() const;
};

struct StorageResult {
  std::vector<RateProbe> probes;  // by rate, and at each by system
  std::vector<std::string> systems;
  std::vector<std::string> notes;
  std::string fabric;
  std::string device;
  std::map<std::string, std::string> versions;  // of the rivals started here
  bool interrupted = false;

  // The greatest rate that a system has kept; 0 if none.
  double Capacity(const std::string& system) const;
};

// Rates are 1, 2 and 5 times powers of ten from 1,000 on, or from config.rate on, if that is given.
// A system that did not keep a rate has had enough; so has one that was lost.
absl::StatusOr<StorageResult> RunStorageScenario(const Config& config, const Peers& peers);

std::string StorageTable(const Config& config, const StorageResult& result);
nlohmann::json StorageJson(const Config& config, const StorageResult& result);
Report StorageReport(const Config& config, const StorageResult& result);
int ExitStatusOf(const Config& config, const StorageResult& result);

// The rate after `rate` in the sequence 1, 2, 5, 10 ... times a power of ten (for tests).
double NextRate(double rate);

}  // namespace verbena::bench
