// Runs at several rates: a staircase, a list, or a search for the highest that keeps a percentile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/result.h"

namespace verbena::bench {

// Makes one run, as the configuration says.
using RunOnce = std::function<absl::StatusOr<RunResult>(const Config&)>;

// A run at one rate.
struct Probe {
  std::string purpose;  // "closed loop", "ramp", "sweep", "search", "confirmation"
  double rate = 0;      // 0: closed loop
  RunResult result;
  // Of a search: the percentile of the response times of all kinds, in ns, and whether it and the
  // schedule were kept without errors.
  uint64_t percentile = 0;
  bool kept = false;
};

struct RatesResult {
  std::vector<Probe> probes;   // in the order in which they were made
  std::optional<double> best;  // of a search: the highest rate that was kept, and confirmed
  // Of a search that every rate has kept: the store may do more than the closed loop's rate.
  bool at_least = false;
  absl::Status failure;  // why it ended early: a run could not be made at all

  // All runs together, for the exit status and for what a single run reports.
  RunResult Sum() const;
};

// What config.load asks for. Ends early when a run is interrupted or loses its server. Only the
// first run of a ramp has a warm-up, since the load goes on.
RatesResult RunRates(const Config& config, const RunOnce& run);

// Of the response (or service) times of all kinds together.
Histogram JudgedLatency(const RunResult& result);

}  // namespace verbena::bench
