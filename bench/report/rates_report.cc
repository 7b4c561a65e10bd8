#include "bench/report/rates_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/progress.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "bench/report/run_report.h"

namespace verbena::bench {
namespace {

std::string Goal(const SearchOptions& search) {
  return absl::StrFormat("p%g of the response time at most %s", search.percent,
                         FormatNanos(static_cast<double>(search.limit.count())));
}

// What is to be said of a run.
std::string NoteOf(const Probe& probe) {
  std::string note;
  if (probe.rate == 0) note = "service times, no schedule";
  if (!probe.result.schedule_kept()) {
    note = absl::StrFormat("SCHEDULE NOT KEPT: %.1f %% missed, backlog at most %d",
                           probe.result.missed() * 100, probe.result.open_loop->backlog_most);
  }
  if (probe.purpose == "search" || probe.purpose == "confirmation") {
    absl::StrAppend(&note, note.empty() ? "" : "; ", probe.kept ? "kept" : "too much");
  }
  return note;
}

std::string ProbeLine(const Probe& probe) {
  const Histogram latency = JudgedLatency(probe.result);
  const auto micros = [&latency](double percent) {
    return static_cast<double>(latency.Percentile(percent)) / 1e3;
  };
  return absl::StrFormat("%-13s %10s %10s %9d %10.2f %10.2f %10.2f %10.2f %10.2f  %s\n",
                         probe.purpose, probe.rate == 0 ? "-" : FormatRate(probe.rate),
                         FormatRate(probe.result.throughput()), probe.result.errors(),
                         latency.mean() / 1e3, micros(50), micros(99), micros(99.9),
                         static_cast<double>(latency.max()) / 1e3, NoteOf(probe));
}

std::string Verdict(const SearchOptions& search, const RatesResult& rates) {
  const std::string goal = Goal(search);
  if (!rates.best.has_value()) {
    return absl::StrCat("no rate was found that keeps ", goal, "\n");
  }
  return absl::StrCat("highest rate that keeps ", goal, ": ", rates.at_least ? "at least " : "",
                      FormatRate(*rates.best), " ops/s (confirmed)\n");
}

nlohmann::json ProbeJson(const Config& config, const Probe& probe) {
  const Histogram latency = JudgedLatency(probe.result);
  nlohmann::json json = {{"purpose", probe.purpose},
                         {"achieved_ops_s", probe.result.throughput()},
                         {"latency_us", LatencyJson(latency)},
                         {"result", ResultJson(probe.result)}};
  if (probe.rate > 0) json["target_ops_s"] = probe.rate;
  if (config.load.search.has_value() && probe.rate > 0) {
    json["percentile_us"] = static_cast<double>(probe.percentile) / 1e3;
    json["kept"] = probe.kept;
  }
  return json;
}

// The runs with a schedule, slow ones first: a search goes back and forth.
std::vector<const Probe*> ByRate(const RatesResult& rates) {
  std::vector<const Probe*> probes;
  for (const Probe& probe : rates.probes) {
    if (probe.rate > 0) probes.push_back(&probe);
  }
  std::stable_sort(probes.begin(), probes.end(),
                   [](const Probe* a, const Probe* b) { return a->rate < b->rate; });
  return probes;
}

// Rates that go over several orders of magnitude would lie upon each other.
Axis RateAxis(const std::vector<const Probe*>& probes) {
  constexpr double kWide = 20;
  return probes.empty() || probes.back()->rate < kWide * probes.front()->rate ? Axis::kLinear
                                                                              : Axis::kLog;
}

LineChart PercentilesByRate(const std::vector<const Probe*>& probes) {
  LineChart chart{"Response times by rate", "operations/s due", "us",
                  RateAxis(probes),         Axis::kLog,         {}};
  for (const double percent : {50.0, 99.0, 99.9}) {
    ChartSeries series{absl::StrFormat("p%g", percent), {}};
    for (const Probe* probe : probes) {
      const Histogram latency = JudgedLatency(probe->result);
      if (latency.count() == 0) continue;
      series.points.push_back(
          {probe->rate, static_cast<double>(latency.Percentile(percent)) / 1e3});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

LineChart ThroughputByRate(const std::vector<const Probe*>& probes) {
  LineChart chart{"Throughput by rate", "operations/s due", "operations/s",
                  RateAxis(probes),     RateAxis(probes),   {}};
  ChartSeries done{"done", {}};
  ChartSeries due{"due", {}};
  for (const Probe* probe : probes) {
    done.points.push_back({probe->rate, probe->result.throughput()});
    due.points.push_back({probe->rate, probe->rate});
  }
  chart.series = {std::move(done), std::move(due)};
  return chart;
}

ReportTable ProbesTable(const RatesResult& rates) {
  ReportTable table{
      "Runs in their order; response times in us",
      {"run", "operations/s due", "done", "errors", "mean", "p50", "p99", "p99.9", "max", "note"},
      {}};
  for (const Probe& probe : rates.probes) {
    const Histogram latency = JudgedLatency(probe.result);
    const auto micros = [](double nanos) { return absl::StrFormat("%.2f", nanos / 1e3); };
    const auto at = [&](double percent) {
      return micros(static_cast<double>(latency.Percentile(percent)));
    };
    table.rows.push_back({probe.purpose, probe.rate == 0 ? "-" : FormatRate(probe.rate),
                          FormatRate(probe.result.throughput()),
                          absl::StrCat(probe.result.errors()), micros(latency.mean()), at(50),
                          at(99), at(99.9), micros(static_cast<double>(latency.max())),
                          NoteOf(probe)});
  }
  return table;
}

}  // namespace

std::string RatesTable(const Config& config, const RunContext& context, const RatesResult& rates) {
  std::string text = Heading(config, context);
  absl::StrAppendFormat(&text,
                        "\n%-13s %10s %10s %9s %10s %10s %10s %10s %10s  (response times, us)\n",
                        "run", "ops/s due", "done", "errors", "mean", "p50", "p99", "p99.9", "max");
  for (const Probe& probe : rates.probes) text += ProbeLine(probe);
  text += "\n";
  if (config.load.search.has_value()) text += Verdict(*config.load.search, rates);
  text += EndLines(config, rates.Sum());
  return text;
}

nlohmann::json RatesJson(const Config& config, const RunContext& context,
                         const RatesResult& rates) {
  nlohmann::json json = RunJson(config, context, rates.Sum(), nullptr);
  json["probes"] = nlohmann::json::array();
  for (const Probe& probe : rates.probes) json["probes"].push_back(ProbeJson(config, probe));
  if (config.load.search.has_value()) {
    const SearchOptions& search = *config.load.search;
    json["search"] = {{"percentile", search.percent},
                      {"limit_us", static_cast<double>(search.limit.count()) / 1e3},
                      {"found", rates.best.has_value()},
                      {"at_least", rates.at_least}};
    if (rates.best.has_value()) json["search"]["ops_s"] = *rates.best;
  }
  return json;
}

Report RatesReport(const Config& config, const RunContext& context, const RatesResult& rates) {
  const RunResult sum = rates.Sum();
  Report report;
  report.title =
      absl::StrFormat("Verbena, %s at %d rates", config.workload.Title(), ByRate(rates).size());
  report.subtitle = absl::StrFormat(
      "%d operations in %.2f s over %d records; fabric %s, device %s.", sum.operations(),
      sum.seconds, config.records, context.fabric, context.device);
  report.warnings = WarningsOf(sum);
  if (!rates.failure.ok()) {
    report.warnings.push_back("It ended early: " + rates.failure.ToString());
  }
  ReportSection section;
  section.heading = "By rate";
  section.text = "A response time counts from when an operation was due.";
  if (config.load.search.has_value()) {
    section.text += "\n" + Verdict(*config.load.search, rates);
  }
  const std::vector<const Probe*> probes = ByRate(rates);
  if (!probes.empty()) {
    section.lines = {PercentilesByRate(probes), ThroughputByRate(probes)};
  }
  section.tables.push_back(ProbesTable(rates));
  report.sections.push_back(std::move(section));
  if (const std::vector<RunMoment> moments = MomentsOf(sum); !moments.empty()) {
    ReportSection course;
    course.heading = "One run after another";
    course.lines = {LatencyOverTime(moments), RateOverTime(moments)};
    report.sections.push_back(std::move(course));
  }
  report.sections.push_back(FactsSection(ConfigJson(config), EnvironmentJson(context)));
  return report;
}

}  // namespace verbena::bench
