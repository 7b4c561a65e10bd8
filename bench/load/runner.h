// Runs a workload over backends, in threads, with a progress line and an end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/load/series.h"
#include "bench/load/trace_reader.h"
#include "bench/systems/backend.h"

namespace verbena::bench {

struct RunnerOptions {
  TraceReader* trace = nullptr;  // run: its requests instead of the workload's operations; borrowed
  bool progress = false;         // a line on standard error each second, rewritten in place
  // Or else a line each so often; 0: none.
  std::chrono::nanoseconds status_interval{0};
  const std::atomic<bool>* stop = nullptr;  // ends the run early, as an interrupt does; may be null
  // Called about once a second with how many operations have been done; may be empty.
  std::function<void(uint64_t)> on_progress;
  SeriesSampler::OnPart on_part;  // called with each second of the series; may be empty
  int64_t server_pid = 0;         // whose processor time to measure; 0: nobody's
  bool kernel_threads = false;    // also that of the kernel's own threads: a look at all processes
  // Told on standard error, once, when no operation has ended for WaitNotice::kPatience: what is
  // waited for ("the server at ADDR:PORT to end any operation"; empty: nothing is told), and what
  // sets the limit to that (config.timeout).
  std::string awaited;
  std::string bound;
};

// `backends` are config.connections many, each with room for config.depth operations; they are
// dealt out to config.threads threads. Ends when time or operations are over, when a connection is
// lost, or when Interrupted().
RunResult RunWorkload(const Config& config, const std::vector<std::unique_ptr<Backend>>& backends,
                      const RunnerOptions& options);

}  // namespace verbena::bench
