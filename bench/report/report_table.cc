#include "bench/report/report_table.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/progress.h"
#include "bench/report/verbs_cost.h"
#include "common/base/sizes.h"

namespace verbena::bench {
namespace {

std::string OpLine(const std::string& name, const std::string& count, const std::string& errors,
                   const Histogram& latency) {
  const auto micros = [&latency](double percent) {
    return static_cast<double>(latency.Percentile(percent)) / 1e3;
  };
  return absl::StrFormat("%-18s %12s %8s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, count,
                         errors, latency.mean() / 1e3, micros(50), micros(95), micros(99),
                         micros(99.9), static_cast<double>(latency.max()) / 1e3);
}

std::string OpLines(const RunResult& result) {
  const bool open = result.open_loop.has_value();
  std::string text = open
                         ? "\nlatencies are response times, from when an operation was due; "
                           "service times, from its\n"
                           "submission, are below them\n"
                         : "\nlatencies are service times, from submission to callback. A closed "
                           "loop has no schedule: "
                           "what\nusers with one would have waited it does not know (see --rate)\n";
  absl::StrAppendFormat(&text, "%-18s %12s %8s %10s %10s %10s %10s %10s %10s\n", "us", "count",
                        "errors", "mean", "p50", "p95", "p99", "p99.9", "max");
  for (size_t i = 0; i < kOpKinds; ++i) {
    const OpResult& op = result.ops[i];
    if (op.count == 0) continue;
    text += OpLine(OpKindName(static_cast<OpKind>(i)), absl::StrCat(op.count),
                   absl::StrCat(op.errors), open ? op.response : op.latency);
    if (open) text += OpLine("  service", "", "", op.latency);
  }
  return text;
}

// "0.95 READs, 0.05 SENDs, ..." of each operation.
std::string PerOperation(const std::vector<std::pair<const char*, double>>& figures) {
  std::string text;
  for (const auto& [name, figure] : figures) {
    absl::StrAppendFormat(&text, "%s%.3f %s", text.empty() ? "" : ", ", figure, name);
  }
  return text;
}

std::string ScheduleText(const RunResult& result) {
  const OpenLoopResult& open = *result.open_loop;
  std::string text = absl::StrFormat("%s ops/s due (%s), %.2f %% missed", FormatRate(open.target),
                                     ArrivalName(open.arrival), result.missed() * 100);
  if (open.arrival == Arrival::kTrace) {
    absl::StrAppendFormat(&text, ", submitted at most %s late", FormatNanos(open.late_most * 1e9));
  } else {
    absl::StrAppendFormat(&text, ", backlog at most %d, at the end %d", open.backlog_most,
                          open.backlog_end);
  }
  return text;
}

std::string HitRateText(const TraceOutcome& outcome) {
  std::string text =
      absl::StrFormat("%.4f (%d of %d reads found a value)", outcome.hit_rate().value_or(0),
                      outcome.reads - outcome.misses, outcome.reads);
  if (outcome.fills > 0) absl::StrAppend(&text, ", ", outcome.fills, " written after a miss");
  return text;
}

std::string FactLines(const RunContext& context, const RunResult& result) {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    absl::StrAppendFormat(&text, "%-22s %s\n", name, value);
  };
  line("throughput",
       absl::StrFormat("%s ops/s (%d operations in %.2f s)", FormatRate(result.throughput()),
                       result.operations(), result.seconds));
  if (result.errors() > 0) {
    line("errors",
         absl::StrFormat("%d of %d operations failed", result.errors(), result.operations()));
  }
  if (result.counters.reconnects > 0) {
    line("connections lost",
         absl::StrFormat("%d, made again; latencies contain that", result.counters.reconnects));
  }
  if (const auto reads = result.reads_per_get()) {
    line("READs per GET", absl::StrFormat("%.3f (retries %d, GETs by the server's CPU %d)", *reads,
                                          result.counters.read_retries, result.counters.rpc_gets));
  }
  if (const auto rate = result.scanned_per_second()) {
    line("scanned",
         absl::StrFormat("%s items/s, %.1f a scan", FormatRate(*rate), *result.scanned_per_scan()));
  }
  if (result.open_loop.has_value()) {
    line("schedule", ScheduleText(result));
  }
  if (result.trace.has_value()) {
    const TraceOutcome& outcome = result.trace->outcome;
    if (outcome.reads > 0) line("hit rate", HitRateText(outcome));
    if (outcome.not_stored > 0) {
      line("not stored",
           absl::StrFormat("%d: add of what was there, replace or cas of what was not",
                           outcome.not_stored));
    }
    if (outcome.not_found > 0) {
      line("not found", absl::StrFormat("%d: append, prepend, incr, decr or delete of nothing",
                                        outcome.not_found));
    }
  }
  if (const auto client = ClientVerbs(result); !client.empty()) {
    line("client, each operation", PerOperation(client));
  }
  if (const auto server = ServerVerbs(result); !server.empty()) {
    line("server, each operation", PerOperation(server));
  }
  if (const auto cpu = result.cpu_us_per_op()) {
    line("server CPU", absl::StrFormat("%.3f us per operation, %.2f %% of a core", *cpu,
                                       *result.server_cpu_seconds / result.seconds * 100));
  } else {
    line("server CPU", "not known: the server's process is not on this host, or is gone");
  }
  if (result.verify.checked > 0) {
    line("values verified",
         absl::StrFormat("%d, wrong %d", result.verify.checked, result.verify.wrong));
  }
  const ServerFacts& server = context.server;
  if (server.items.value_or(0) > 0 && server.used_bytes.has_value()) {
    line("server memory",
         absl::StrFormat(
             "%s for %d items, %.1f bytes each", FormatSize(*server.used_bytes), *server.items,
             static_cast<double>(*server.used_bytes) / static_cast<double>(*server.items)));
  }
  return text;
}

// What was wrong with a trace.
std::string TraceEndLines(const TraceResult& trace, const RunResult& result) {
  const TraceFacts& facts = trace.facts;
  std::string text;
  if (facts.bad_lines > 0) {
    absl::StrAppendFormat(&text, "BAD LINES              %d of %d lines of the trace%s\n",
                          facts.bad_lines, facts.lines,
                          facts.stopped ? "" : " were passed over (see --strict)");
    for (const std::string& reason : facts.reasons) {
      absl::StrAppend(&text, "                       ", reason, "\n");
    }
    if (facts.bad_lines > facts.reasons.size()) {
      absl::StrAppend(&text, "                       and ", facts.bad_lines - facts.reasons.size(),
                      " more\n");
    }
  }
  if (facts.stopped) text += "STOPPED BY --strict    these are partial results\n";
  if (!facts.unreadable.empty()) {
    absl::StrAppend(&text, "TRACE NOT READ         ", facts.unreadable,
                    "; these are partial results\n");
  } else if (facts.requests == 0 && !result.interrupted && !facts.stopped) {
    text += "NOTHING TO DO          no request has come from the trace\n";
  } else if (result.seconds <= 0 && !result.interrupted) {
    text += "NOTHING MEASURED       the trace ended in the warm-up\n";
  }
  return text;
}

std::string RatioLine(const char* name, const Spread& spread) {
  return absl::StrFormat("  %-52s %6.2f   (%.2f to %.2f)\n", name, spread.median, spread.least,
                         spread.most);
}

}  // namespace

