#include "bench/compare/storage_scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/bench/compare/comparison_testing.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

RateProbe SomeProbe(const char* system, double rate, bool kept) {
  RateProbe probe{system, rate, {}};
  OpResult& reads = probe.result.ops[Index(OpKind::kRead)];
  for (int i = 0; i < 1000; ++i) {
    reads.latency.Record(5000);
    reads.response.Record(7000);
  }
  reads.count = 1000;
  probe.result.seconds = 1;
  probe.result.server_usage = ProcessUsage{0.25, 0.1, 0.15, 10, 1};
  probe.result.server_cpu_seconds = 0.25;
  OpenLoopResult loop;
  loop.target = rate;
  loop.due = kept ? 1000 : 4000;
  loop.seconds = 1;
  loop.backlog_end = kept ? 0 : 3000;
  probe.result.open_loop = loop;
  return probe;
}

StorageResult SomeStorage() {
  StorageResult result;
  result.fabric = "soft";
  result.device = "soft0";
  result.systems = {"verbena", "redis-tcp"};
  result.probes = {SomeProbe("verbena", 1000, true), SomeProbe("redis-tcp", 1000, true),
                   SomeProbe("verbena", 2000, true), SomeProbe("redis-tcp", 2000, false)};
  return result;
}

TEST(StorageScenario, RatesRiseInSteps) {
  EXPECT_DOUBLE_EQ(NextRate(1000), 2000);
  EXPECT_DOUBLE_EQ(NextRate(2000), 5000);
  EXPECT_DOUBLE_EQ(NextRate(5000), 10000);
  EXPECT_DOUBLE_EQ(NextRate(1234), 2000);
  EXPECT_DOUBLE_EQ(NextRate(7000), 10000);
}

TEST(StorageScenario, CapacityIsTheGreatestRateKept) {
  const StorageResult result = SomeStorage();
  EXPECT_EQ(result.Capacity("verbena"), 2000);
  EXPECT_EQ(result.Capacity("redis-tcp"), 1000);
  EXPECT_EQ(result.Capacity("raw-read"), 0);
}

TEST(StorageScenario, TableAndJsonShowLoadsSideBySide) {
  const std::string table = StorageTable(ComparedConfig(), SomeStorage());
  EXPECT_THAT(table, HasSubstr("25.0 %"));
  EXPECT_THAT(table, HasSubstr("saturated"));
  EXPECT_THAT(table, HasSubstr("7.00 us"));
  const nlohmann::json json = StorageJson(ComparedConfig(), SomeStorage());
  ASSERT_EQ(json["systems"].size(), 2U);
  EXPECT_EQ(json["systems"][1]["throughput_ops_s"], 1000);
  const nlohmann::json& probe = json["systems"][1]["rates"][1];
  EXPECT_EQ(probe["kept"], false);
  EXPECT_EQ(probe["target_ops_s"], 2000);
  EXPECT_NEAR(probe["server"]["cpu_percent_of_core"].get<double>(), 25, 1e-9);
  EXPECT_NEAR(probe["response_us"]["p50"].get<double>(), 7, 0.1);
}

TEST(StorageScenario, PageTellsALostSystem) {
  StorageResult result = SomeStorage();
  result.probes[1].result.lost = "UNAVAILABLE: <gone>";
  EXPECT_EQ(result.Capacity("redis-tcp"), 0);
  EXPECT_EQ(ExitStatusOf(ComparedConfig(), result), 3);
  const std::string page = HtmlPage(StorageReport(ComparedConfig(), result));
  EXPECT_THAT(page, HasSubstr("redis-tcp ended early: UNAVAILABLE: &lt;gone&gt;"));
}

}  // namespace
}  // namespace verbena::bench
