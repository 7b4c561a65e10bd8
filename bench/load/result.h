// What a run has measured. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/config.h"
#include "bench/load/schedule.h"
#include "bench/load/series.h"
#include "bench/load/trace_reader.h"
#include "bench/measure/histogram.h"
#include "bench/measure/process_usage.h"
#include "bench/systems/backend.h"
#include "bench/workload/workload.h"

namespace verbena::bench {

// How many operations failed with each code of absl::StatusCode.
inline constexpr size_t kStatusCodes = 17;
using StatusCounts = std::array<uint64_t, kStatusCodes>;
constexpr size_t StatusIndex(absl::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kStatusCodes ? index : static_cast<size_t>(absl::StatusCode::kUnknown);
}

// Operations of one kind.
struct OpResult {
  uint64_t count = 0;   // finished, errors included
  uint64_t errors = 0;  // reads of absent records included
  // Of those that did not fail: the service time, from submission to callback, and in an open loop
  // the response time, from when the schedule had it due.
  Histogram latency;
  Histogram response;
  Histogram failed;  // service times of those that did
  StatusCounts statuses{};

  // What to judge by: the response time where there is a schedule.
  const Histogram& judged() const { return response.count() > 0 ? response : latency; }
};

// What became of the schedule of an open loop.
struct OpenLoopResult {
  double target = 0;  // operations a second that were asked for; of a trace: in the mean
  Arrival arrival = Arrival::kFixed;
  uint64_t due = 0;           // operations whose time came while it was measured
  double seconds = 0;         // that the schedule had for these
  uint64_t backlog_most = 0;  // due and waiting for a free slot: the sum of each thread's most
  uint64_t backlog_end = 0;   // still waiting at the end: never submitted
  // Of a trace, of which nobody knows how many are due ahead of what was read: the longest that a
  // request waited to be submitted, in seconds. The two above are 0 then.
  double late_most = 0;
};

// What a trace found in the store.
struct TraceOutcome {
  uint64_t reads = 0;       // get and gets that did not fail
  uint64_t misses = 0;      // of these, the ones that found nothing
  uint64_t not_stored = 0;  // add, replace and cas whose condition did not hold
  uint64_t not_found = 0;   // append, prepend, incr, decr and delete of what was not there
  uint64_t fills = 0;       // values written after a miss, which are operations of their own

  void Add(const TraceOutcome& other);
  // Nullopt if nothing was read.
  std::optional<double> hit_rate() const;
};

// A run by a trace.
struct TraceResult {
  TraceFacts facts;
  TraceOutcome outcome;
};

struct VerifyResult {
  uint64_t checked = 0;  // values read
  uint64_t wrong = 0;    // of these, the ones that are not what some write left there
};

// What the server's workers have posted and taken so far, all together.
struct ServerVerbCounters {
  uint64_t sends = 0;
  uint64_t reads = 0;
  uint64_t receives = 0;
  uint64_t doorbells = 0;
  uint64_t completions = 0;
  uint64_t bytes_sent = 0;

  // What has come since; nothing goes below 0 (a server may have been started again).
  ServerVerbCounters operator-(const ServerVerbCounters& earlier) const;
};

// What the server says of itself.
struct ServerFacts {
  std::optional<uint64_t> items;
  std::optional<uint64_t> used_bytes;  // of the region, index included
  std::optional<uint64_t> pid;
  std::optional<std::string> version;
  std::optional<ServerVerbCounters> verbs;
};

struct RunResult {
  double seconds = 0;
  std::array<OpResult, kOpKinds> ops;  // by OpKind
  VerifyResult verify;
  uint64_t scanned = 0;              // records that scans have found
  std::optional<TraceResult> trace;  // of a run by a trace
  // Reads and updates that were parts of read-modify-writes, in `ops` of their own kinds but no
  // operations of their own; and of these, those that failed.
  uint64_t parts = 0;
  uint64_t part_errors = 0;
  BackendCounters counters;
  std::string first_error;  // text of the first failed operation
  std::string lost;         // why the run ended early: a connection was lost
  bool interrupted = false;
  std::optional<OpenLoopResult> open_loop;
  std::optional<ServerVerbCounters> server_verbs;  // warm-up and other clients included
  std::vector<SeriesRow> series;                   // of each second
  std::vector<std::string> agent_errors;  // with --agents: who did not do its share, and why
  std::optional<double> server_cpu_seconds;
  std::optional<ProcessUsage> server_usage;  // while it was measured; server_cpu_seconds is in it
  ProcessUsage client_usage;                 // of this process, likewise
  std::optional<double> kernel_seconds;      // of the kernel's own threads, likewise

  const OpResult& op(OpKind kind) const { return ops[Index(kind)]; }
  uint64_t operations() const;
  uint64_t errors() const;
  double throughput() const;  // operations without errors a second
  // Whether less was done than was asked for.
  bool partial() const;
  // Of an open loop: the share of what was due that the run fell behind its schedule, 0 to 1; and
  // whether that was next to nothing.
  double missed() const;
  bool schedule_kept() const { return missed() <= kMissedAtMost; }
  static constexpr double kMissedAtMost = 0.01;
  std::optional<double> reads_per_get() const;
  std::optional<double> cpu_us_per_op() const;
  // Of scans: records a second, and for each scan; nullopt if there were none.
  std::optional<double> scanned_per_second() const;
  std::optional<double> scanned_per_scan() const;
  std::optional<double> doorbells_per_op() const;
};

// Adds what another part of a run has measured: counts and histograms. Times, what became of the
// schedule and the series are the caller's.
void MergeInto(RunResult& sum, const RunResult& part);

// Where it was measured.
struct RunContext {
  std::string fabric;
  std::string device;
  ServerFacts server;
};

// The exit status that a result deserves (see HelpText).
int ExitStatusOf(const Config& config, const RunResult& result);

}  // namespace verbena::bench