std::string Heading(const Config& config, const RunContext& context) {
  std::string what =
      config.command == Command::kLoad
          ? "load"
          : absl::StrFormat("%s (%s), %s keys", config.workload.Title(),
                            config.workload.description, DistributionName(config.distribution));
  absl::StrAppendFormat(&what, ": %d records, values of %s", config.records,
                        FormatSize(config.value_size));
  if (!config.trace.file.empty()) {
    what = absl::StrCat("trace ", config.trace.file, ": ",
                        config.trace.speed > 0
                            ? absl::StrFormat("%g times its own speed", config.trace.speed)
                            : "as fast as possible");
  }
  const bool one_by_one = config.lane_depth() != config.depth;
  return absl::StrFormat("%s, %d thread%s, %d connection%s, depth %d%s\nfabric %s, device %s\n",
                         what, config.threads, config.threads == 1 ? "" : "s", config.connections,
                         config.connections == 1 ? "" : "s", config.depth,
                         one_by_one ? " (READs of a scan; one operation at a time)" : "",
                         context.fabric, context.device);
}

std::string EndLines(const Config& config, const RunResult& result) {
  std::string text;
  if (!result.schedule_kept()) {
    const OpenLoopResult& open = *result.open_loop;
    absl::StrAppendFormat(
        &text,
        "SCHEDULE NOT KEPT      %s of %s ops/s were done, %.1f %% missed: this rate is too high "
        "for "
        "what\n                       serves it. What was never done is in no percentile\n",
        FormatRate(result.throughput()), FormatRate(open.target), result.missed() * 100);
  }
  if (!result.first_error.empty()) {
    absl::StrAppend(&text, "first error            ", result.first_error, "\n");
    if (config.command == Command::kRun && absl::StartsWith(result.first_error, "NOT_FOUND")) {
      text +=
          "                       (were the records loaded, with the same --records and "
          "--key_size?\n                       A server that evicts drops some)\n";
    }
  }
  if (result.trace.has_value()) text += TraceEndLines(*result.trace, result);
  if (!result.lost.empty()) absl::StrAppend(&text, "ENDED EARLY            ", result.lost, "\n");
  for (const std::string& error : result.agent_errors) {
    absl::StrAppend(&text, "AGENT LOST             ", error, "; these are partial results\n");
  }
  if (result.interrupted) text += "INTERRUPTED            these are partial results\n";
  return text;
}

