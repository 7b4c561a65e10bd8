#include "bench/load/result.h"

namespace verbena::bench {

uint64_t RunResult::operations() const {
  uint64_t sum = 0;
  for (const OpResult& op : ops) sum += op.count;
  return sum;
}

uint64_t RunResult::errors() const {
  uint64_t sum = 0;
  for (const OpResult& op : ops) sum += op.errors;
  return sum;
}

double RunResult::throughput() const {
  return seconds <= 0 ? 0 : static_cast<double>(operations() - errors()) / seconds;
}

std::optional<double> RunResult::reads_per_get() const {
  if (counters.gets == 0) return std::nullopt;
  return static_cast<double>(counters.reads) / static_cast<double>(counters.gets);
}

std::optional<double> RunResult::cpu_us_per_op() const {
  if (!server_cpu_seconds.has_value() || operations() == 0) return std::nullopt;
  return *server_cpu_seconds * 1e6 / static_cast<double>(operations());
}

std::optional<double> RunResult::scanned_per_second() const {
  if (op(OpKind::kScan).latency.count() == 0 || seconds <= 0) return std::nullopt;
  return static_cast<double>(scanned) / seconds;
}

std::optional<double> RunResult::scanned_per_scan() const {
  const uint64_t scans = op(OpKind::kScan).latency.count();
  if (scans == 0) return std::nullopt;
  return static_cast<double>(scanned) / static_cast<double>(scans);
}

std::optional<double> RunResult::doorbells_per_op() const {
  if (counters.doorbells == 0 || operations() == 0) return std::nullopt;
  return static_cast<double>(counters.doorbells) / static_cast<double>(operations());
}

int ExitStatusOf(const Config& config, const RunResult& result) {
  if (!result.lost.empty() && !result.interrupted) return 3;
  // Who interrupts a script interrupts its server too, as a rule: errors are no news then.
  const bool failed = result.lost.empty() && result.errors() > config.max_errors;
  if (result.verify.wrong > 0 || failed) return 1;
  return result.interrupted ? 130 : 0;
}

}  // namespace verbena::bench
