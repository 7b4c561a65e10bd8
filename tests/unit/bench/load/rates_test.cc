// Sweeps, ramps and searches over a store that is a formula.
#include "bench/load/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/report/rates_report.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

// A single server of 10,000 operations/s whose response time is exponential, with the mean that
// queueing theory gives (M/M/1): 1 / (10,000 - rate).
constexpr double kCapacity = 10'000;

RunResult QueueAt(const Config& config) {
  RunResult result;
  result.seconds = 1;
  OpResult& reads = result.ops[Index(OpKind::kRead)];
  const double rate = config.load.rate;
  const bool open = rate > 0;
  const double served = open ? std::min(rate, kCapacity) : kCapacity;
  const double mean = rate < kCapacity && open ? 1e9 / (kCapacity - rate) : 1e9;
  for (int i = 0; i < 10'000; ++i) {
    const auto nanos = static_cast<uint64_t>(-std::log(1 - (i + 0.5) / 10'000) * mean);
    reads.latency.Record(100'000);
    if (open) reads.response.Record(nanos);
  }
  reads.count = static_cast<uint64_t>(served);
  if (open) {
    result.open_loop.emplace();
    result.open_loop->target = rate;
    result.open_loop->due = static_cast<uint64_t>(rate);
    result.open_loop->seconds = 1;
    result.open_loop->backlog_end = static_cast<uint64_t>(rate - served);
    result.open_loop->backlog_most = result.open_loop->backlog_end;
  }
  return result;
}

Config SearchConfig(std::chrono::nanoseconds limit) {
  Config config;
  config.workload = *FindWorkload("c");
  config.load.search = SearchOptions{99, limit};
  return config;
}

// p99 is ln(100) times the mean: at most 2 ms up to 10,000 - ln(100)/2 ms = 7,697/s.
TEST(Search, FindsTheHighestRate) {
  const Config config = SearchConfig(std::chrono::milliseconds(2));
  std::vector<uint64_t> seeds;
  const RatesResult rates = RunRates(config, [&](const Config& run) {
    seeds.push_back(run.seed);
    return absl::StatusOr<RunResult>(QueueAt(run));
  });
  ASSERT_TRUE(rates.best.has_value());
  EXPECT_LE(*rates.best, 7697);
  EXPECT_GE(*rates.best, 7697 * 0.93);
  EXPECT_FALSE(rates.at_least);
  // All are kept: the closed loop first, the confirmations last.
  EXPECT_EQ(rates.probes.front().purpose, "closed loop");
  EXPECT_EQ(rates.probes[rates.probes.size() - 2].purpose, "confirmation");
  EXPECT_EQ(rates.probes.back().purpose, "confirmation");
  EXPECT_TRUE(rates.probes.back().kept);
  EXPECT_LE(rates.probes.size(), 12u);
  EXPECT_NE(seeds[1], seeds[2]);
  const std::string table = RatesTable(config, {}, rates);
  EXPECT_THAT(table, HasSubstr("highest rate that keeps p99 of the response time at most 2.00 ms"));
  EXPECT_THAT(table, HasSubstr("too much"));
  EXPECT_THAT(table, HasSubstr("SCHEDULE NOT KEPT"));  // of the first bound
  const auto json = RatesJson(config, {}, rates);
  EXPECT_EQ(json["probes"].size(), rates.probes.size());
  EXPECT_EQ(json["search"]["ops_s"], *rates.best);
  EXPECT_EQ(json["search"]["limit_us"], 2000);
}

TEST(Search, SaysWhenThereIsNone) {
  const Config config = SearchConfig(std::chrono::microseconds(1));
  const RatesResult rates =
      RunRates(config, [](const Config& run) { return absl::StatusOr<RunResult>(QueueAt(run)); });
  EXPECT_FALSE(rates.best.has_value());
  EXPECT_LE(rates.probes.size(), 14u);
  EXPECT_THAT(RatesTable(config, {}, rates), HasSubstr("no rate was found that keeps p99"));
  EXPECT_EQ(RatesJson(config, {}, rates)["search"]["found"], false);
}

// A rate that is kept once and not again is lowered until it is.
TEST(Search, ConfirmsWhatItFinds) {
  const Config config = SearchConfig(std::chrono::milliseconds(2));
  int bad = 2;
  std::vector<double> tried;
  const RatesResult rates = RunRates(config, [&](const Config& run) {
    RunResult result = QueueAt(run);
    tried.push_back(run.load.rate);
    const bool again = std::count(tried.begin(), tried.end(), run.load.rate) > 1;
    if ((again || tried.size() > 8) && bad > 0) {
      --bad;
      result.ops[Index(OpKind::kRead)].errors = 1;
    }
    return absl::StatusOr<RunResult>(std::move(result));
  });
  ASSERT_TRUE(rates.best.has_value());
  EXPECT_EQ(bad, 0);
  EXPECT_LT(*rates.best, 7697 * 0.97);
}

TEST(Sweep, RunsEachRateWithItsWarmup) {
  Config config;
  config.load.sweep = {1000, 5000, 20'000};
  config.warmup = std::chrono::seconds(1);
  config.duration = std::chrono::seconds(3);
  const RatesResult rates = RunRates(config, [](const Config& run) {
    EXPECT_EQ(run.warmup, std::chrono::seconds(1));
    EXPECT_EQ(run.duration, std::chrono::seconds(3));
    return absl::StatusOr<RunResult>(QueueAt(run));
  });
  ASSERT_EQ(rates.probes.size(), 3u);
  EXPECT_EQ(rates.probes[2].rate, 20'000);
  EXPECT_FALSE(rates.probes[2].result.schedule_kept());
  EXPECT_NEAR(rates.probes[2].result.missed(), 0.5, 0.01);
  EXPECT_EQ(rates.Sum().operations(), 1000u + 5000u + 10'000u);
  EXPECT_DOUBLE_EQ(rates.Sum().seconds, 3);
}

// The parts of read-modify-writes are no operations of their own, in the sum as little as in a run.
TEST(Sweep, CountsReadModifyWritesOnce) {
  Config config;
  config.load.sweep = {1000, 2000};
  const RatesResult rates = RunRates(config, [](const Config&) {
    RunResult result;
    result.seconds = 1;
    for (const OpKind kind : {OpKind::kReadModifyWrite, OpKind::kRead, OpKind::kUpdate}) {
      result.ops[Index(kind)].count = 10;
      result.ops[Index(kind)].errors = kind == OpKind::kUpdate ? 0 : 1;
    }
    result.parts = 20;
    result.part_errors = 1;
    return absl::StatusOr<RunResult>(std::move(result));
  });
  EXPECT_EQ(rates.Sum().operations(), 20u);
  EXPECT_EQ(rates.Sum().errors(), 2u);
}

TEST(RatesReportTest, DrawsPercentilesAndThroughputByRate) {
  Config config = SearchConfig(std::chrono::milliseconds(2));
  const RatesResult rates =
      RunRates(config, [](const Config& run) { return absl::StatusOr<RunResult>(QueueAt(run)); });
  const Report report = RatesReport(config, {}, rates);
  const ReportSection& section = report.sections[0];
  EXPECT_THAT(section.text, HasSubstr("highest rate that keeps p99"));
  ASSERT_EQ(section.lines.size(), 2u);
  ASSERT_EQ(section.lines[0].series.size(), 3u);
  EXPECT_EQ(section.lines[0].series[1].name, "p99");
  const auto& p99 = section.lines[0].series[1].points;
  // All but the closed loop, in the order of their rates, however the search went.
  ASSERT_EQ(p99.size(), rates.probes.size() - 1);
  for (size_t i = 1; i < p99.size(); ++i) {
    EXPECT_GE(p99[i].x, p99[i - 1].x);
    EXPECT_GE(p99[i].y, p99[i - 1].y);
  }
  EXPECT_EQ(section.lines[1].series[0].name, "done");
  EXPECT_EQ(section.tables[0].rows.size(), rates.probes.size());
  const std::string page = HtmlPage(report);
  EXPECT_THAT(page, HasSubstr("Response times by rate"));
  EXPECT_THAT(page, HasSubstr("SCHEDULE NOT KEPT"));
  // Without any run there is a page, too.
  RatesResult none;
  none.failure = absl::UnavailableError("nobody <there>");
  EXPECT_THAT(HtmlPage(RatesReport(config, {}, none)), HasSubstr("nobody &lt;there&gt;"));
}

TEST(Ramp, GoesOnWithoutWarmup) {
  Config config;
  config.load.ramp = *ParseRamp("1000:3000:1000@0.5");
  config.warmup = std::chrono::seconds(1);
  std::vector<int64_t> warmups;
  const RatesResult rates = RunRates(config, [&](const Config& run) {
    EXPECT_EQ(run.duration, std::chrono::milliseconds(500));
    warmups.push_back(run.warmup.count());
    return absl::StatusOr<RunResult>(QueueAt(run));
  });
  EXPECT_EQ(rates.probes.size(), 3u);
  EXPECT_THAT(warmups, ::testing::ElementsAre(1'000'000'000, 0, 0));
}

TEST(Rates, EndWithALostServerOrWithoutOne) {
  Config config;
  config.load.sweep = {1000, 2000, 3000};
  const RatesResult lost = RunRates(config, [](const Config& run) {
    RunResult result = QueueAt(run);
    if (run.load.rate > 1500) result.lost = "gone";
    return absl::StatusOr<RunResult>(std::move(result));
  });
  EXPECT_EQ(lost.probes.size(), 2u);
  EXPECT_EQ(ExitStatusOf(config, lost.Sum()), 3);
  const RatesResult failed = RunRates(config, [](const Config&) {
    return absl::StatusOr<RunResult>(absl::UnavailableError("nobody"));
  });
  EXPECT_TRUE(failed.probes.empty());
  EXPECT_FALSE(failed.failure.ok());
}

}  // namespace
}  // namespace verbena::bench