std::string FormatNanos(double nanos) {
  if (nanos < 1e3) return absl::StrFormat("%.0f ns", nanos);
  if (nanos < 1e6) return absl::StrFormat("%.2f us", nanos / 1e3);
  if (nanos < 1e9) return absl::StrFormat("%.2f ms", nanos / 1e6);
  return absl::StrFormat("%.2f s", nanos / 1e9);
}

std::string BaselineLines(const BaselineResult& b) {
  std::string text = absl::StrFormat(
      "\nbaseline: medians of %d alternating rounds, same process, fabric and device\n"
      "(READs of %d bytes over %s; ping of %d, pong of %d bytes; clock %s, its %.0f ns taken "
      "off)\n",
      b.rounds, b.block_size, FormatSize(b.region_size), b.request_size, b.response_size, b.clock,
      b.clock_ns);
  const auto pair = [&text](const char* name, const std::string& alone, const char* with,
                            const std::string& store) {
    absl::StrAppendFormat(&text, "  %-26s %12s   %-12s %12s\n", name, alone, with, store);
  };
  pair("raw READ p50, depth 1", FormatNanos(b.raw_read_ns.median), "GET",
       FormatNanos(b.get_ns.median));
  pair(absl::StrFormat("raw READs/s, depth %d", b.depth).c_str(),
       FormatRate(b.raw_read_rate.median), "GETs/s", FormatRate(b.get_rate.median));
  pair("SEND ping-pong p50", FormatNanos(b.pingpong_ns.median), "PUT",
       FormatNanos(b.put_ns.median));
  pair("PUT in the storage p50", FormatNanos(b.storage_put_ns.median), "", "");
  text += RatioLine("GET p50 / raw READ p50", b.get_over_raw_read);
  text += RatioLine("GET rate / raw READ rate", b.get_rate_over_raw_read);
  text += RatioLine("PUT p50 / ping-pong p50", b.put_over_pingpong);
  text += RatioLine("(PUT p50 - ping-pong p50) / PUT in the storage p50", b.put_over_storage);
  return text;
}

std::string RunTable(const Config& config, const RunContext& context, const RunResult& result,
                     const BaselineResult* baseline) {
  std::string text = Heading(config, context);
  text += OpLines(result);
  text += "\n";
  text += FactLines(context, result);
  text += EndLines(config, result);
  if (baseline != nullptr) text += BaselineLines(*baseline);
  return text;
}

}  // namespace verbena::bench
