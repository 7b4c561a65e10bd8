#include "bench/report/report_table.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/progress.h"
#include "common/base/sizes.h"

namespace verbena::bench {
namespace {

std::string Heading(const Config& config, const RunContext& context) {
  std::string what =
      config.command == Command::kLoad
          ? "load"
          : absl::StrFormat("%s (%s), %s keys", config.workload.Title(),
                            config.workload.description, DistributionName(config.distribution));
  const bool one_by_one = config.lane_depth() != config.depth;
  return absl::StrFormat(
      "%s: %d records, values of %s, %d thread%s, %d connection%s, depth %d%s\nfabric %s, device "
      "%s\n",
      what, config.records, FormatSize(config.value_size), config.threads,
      config.threads == 1 ? "" : "s", config.connections, config.connections == 1 ? "" : "s",
      config.depth, one_by_one ? " (READs of a scan; one operation at a time)" : "", context.fabric,
      context.device);
}

std::string OpLines(const RunResult& result) {
  std::string text = absl::StrFormat("\n%-8s %12s %8s %10s %10s %10s %10s %10s\n", "us", "count",
                                     "errors", "mean", "p50", "p99", "p99.9", "max");
  for (size_t i = 0; i < kOpKinds; ++i) {
    const OpResult& op = result.ops[i];
    if (op.count == 0) continue;
    const auto micros = [&op](double percent) {
      return static_cast<double>(op.latency.Percentile(percent)) / 1e3;
    };
    absl::StrAppendFormat(&text, "%-8s %12d %8d %10.2f %10.2f %10.2f %10.2f %10.2f\n",
                          OpKindName(static_cast<OpKind>(i)), op.count, op.errors,
                          op.latency.mean() / 1e3, micros(50), micros(99), micros(99.9),
                          static_cast<double>(op.latency.max()) / 1e3);
  }
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
  if (const auto reads = result.reads_per_get()) {
    line("READs per GET", absl::StrFormat("%.3f (retries %d, GETs by the server's CPU %d)", *reads,
                                          result.counters.read_retries, result.counters.rpc_gets));
  }
  if (const auto rate = result.scanned_per_second()) {
    line("scanned",
         absl::StrFormat("%s items/s, %.1f a scan", FormatRate(*rate), *result.scanned_per_scan()));
  }
  if (const auto doorbells = result.doorbells_per_op()) {
    line("doorbells", absl::StrFormat("%.3f an operation", *doorbells));
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

std::string RatioLine(const char* name, const Spread& spread) {
  return absl::StrFormat("  %-52s %6.2f   (%.2f to %.2f)\n", name, spread.median, spread.least,
                         spread.most);
}

}  // namespace

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
  if (!result.first_error.empty()) {
    absl::StrAppend(&text, "first error            ", result.first_error, "\n");
    if (config.command == Command::kRun && absl::StartsWith(result.first_error, "NOT_FOUND")) {
      text +=
          "                       (were the records loaded, with the same --records and "
          "--key_size?\n                       A server that evicts drops some)\n";
    }
  }
  if (!result.lost.empty()) absl::StrAppend(&text, "ENDED EARLY            ", result.lost, "\n");
  if (result.interrupted) text += "INTERRUPTED            these are partial results\n";
  if (baseline != nullptr) text += BaselineLines(*baseline);
  return text;
}

}  // namespace verbena::bench
