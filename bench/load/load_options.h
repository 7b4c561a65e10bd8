// How hard to load and what to write: the flags of rates, outputs and other processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/schedule.h"

namespace verbena::bench {

// Rates from `from` by `step` up (or down) to `to`, each kept for `hold`.
struct RampOptions {
  double from = 0;
  double to = 0;
  double step = 0;  // above 0
  std::chrono::nanoseconds hold{0};

  std::vector<double> Rates() const;
};

// The highest rate at which `percent` % of the response times are at most `limit`.
struct SearchOptions {
  double percent = 99;
  std::chrono::nanoseconds limit{0};
};

enum class OutputFormat { kTable, kYcsb, kJson, kNone };

// What YCSB's text form says of each kind of operation.
struct YcsbForm {
  // Which times: kAll has service times, and beside them response times in an open loop.
  enum class Times { kAll, kService, kResponse, kBoth };
  Times times = Times::kAll;
  bool percentiles = true;   // percents of them
  bool histogram = false;    // how many took how many milliseconds, below `buckets`
  bool time_series = false;  // the mean of each second
  std::vector<double> percents = {50, 95, 99};
  uint64_t buckets = 1000;
};

struct LoadOptions {
  double rate = 0;  // operations a second in all; 0: a closed loop
  Arrival arrival = Arrival::kFixed;
  // At most one of these three.
  std::optional<RampOptions> ramp;
  std::vector<double> sweep;
  std::optional<SearchOptions> search;
  uint64_t warmup_operations = 0;  // measuring begins after so many, at the earliest
  OutputFormat format = OutputFormat::kTable;
  std::string csv_file;                         // empty: none
  std::string hgrm_prefix;                      // empty: none
  std::chrono::nanoseconds status_interval{0};  // of lines of progress; 0: none
  std::vector<std::string> agents;              // HOST:PORT each
  YcsbForm ycsb;

  bool several_rates() const { return ramp.has_value() || !sweep.empty() || search.has_value(); }
};

// What the flags ask for. InvalidArgument names the flag, its value and what is allowed.
absl::StatusOr<LoadOptions> LoadOptionsFromFlags();
// Where an agent listens: the flag --listen.
std::string AgentListenAddress();
// The part of the help text.
std::string_view LoadOptionsHelp();

// Parts of the above, for tests. Errors say what is wrong, without naming the flag.

// "1000", "2.5k", "1M": operations a second, from 0.001 to 100M.
absl::StatusOr<double> ParseRate(std::string_view text);
// "50us", "1.5ms", "2s", "800ns".
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);
// "FROM:TO:STEP@SECONDS".
absl::StatusOr<RampOptions> ParseRamp(std::string_view text);
// "R1,R2,...", at most 1000.
absl::StatusOr<std::vector<double>> ParseSweep(std::string_view text);
// "p99:50us".
absl::StatusOr<SearchOptions> ParseSearch(std::string_view text);

}  // namespace verbena::bench
