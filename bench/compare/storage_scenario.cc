#include "bench/compare/storage_scenario.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/compare/compare_json.h"
#include "bench/compare/compare_report.h"
#include "bench/compare/comparison.h"
#include "bench/load/interrupt.h"
#include "bench/load/progress.h"
#include "bench/load/runner.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

using Json = nlohmann::json;

constexpr double kFirstRate = 1000;
// Nobody gets here; it ends a sweep of something that does nothing.
constexpr double kLastRate = 1e8;

struct Candidate {
  const System* system;
  std::vector<std::unique_ptr<Backend>> backends;
  bool saturated = false;
};

RateProbe ProbeAt(const Config& config, const Candidate& candidate, double rate) {
  Config run = config;
  run.command = Command::kRun;
  run.load.rate = rate;
  RunnerOptions options;
  options.server_pid = candidate.system->server_pid;
  return {candidate.system->name, rate, RunWorkload(run, candidate.backends, options)};
}

std::string LoadText(const RateProbe& probe) {
  const auto load = probe.server_load();
  return load.has_value() ? absl::StrFormat("%.1f %%", *load) : "-";
}

std::string ProbeLatency(const RateProbe& probe, double percent) {
  const Histogram& reads = probe.result.op(OpKind::kRead).judged();
  if (reads.count() == 0) return "-";
  return FormatNanos(static_cast<double>(reads.Percentile(percent)));
}

// A line for each system, in its colour.
LineChart ChartOf(const StorageResult& result, const char* title, const char* unit, Axis axis,
                  const std::function<double(const RateProbe&)>& figure) {
  LineChart chart{title, "operations/s asked for", unit, Axis::kLog, axis, {}};
  for (const RateProbe& probe : result.probes) {
    const size_t color = ColorOf(probe.system);
    if (chart.series.size() <= color) chart.series.resize(color + 1);
    chart.series[color].name = probe.system;
    chart.series[color].points.push_back({probe.target, figure(probe)});
  }
  return chart;
}

}  // namespace

double NextRate(double rate) {
  const double power = std::pow(10, std::floor(std::log10(rate) + 1e-9));
  for (const double step : {2.0, 5.0, 10.0}) {
    if (step * power > rate * (1 + 1e-9)) return step * power;
  }
  return 20 * power;
}

std::optional<double> RateProbe::server_load() const {
  if (!result.server_cpu_seconds.has_value() || result.seconds <= 0) return std::nullopt;
  return *result.server_cpu_seconds / result.seconds * 100;
}

double StorageResult::Capacity(const std::string& system) const {
  double most = 0;
  for (const RateProbe& probe : probes) {
    if (probe.system == system && probe.kept()) most = std::max(most, probe.target);
  }
  return most;
}

absl::StatusOr<StorageResult> RunStorageScenario(const Config& config, const Peers& peers) {
  StorageResult result;
  result.notes = peers.notes();
  result.fabric = peers.fabric();
  result.device = peers.device();
  result.versions = peers.versions();
  std::vector<Candidate> candidates;
  for (const System& system : peers.systems()) {
    if (system.loads_data) VERBENA_RETURN_IF_ERROR(LoadRecords(config, system));
    result.systems.push_back(system.name);
    Candidate& candidate = candidates.emplace_back();
    candidate.system = &system;
    VERBENA_ASSIGN_OR_RETURN(candidate.backends, OpenBackends(config, system, config.depth));
  }
  bool any = true;
  for (double rate = config.load.rate > 0 ? config.load.rate : kFirstRate;
       any && rate <= kLastRate && !Interrupted(); rate = NextRate(rate)) {
    any = false;
    for (Candidate& candidate : candidates) {
      if (candidate.saturated || Interrupted()) continue;
      result.probes.push_back(ProbeAt(config, candidate, rate));
      candidate.saturated = !result.probes.back().kept();
      any |= !candidate.saturated;
    }
  }
  result.interrupted = Interrupted();
  return result;
}

std::string StorageTable(const Config& config, const StorageResult& result) {
  std::string text = absl::StrFormat(
      "storage4k: %d records, values of %d bytes, %s keys, reads at fixed rates for %.1f s each, "
      "at "
      "most %d under way on %d connection%s\n\n%10s  %-16s %12s %10s %10s %12s\n",
      config.records, config.value_size, DistributionName(config.distribution),
      static_cast<double>(config.duration.count()) * 1e-9, config.depth, config.connections,
      config.connections == 1 ? "" : "s", "rate", "system", "reached", "p50", "p99", "server CPU");
  for (const RateProbe& probe : result.probes) {
    absl::StrAppendFormat(&text, "%10s  %-16s %12s %10s %10s %12s%s\n", FormatRate(probe.target),
                          probe.system, FormatRate(probe.result.throughput()),
                          ProbeLatency(probe, 50), ProbeLatency(probe, 99), LoadText(probe),
                          !probe.result.lost.empty() ? "  ENDED EARLY: " + probe.result.lost
                          : probe.kept()             ? ""
                                                     : "  saturated");
  }
  text += "\nLatencies are from when a read was due. The greatest rate that was kept:\n";
  for (const std::string& system : result.systems) {
    const double most = result.Capacity(system);
    absl::StrAppendFormat(&text, "  %-16s %12s\n", system, most > 0 ? FormatRate(most) : "none");
  }
  for (const std::string& note : result.notes) absl::StrAppend(&text, "note: ", note, "\n");
  if (result.interrupted) text += "INTERRUPTED: these are partial results\n";
  return text;
}

