#include "bench/compare/compare_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/progress.h"
#include "bench/report/report_table.h"

namespace verbena::bench {
namespace {

std::string Latency(const Histogram& histogram, double percent) {
  if (histogram.count() == 0) return "-";
  return FormatNanos(static_cast<double>(histogram.Percentile(percent)));
}

std::string ComparisonHeading(const Config& config, const ComparisonResult& result) {
  std::string text = absl::StrFormat(
      "%s, %d records, values of %d bytes, %s keys, %d thread%s; %d rounds of %.1f s each\n",
      config.workload.Title(), config.records, config.value_size,
      DistributionName(config.distribution), config.threads, config.threads == 1 ? "" : "s",
      config.rounds, static_cast<double>(config.duration.count()) * 1e-9);
  if (!result.fabric.empty()) {
    absl::StrAppend(&text, "fabric ", result.fabric, ", device ", result.device, "\n");
  }
  return text;
}

std::string ThroughputLines(const ComparisonResult& result) {
  std::string text = absl::StrFormat("\n%-16s %6s %14s %24s %10s %10s %10s\n", "system", "depth",
                                     "ops/s", "(least to most)", "read p50", "p99", "p99.9");
  for (const LaneResult& lane : result.lanes) {
    const Spread rate = lane.throughput();
    const Histogram& reads = lane.sum.op(OpKind::kRead).latency;
    absl::StrAppendFormat(
        &text, "%-16s %6d %14s %24s %10s %10s %10s%s\n", lane.system, lane.depth,
        FormatRate(rate.median),
        absl::StrCat("(", FormatRate(rate.least), " to ", FormatRate(rate.most), ")"),
        Latency(reads, 50), Latency(reads, 99), Latency(reads, 99.9),
        lane.partial() ? "  PARTIAL" : "");
  }
  return text;
}

// `amount` an operation, or "-".
std::string PerOp(std::optional<double> amount, uint64_t operations, double unit = 1) {
  if (!amount.has_value() || operations == 0) return "-";
  return absl::StrFormat("%.3f", *amount / static_cast<double>(operations) / unit);
}

std::string Switches(const ProcessUsage& usage, uint64_t operations) {
  return PerOp(static_cast<double>(usage.voluntary_switches + usage.involuntary_switches),
               operations);
}

std::string CostLine(const LaneResult& lane, bool soft) {
  const uint64_t operations = lane.sum.operations();
  const auto& server = lane.sum.server_usage;
  const ProcessUsage& client = lane.sum.client_usage;
  const CopyFacts copies = CopiesOf(lane.system, soft);
  const auto of_server = [&server](double ProcessUsage::*member) -> std::optional<double> {
    if (!server.has_value()) return std::nullopt;
    return (*server).*member;
  };
  constexpr double kMicro = 1e-6;
  const uint64_t calls = lane.sum.counters.system_calls;
  return absl::StrFormat("%-16s %6d %9s %9s %9s %9s %9s %9s %9s %9s %9s %6s %9s\n", lane.system,
                         lane.depth, Latency(lane.sum.op(OpKind::kRead).latency, 50),
                         PerOp(of_server(&ProcessUsage::cpu_seconds), operations, kMicro),
                         PerOp(of_server(&ProcessUsage::user_seconds), operations, kMicro),
                         PerOp(of_server(&ProcessUsage::system_seconds), operations, kMicro),
                         PerOp(client.cpu_seconds, operations, kMicro),
                         PerOp(lane.sum.kernel_seconds, operations, kMicro),
                         server.has_value() ? Switches(*server, operations) : "-",
                         Switches(client, operations),
                         calls == 0 ? "-" : PerOp(static_cast<double>(calls), operations),
                         absl::StrCat(copies.server, "+", copies.client),
                         lane.wire.has_value() ? absl::StrFormat("%.0f", lane.wire->per_op) : "-");
}

}  // namespace

std::string Verdict(const ComparisonResult& result) {
  const LaneResult* verbena = nullptr;
  const LaneResult* socket = nullptr;
  for (const LaneResult& lane : result.lanes) {
    if (lane.depth != 1 || lane.sum.op(OpKind::kRead).latency.count() == 0) continue;
    if (lane.system == "verbena") verbena = &lane;
    if (socket == nullptr && (lane.system == "memcached-tcp" || lane.system == "redis-tcp")) {
      socket = &lane;
    }
  }
  if (verbena == nullptr || socket == nullptr) return "";
  const auto p50 = [](const LaneResult& lane) {
    return static_cast<double>(lane.sum.op(OpKind::kRead).latency.Percentile(50));
  };
  return absl::StrFormat(
      "At depth 1 a read takes %.1f times as long from %s as from verbena. Most of that is the "
      "socket's cost\n(system calls, the network stack, waking the other side), not the store's.\n",
      p50(*socket) / std::max(p50(*verbena), 1.0), socket->system);
}

std::string CostTable(const ComparisonResult& result) {
  const bool soft = result.fabric == "soft";
  std::string text = absl::StrFormat(
      "\nWhat an operation costs (us of processor time; switches and system calls in numbers)\n"
      "%-16s %6s %9s %9s %9s %9s %9s %9s %9s %9s %9s %6s %9s\n"
      "%-16s %6s %9s %9s %9s %9s %9s %9s %9s %9s %9s %6s %9s\n",
      "", "", "read", "server", "of that", "of that", "client", "kernel", "server", "client",
      "client", "copies", "bytes on", "system", "depth", "p50", "CPU", "user", "kernel", "CPU",
      "threads", "switches", "switches", "calls", "s+c", "the wire");
  for (const LaneResult& lane : result.lanes) text += CostLine(lane, soft);
  text +=
      "kernel threads: all of the machine's, for what drivers do outside of both processes; "
      "- where they cannot be seen\n";
  text += "copies of the value in a read, the server's + the client's processor:\n";
  std::string last;
  for (const LaneResult& lane : result.lanes) {
    if (lane.system == last) continue;
    last = lane.system;
    absl::StrAppend(&text, "  ", lane.system, ": ", CopiesOf(lane.system, soft).explanation, "\n");
  }
  text += "bytes on the wire, both directions:\n";
  last.clear();
  for (const LaneResult& lane : result.lanes) {
    if (lane.system == last || !lane.wire.has_value()) continue;
    last = lane.system;
    absl::StrAppend(&text, "  ", lane.system, ": ", lane.wire->source, "\n");
  }
  text += Verdict(result);
  return text;
}

std::string CompareTable(const Config& config, const ComparisonResult& result) {
  std::string text = ComparisonHeading(config, result);
  text += ThroughputLines(result);
  if (const auto ratios = result.Ratios(config.depth); !ratios.empty()) {
    text += "\nthroughput of verbena, median of the rounds' ratios\n";
    for (const auto& [name, ratio] : ratios) {
      absl::StrAppendFormat(&text, "  %-36s %6.2f\n", name, ratio);
    }
  }
  text += CostTable(result);
  for (const std::string& note : result.notes) absl::StrAppend(&text, "note: ", note, "\n");
  for (const LaneResult& lane : result.lanes) {
    if (!lane.sum.lost.empty()) {
      absl::StrAppend(&text, "ENDED EARLY: ", lane.system, " at depth ", lane.depth, " after ",
                      lane.turns.size(), " turns: ", lane.sum.lost, "\n");
    } else if (!lane.sum.first_error.empty()) {
      absl::StrAppend(&text, "error of ", lane.system, ": ", lane.sum.first_error, "\n");
    }
  }
  if (result.interrupted) text += "INTERRUPTED: these are partial results\n";
  return text;
}

}  // namespace verbena::bench
