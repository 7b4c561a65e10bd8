// What a run has measured. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "bench/config.h"
#include "bench/measure/histogram.h"
#include "bench/measure/process_usage.h"
#include "bench/systems/backend.h"
#include "bench/workload/workload.h"

namespace verbena::bench {

// Operations of one kind.
struct OpResult {
  uint64_t count = 0;   // finished, errors included
  uint64_t errors = 0;  // reads of absent records included
  Histogram latency;    // of those that did not fail
};

struct VerifyResult {
  uint64_t checked = 0;  // values read
  uint64_t wrong = 0;    // of these, the ones that are not what some write left there
};

// What the server says of itself.
struct ServerFacts {
  std::optional<uint64_t> items;
  std::optional<uint64_t> used_bytes;  // of the region, index included
  std::optional<uint64_t> pid;
};

struct RunResult {
  double seconds = 0;
  std::array<OpResult, kOpKinds> ops;  // by OpKind
  VerifyResult verify;
  uint64_t scanned = 0;  // records that scans have found
  BackendCounters counters;
  std::string first_error;  // text of the first failed operation
  std::string lost;         // why the run ended early: a connection was lost
  bool interrupted = false;
  std::optional<double> server_cpu_seconds;
  std::optional<ProcessUsage> server_usage;  // while it was measured; server_cpu_seconds is in it
  ProcessUsage client_usage;                 // of this process, likewise
  std::optional<double> kernel_seconds;      // of the kernel's own threads, likewise

  const OpResult& op(OpKind kind) const { return ops[Index(kind)]; }
  uint64_t operations() const;
  uint64_t errors() const;
  double throughput() const;  // operations without errors a second
  std::optional<double> reads_per_get() const;
  std::optional<double> cpu_us_per_op() const;
  // Of scans: records a second, and for each scan; nullopt if there were none.
  std::optional<double> scanned_per_second() const;
  std::optional<double> scanned_per_scan() const;
  std::optional<double> doorbells_per_op() const;
};

// Where it was measured.
struct RunContext {
  std::string fabric;
  std::string device;
  ServerFacts server;
};

// The exit status that a result deserves (see HelpText).
int ExitStatusOf(const Config& config, const RunResult& result);

}  // namespace verbena::bench