Json StorageJson(const Config& config, const StorageResult& result) {
  Json json;
  json["scenario"] = "storage4k";
  json["systems"] = Json::array();
  for (const std::string& system : result.systems) {
    Json entry = {
        {"name", system}, {"throughput_ops_s", result.Capacity(system)}, {"rates", Json::array()}};
    for (const RateProbe& probe : result.probes) {
      if (probe.system != system) continue;
      Json row = ThroughputJson(probe.result);
      const Histogram& reads = probe.result.op(OpKind::kRead).judged();
      row["target_ops_s"] = probe.target;
      row["kept"] = probe.kept();
      row["response_us"] = {{"p50", static_cast<double>(reads.Percentile(50)) / 1e3},
                            {"p99", static_cast<double>(reads.Percentile(99)) / 1e3},
                            {"p99.9", static_cast<double>(reads.Percentile(99.9)) / 1e3}};
      row["server"] = Json::object();
      const uint64_t operations = probe.result.operations();
      if (probe.result.server_usage.has_value()) {
        row["server"] = UsageJson(*probe.result.server_usage, operations);
        row["server"]["cpu_percent_of_core"] = *probe.server_load();
      }
      row["client"] = UsageJson(probe.result.client_usage, operations);
      if (!probe.result.lost.empty()) row["connection_lost"] = probe.result.lost;
      entry["rates"].push_back(std::move(row));
    }
    json["systems"].push_back(std::move(entry));
  }
  json["notes"] = result.notes;
  json["interrupted"] = result.interrupted;
  json["config"] = ConfigJson(config);
  json["environment"] = EnvironmentJson(result.fabric, result.device, result.versions);
  return json;
}

Report StorageReport(const Config& config, const StorageResult& result) {
  Report report;
  report.title = "Reads of 4 KiB at fixed rates";
  report.subtitle = absl::StrFormat("%d records, values of %d bytes, %s keys.", config.records,
                                    config.value_size, DistributionName(config.distribution));
  if (result.interrupted) report.warnings.emplace_back("Interrupted: these are partial results.");
  for (const RateProbe& probe : result.probes) {
    if (!probe.result.lost.empty()) {
      report.warnings.push_back(absl::StrCat(probe.system, " ended early: ", probe.result.lost));
    }
  }
  ReportSection section;
  section.heading = "The servers' processors, and latency";
  section.lines.push_back(
      ChartOf(result, "Server's processor load", "% of a core", Axis::kLinear,
              [](const RateProbe& probe) { return probe.server_load().value_or(std::nan("")); }));
  section.lines.push_back(
      ChartOf(result, "Response time, p50", "us", Axis::kLog, [](const RateProbe& probe) {
        const auto& reads = probe.result.op(OpKind::kRead).judged();
        return static_cast<double>(reads.Percentile(50)) / 1e3;
      }));
  section.lines.push_back(
      ChartOf(result, "Response time, p99", "us", Axis::kLog, [](const RateProbe& probe) {
        const auto& reads = probe.result.op(OpKind::kRead).judged();
        return static_cast<double>(reads.Percentile(99)) / 1e3;
      }));
  section.lines.push_back(
      ChartOf(result, "Throughput", "operations/s reached", Axis::kLog,
              [](const RateProbe& probe) { return probe.result.throughput(); }));
  ReportTable table{"Rates", {"rate", "system", "reached", "p50", "p99", "server CPU", "kept"}, {}};
  for (const RateProbe& probe : result.probes) {
    table.rows.push_back({FormatRate(probe.target), probe.system,
                          FormatRate(probe.result.throughput()), ProbeLatency(probe, 50),
                          ProbeLatency(probe, 99), LoadText(probe), probe.kept() ? "yes" : "no"});
  }
  section.tables.push_back(std::move(table));
  report.sections.push_back(std::move(section));
  report.sections.push_back(FactsSection(
      ConfigJson(config), EnvironmentJson(result.fabric, result.device, result.versions)));
  return report;
}

int ExitStatusOf(const Config& config, const StorageResult& result) {
  int status = 0;
  for (const RateProbe& probe : result.probes) {
    status = std::max(status, ExitStatusOf(config, probe.result));
  }
  return status;
}

}  // namespace verbena::bench
