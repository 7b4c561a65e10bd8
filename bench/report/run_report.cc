#include "bench/report/run_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/progress.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"

namespace verbena::bench {
namespace {

std::string MicrosText(double nanos) { return absl::StrFormat("%.2f", nanos / 1e3); }

ReportTable LatencyTable(const RunResult& result) {
  ReportTable table{"Latencies in us",
                    {"operation", "count", "errors", "mean", "p50", "p90", "p99", "p99.9", "max"},
                    {}};
  for (size_t i = 0; i < kOpKinds; ++i) {
    const OpResult& op = result.ops[i];
    if (op.count == 0) continue;
    const Histogram& h = op.judged();
    const auto at = [&h](double percent) {
      return MicrosText(static_cast<double>(h.Percentile(percent)));
    };
    table.rows.push_back({OpKindName(static_cast<OpKind>(i)), absl::StrCat(op.count),
                          absl::StrCat(op.errors), MicrosText(h.mean()), at(50), at(90), at(99),
                          at(99.9), MicrosText(static_cast<double>(h.max()))});
  }
  return table;
}

LineChart PercentilesOf(const RunResult& result) {
  LineChart chart = PercentileChart(
      result.open_loop.has_value() ? "Response times from when operations were due" : "Latencies");
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (result.ops[i].judged().count() == 0) continue;
    chart.series.push_back(
        PercentileSeries(OpKindName(static_cast<OpKind>(i)), result.ops[i].judged()));
  }
  return chart;
}

}  // namespace

std::vector<RunMoment> MomentsOf(const RunResult& result) {
  std::vector<RunMoment> moments;
  for (const SeriesRow& row : result.series) {
    RunMoment moment;
    moment.seconds = row.end;
    for (size_t i = 0; i < kOpKinds; ++i) {
      const SeriesCell& cell = row.kinds[i];
      if (cell.count == 0) continue;
      moment.kinds[i] = {.any = true,
                         .p50_us = static_cast<double>(cell.p50) / 1e3,
                         .p99_us = static_cast<double>(cell.p99) / 1e3};
    }
    moment.rate = row.throughput();
    moments.push_back(moment);
  }
  return moments;
}

LineChart RateOverTime(const std::vector<RunMoment>& moments) {
  LineChart chart{"Throughput over time", "seconds",     "operations/s",
                  Axis::kLinear,          Axis::kLinear, {{"operations/s", {}}}};
  for (const RunMoment& moment : moments) {
    chart.series[0].points.push_back({moment.seconds, moment.rate});
  }
  return chart;
}

LineChart LatencyOverTime(const std::vector<RunMoment>& moments) {
  LineChart chart{"Latency over time", "seconds", "us", Axis::kLinear, Axis::kLog, {}};
  for (size_t i = 0; i < kOpKinds; ++i) {
    const std::string name = OpKindName(static_cast<OpKind>(i));
    ChartSeries p50{name + " p50", {}};
    ChartSeries p99{name + " p99", {}};
    for (const RunMoment& moment : moments) {
      if (!moment.kinds[i].any) continue;
      p50.points.push_back({moment.seconds, moment.kinds[i].p50_us});
      p99.points.push_back({moment.seconds, moment.kinds[i].p99_us});
    }
    if (p50.points.empty()) continue;
    chart.series.push_back(std::move(p50));
    chart.series.push_back(std::move(p99));
  }
  return chart;
}

std::vector<std::string> WarningsOf(const RunResult& result) {
  std::vector<std::string> warnings;
  if (!result.lost.empty()) warnings.push_back("This run ended early: " + result.lost);
  for (const std::string& error : result.agent_errors) {
    warnings.push_back("An agent was lost, these are partial results: " + error);
  }
  if (result.interrupted) warnings.emplace_back("Interrupted: these are partial results.");
  if (result.trace.has_value() && result.trace->facts.bad_lines > 0) {
    const TraceFacts& facts = result.trace->facts;
    warnings.push_back(absl::StrFormat("%d of %d lines of the trace were bad, the first: %s",
                                       facts.bad_lines, facts.lines, facts.reasons.front()));
    if (facts.stopped) warnings.emplace_back("Stopped by it: these are partial results.");
  }
  if (result.trace.has_value() && !result.trace->facts.unreadable.empty()) {
    warnings.push_back("The trace could not be read to its end: " + result.trace->facts.unreadable);
  }
  if (result.verify.wrong > 0) {
    warnings.push_back(absl::StrCat(result.verify.wrong, " values were wrong."));
  }
  if (result.errors() > 0) {
    warnings.push_back(
        absl::StrCat(result.errors(), " operations failed, the first: ", result.first_error));
  }
  if (result.open_loop.has_value() && !result.schedule_kept()) {
    warnings.push_back(absl::StrFormat(
        "The schedule could not be kept: %.1f %% of what was due was not done in time.",
        result.missed() * 100));
  }
  return warnings;
}

ChartSeries PercentileSeries(const std::string& name, const Histogram& histogram) {
  ChartSeries series{name, {}};
  if (histogram.count() == 0) return series;
  constexpr double kStep = 0.1;  // of a nine
  const double nines = std::log10(static_cast<double>(histogram.count()));
  for (int i = 0; i * kStep <= nines && i * kStep <= 6; ++i) {
    const double percent = 100 * (1 - std::pow(10, -i * kStep));
    series.points.push_back({percent, static_cast<double>(histogram.Percentile(percent)) / 1e3});
  }
  return series;
}

LineChart PercentileChart(const std::string& title) {
  return {title, "percentile", "us", Axis::kPercentile, Axis::kLog, {}};
}

Report RunReport(const Config& config, const RunContext& context, const RunResult& result,
                 const std::vector<RunMoment>& moments) {
  Report report;
  const bool traced = result.trace.has_value();
  report.title = absl::StrFormat("Verbena, %s: %s operations/s",
                                 traced ? "trace " + config.trace.file : config.workload.Title(),
                                 FormatRate(result.throughput()));
  const std::string over = !traced ? absl::StrFormat("over %d records", config.records)
                                   : absl::StrFormat("with a hit rate of %.4f",
                                                     result.trace->outcome.hit_rate().value_or(0));
  report.subtitle =
      absl::StrFormat("%d operations in %.2f s %s; fabric %s, device %s.", result.operations(),
                      result.seconds, over, context.fabric, context.device);
  report.warnings = WarningsOf(result);
  ReportSection section;
  section.heading = "Latency and throughput";
  section.lines.push_back(PercentilesOf(result));
  if (!moments.empty()) {
    section.lines.push_back(LatencyOverTime(moments));
    section.lines.push_back(RateOverTime(moments));
  }
  section.tables.push_back(LatencyTable(result));
  report.sections.push_back(std::move(section));
  report.sections.push_back(FactsSection(ConfigJson(config), EnvironmentJson(context)));
  return report;
}

}  // namespace verbena::bench
