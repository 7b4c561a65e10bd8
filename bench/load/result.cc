#include "bench/load/result.h"

#include <algorithm>

namespace verbena::bench {

uint64_t RunResult::operations() const {
  uint64_t sum = 0;
  for (const OpResult& op : ops) sum += op.count;
  return sum - parts;
}

uint64_t RunResult::errors() const {
  uint64_t sum = 0;
  for (const OpResult& op : ops) sum += op.errors;
  return sum - part_errors;
}

double RunResult::throughput() const {
  return seconds <= 0 ? 0 : static_cast<double>(operations() - errors()) / seconds;
}

bool RunResult::partial() const {
  const bool trace_broke_off =
      trace.has_value() && (trace->facts.stopped || !trace->facts.unreadable.empty());
  return interrupted || !lost.empty() || !agent_errors.empty() || trace_broke_off;
}

double RunResult::missed() const {
  if (!open_loop.has_value() || open_loop->due == 0 || seconds <= 0) return 0;
  // By time: what is undone at the end. By count: how much longer it took than it should have.
  const auto due = static_cast<double>(open_loop->due);
  const double undone = static_cast<double>(open_loop->backlog_end) / due;
  const double late = open_loop->seconds <= 0 ? 0 : 1 - open_loop->seconds / seconds;
  // The last operations' own time is no delay.
  const double slack = 0.05 / seconds;
  return std::clamp(std::max(undone, late - slack), 0.0, 1.0);
}

void TraceOutcome::Add(const TraceOutcome& other) {
  reads += other.reads;
  misses += other.misses;
  not_stored += other.not_stored;
  not_found += other.not_found;
  fills += other.fills;
}

std::optional<double> TraceOutcome::hit_rate() const {
  if (reads == 0) return std::nullopt;
  return static_cast<double>(reads - misses) / static_cast<double>(reads);
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

void MergeInto(RunResult& sum, const RunResult& part) {
  for (size_t i = 0; i < kOpKinds; ++i) {
    OpResult& to = sum.ops[i];
    const OpResult& from = part.ops[i];
    to.count += from.count;
    to.errors += from.errors;
    to.latency.Merge(from.latency);
    to.response.Merge(from.response);
    to.failed.Merge(from.failed);
    for (size_t code = 0; code < kStatusCodes; ++code) to.statuses[code] += from.statuses[code];
  }
  sum.verify.checked += part.verify.checked;
  sum.verify.wrong += part.verify.wrong;
  sum.scanned += part.scanned;
  sum.parts += part.parts;
  sum.part_errors += part.part_errors;
  sum.counters += part.counters;
  if (sum.first_error.empty()) sum.first_error = part.first_error;
  if (sum.lost.empty()) sum.lost = part.lost;
  sum.interrupted |= part.interrupted;
  sum.agent_errors.insert(sum.agent_errors.end(), part.agent_errors.begin(),
                          part.agent_errors.end());
}

ServerVerbCounters ServerVerbCounters::operator-(const ServerVerbCounters& earlier) const {
  const auto since = [](uint64_t now, uint64_t then) { return now - std::min(now, then); };
  return {since(sends, earlier.sends),
          since(reads, earlier.reads),
          since(receives, earlier.receives),
          since(doorbells, earlier.doorbells),
          since(completions, earlier.completions),
          since(bytes_sent, earlier.bytes_sent)};
}

int ExitStatusOf(const Config& config, const RunResult& result) {
  if ((!result.lost.empty() || !result.agent_errors.empty()) && !result.interrupted) return 3;
  // Who interrupts a script interrupts its server too, as a rule: errors are no news then.
  const bool failed = result.lost.empty() && result.errors() > config.max_errors;
  if (result.verify.wrong > 0 || failed) return 1;
  if (result.trace.has_value()) {
    const TraceFacts& facts = result.trace->facts;
    if (facts.stopped || !facts.unreadable.empty()) return 2;
    if (!result.interrupted && (facts.requests == 0 || result.seconds <= 0)) return 2;
  }
  return result.interrupted ? 130 : 0;
}

}  // namespace verbena::bench
