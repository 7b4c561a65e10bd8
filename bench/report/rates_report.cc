#include "bench/report/rates_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/load/progress.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"

namespace verbena::bench {
namespace {

std::string Goal(const SearchOptions& search) {
  return absl::StrFormat("p%g of the response time at most %s", search.percent,
                         FormatNanos(static_cast<double>(search.limit.count())));
}

std::string ProbeLine(const Probe& probe) {
  const Histogram latency = JudgedLatency(probe.result);
  const auto micros = [&latency](double percent) {
    return static_cast<double>(latency.Percentile(percent)) / 1e3;
  };
  std::string note;
  if (probe.rate == 0) note = "service times, no schedule";
  if (!probe.result.schedule_kept()) {
    note = absl::StrFormat("SCHEDULE NOT KEPT: %.1f %% missed, backlog at most %d",
                           probe.result.missed() * 100, probe.result.open_loop->backlog_most);
  }
  if (probe.purpose == "search" || probe.purpose == "confirmation") {
    absl::StrAppend(&note, note.empty() ? "" : "; ", probe.kept ? "kept" : "too much");
  }
  return absl::StrFormat("%-13s %10s %10s %9d %10.2f %10.2f %10.2f %10.2f %10.2f  %s\n",
                         probe.purpose, probe.rate == 0 ? "-" : FormatRate(probe.rate),
                         FormatRate(probe.result.throughput()), probe.result.errors(),
                         latency.mean() / 1e3, micros(50), micros(99), micros(99.9),
                         static_cast<double>(latency.max()) / 1e3, note);
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

}  // namespace verbena::bench
