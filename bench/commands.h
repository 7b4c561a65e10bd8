// The subcommands of verbena-bench. Each returns the exit status and has printed why.
#pragma once

#include <string>

#include "bench/config.h"

namespace verbena::bench {

inline constexpr int kExitOk = 0;
inline constexpr int kExitWrong = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitConnection = 3;
inline constexpr int kExitOutput = 6;  // the same number as verbena-cli's

// load and run.
int LoadOrRun(const Config& config);
int Compare(const Config& config);
// agent: serves coordinators that come to `address`, one after another, until it is interrupted.
int RunAgent(const std::string& address);
// For count_instructions.sh: config.operations warm GETs, one at a time, inside each of the
// functions VerbenaBenchMeasuredGets and VerbenaBenchMeasuredSubmits.
int WarmGets(const Config& config);
// For client_ratios.sh.
int MeasureClientRatios(const Config& config);
// For fabric_baseline.sh.
int MeasureFabricRatios(const Config& config);
// For storage_ratios.sh; needs no server.
int MeasureStorageRatios(const Config& config);

}  // namespace verbena::bench
