#include "bench/compare/compare_report.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/compare/compare_table.h"
#include "bench/load/progress.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "bench/report/run_report.h"

namespace verbena::bench {
namespace {

// A line for each system, in its colour: absent systems keep their place, without points.
using SeriesOf = std::function<std::vector<ChartPoint>(const LaneResult&)>;

std::vector<ChartSeries> SeriesFor(const ComparisonResult& result, uint32_t depth,
                                   const SeriesOf& points) {
  std::vector<ChartSeries> all;
  for (const LaneResult& lane : result.lanes) {
    if (lane.depth != depth) continue;
    const size_t color = ColorOf(lane.system);
    if (all.size() <= color) all.resize(color + 1);
    all[color] = {lane.system, points(lane)};
  }
  return all;
}

BarChart ThroughputBars(const ComparisonResult& result, uint32_t depth) {
  BarChart chart{absl::StrCat("Throughput at depth ", depth),
                 "operations/s, median and spread",
                 Axis::kLinear,
                 {}};
  for (const LaneResult& lane : result.lanes) {
    if (lane.depth != depth) continue;
    const Spread rate = lane.throughput();
    chart.bars.push_back({lane.system, rate.median, rate.least, rate.most, FormatRate(rate.median),
                          ColorOf(lane.system)});
  }
  return chart;
}

BarChart LatencyBars(const ComparisonResult& result, uint32_t depth) {
  BarChart chart{
      absl::StrCat("Read latency at depth ", depth), "us, p50, and a line to p99", Axis::kLog, {}};
  for (const LaneResult& lane : result.lanes) {
    const Histogram& reads = lane.sum.op(OpKind::kRead).latency;
    if (lane.depth != depth || reads.count() == 0) continue;
    const auto p50 = static_cast<double>(reads.Percentile(50));
    chart.bars.push_back({lane.system, p50 / 1e3, p50 / 1e3,
                          static_cast<double>(reads.Percentile(99)) / 1e3, FormatNanos(p50),
                          ColorOf(lane.system)});
  }
  return chart;
}

BarChart ServerBars(const ComparisonResult& result, uint32_t depth) {
  BarChart chart{
      absl::StrCat("Server's processor at depth ", depth), "us an operation", Axis::kLinear, {}};
  for (const LaneResult& lane : result.lanes) {
    const auto cpu = lane.sum.cpu_us_per_op();
    if (lane.depth != depth || !cpu.has_value()) continue;
    chart.bars.push_back(
        {lane.system, *cpu, 0, 0, absl::StrFormat("%.3f us", *cpu), ColorOf(lane.system)});
  }
  return chart;
}

LineChart Percentiles(const ComparisonResult& result, uint32_t depth) {
  LineChart chart = PercentileChart(absl::StrCat("Read latency at depth ", depth));
  chart.series = SeriesFor(result, depth, [](const LaneResult& lane) {
    return PercentileSeries(lane.system, lane.sum.op(OpKind::kRead).latency).points;
  });
  return chart;
}

LineChart OverTime(const ComparisonResult& result, uint32_t depth, const char* title,
                   const char* unit, Axis axis, double Turn::*figure) {
  LineChart chart{
      absl::StrCat(title, " over time, depth ", depth), "round", unit, Axis::kLinear, axis, {}};
  chart.series = SeriesFor(result, depth, [figure](const LaneResult& lane) {
    std::vector<ChartPoint> points;
    for (const Turn& turn : lane.turns) points.push_back({turn.round + 1.0, turn.*figure});
    return points;
  });
  return chart;
}

ReportTable RatioTable(const Config& config, const ComparisonResult& result) {
  ReportTable table{"Throughput of verbena over the others', medians of the rounds' ratios",
                    {"over", "ratio"},
                    {}};
  for (const auto& [name, ratio] : result.Ratios(config.depth)) {
    table.rows.push_back({name, absl::StrFormat("%.2f", ratio)});
  }
  return table;
}

ReportTable CostsTable(const ComparisonResult& result) {
  ReportTable table{
      "What an operation costs",
      {"system", "depth", "read p50", "server CPU us", "client CPU us", "server switches",
       "client switches", "client system calls", "copies, server + client", "bytes on the wire"},
      {}};
  const bool soft = result.fabric == "soft";
  for (const LaneResult& lane : result.lanes) {
    const auto operations = static_cast<double>(std::max<uint64_t>(1, lane.sum.operations()));
    const auto each = [operations](double amount) {
      return absl::StrFormat("%.3f", amount / operations);
    };
    const auto switches = [&each](const ProcessUsage& usage) {
      return each(static_cast<double>(usage.voluntary_switches + usage.involuntary_switches));
    };
    const auto& server = lane.sum.server_usage;
    const uint64_t calls = lane.sum.counters.system_calls;
    const CopyFacts copies = CopiesOf(lane.system, soft);
    table.rows.push_back(
        {lane.system, absl::StrCat(lane.depth),
         FormatNanos(static_cast<double>(lane.sum.op(OpKind::kRead).latency.Percentile(50))),
         server.has_value() ? each(server->cpu_seconds * 1e6) : "-",
         each(lane.sum.client_usage.cpu_seconds * 1e6),
         server.has_value() ? switches(*server) : "-", switches(lane.sum.client_usage),
         calls > 0 ? each(static_cast<double>(calls)) : "-",
         absl::StrCat(copies.server, " + ", copies.client),
         lane.wire.has_value() ? absl::StrFormat("%.0f", lane.wire->per_op) : "-"});
  }
  return table;
}

ReportTable ExplanationTable(const ComparisonResult& result) {
  ReportTable table{"How these are known", {"system", "copies", "bytes"}, {}};
  for (const LaneResult& lane : result.lanes) {
    if (!table.rows.empty() && table.rows.back()[0] == lane.system) continue;
    table.rows.push_back({lane.system, CopiesOf(lane.system, result.fabric == "soft").explanation,
                          lane.wire.has_value() ? lane.wire->source : "not known"});
  }
  return table;
}

void AddWarnings(const ComparisonResult& result, Report* report) {
  if (result.interrupted) report->warnings.emplace_back("Interrupted: these are partial results.");
  for (const LaneResult& lane : result.lanes) {
    const std::string where = absl::StrCat(lane.system, " at depth ", lane.depth);
    if (!lane.sum.lost.empty()) {
      report->warnings.push_back(absl::StrCat(where, " ended early: ", lane.sum.lost));
    } else if (lane.sum.errors() > 0) {
      report->warnings.push_back(absl::StrCat(where, ": ", lane.sum.errors(),
                                              " errors, the first: ", lane.sum.first_error));
    }
    if (lane.sum.verify.wrong > 0) {
      report->warnings.push_back(
          absl::StrCat(where, ": ", lane.sum.verify.wrong, " values were wrong"));
    }
  }
}

}  // namespace

size_t ColorOf(const std::string& system) {
  const auto& names = ComparedSystems();
  return static_cast<size_t>(std::find(names.begin(), names.end(), system) - names.begin());
}

Report CompareReport(const Config& config, const ComparisonResult& result) {
  Report report;
  report.title = "Verbena and others, side by side";
  report.subtitle = absl::StrFormat(
      "%s over %d records, values of %d bytes; %d rounds in which each system had its turn.",
      config.workload.Title(), config.records, config.value_size, config.rounds);
  AddWarnings(result, &report);
  std::vector<uint32_t> depths = {config.depth};
  if (config.depth != 1) depths.push_back(1);
  for (const uint32_t depth : depths) {
    ReportSection section;
    section.heading = absl::StrCat("Depth ", depth);
    section.bars = {ThroughputBars(result, depth), LatencyBars(result, depth),
                    ServerBars(result, depth)};
    section.lines = {
        Percentiles(result, depth),
        OverTime(result, depth, "Latency (p99)", "us", Axis::kLog, &Turn::p99_us),
        OverTime(result, depth, "Throughput", "operations/s", Axis::kLinear, &Turn::throughput)};
    report.sections.push_back(std::move(section));
  }
  ReportSection costs;
  costs.heading = "What RDMA is for";
  costs.text = Verdict(result);
  for (const std::string& note : result.notes) absl::StrAppend(&costs.text, "Note: ", note, "\n");
  costs.tables = {RatioTable(config, result), CostsTable(result), ExplanationTable(result)};
  report.sections.push_back(std::move(costs));
  report.sections.push_back(FactsSection(
      ConfigJson(config), EnvironmentJson(result.fabric, result.device, result.versions)));
  return report;
}

}  // namespace verbena::bench
