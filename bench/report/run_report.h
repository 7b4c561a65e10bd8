// A run, or a comparison of moments of it, as a page.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/report/html_report.h"

namespace verbena::bench {

// What happened in an interval of a run.
struct RunMoment {
  double seconds = 0;  // its end, since measuring began
  double rate = 0;     // operations a second
  struct Kind {
    bool any = false;
    double p50_us = 0;
    double p99_us = 0;
  };
  std::array<Kind, kOpKinds> kinds;
};

// Those of a run's series.
std::vector<RunMoment> MomentsOf(const RunResult& result);

// `moments` in their order; empty: the page shows no course of time.
Report RunReport(const Config& config, const RunContext& context, const RunResult& result,
                 const std::vector<RunMoment>& moments);

// Its parts: the course of time, and what is to be said first.
LineChart LatencyOverTime(const std::vector<RunMoment>& moments);
LineChart RateOverTime(const std::vector<RunMoment>& moments);
std::vector<std::string> WarningsOf(const RunResult& result);

// The percentiles of a histogram of ns as a line in us, to where single operations begin.
ChartSeries PercentileSeries(const std::string& name, const Histogram& histogram);
// A chart for such lines.
LineChart PercentileChart(const std::string& title);

}  // namespace verbena::bench
