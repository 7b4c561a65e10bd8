#include "bench/compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/compare/compare_json.h"
#include "bench/compare/compare_report.h"
#include "bench/compare/compare_table.h"
#include "tests/unit/bench/compare/comparison_testing.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Comparison, RatiosAreMediansOfRounds) {
  ComparisonResult result = SomeComparison();
  const auto ratios = result.Ratios(16);
  EXPECT_EQ(ratios.size(), 14U);  // seven others, at two depths
  EXPECT_NEAR(ratios.at("verbena_over_verbena-send"), 2, 1e-9);
  EXPECT_NEAR(ratios.at("verbena_over_raw-send_depth1"), 8, 1e-9);
  EXPECT_EQ(ratios.count("verbena_over_verbena"), 0U);
}

// Rounds that one of two systems had alone tell nothing of their ratio.
TEST(Comparison, RatiosNeedBothSystemsInARound) {
  ComparisonResult result = SomeComparison();
  for (LaneResult& lane : result.lanes) {
    if (lane.system == "redis-unix") lane.turns = {{2, 1e6, 1, 1}};
    if (lane.system == "redis-tcp") lane.turns.clear();
  }
  const auto ratios = result.Ratios(16);
  EXPECT_NEAR(ratios.at("verbena_over_redis-unix"), 1.2, 1e-9);
  EXPECT_EQ(ratios.count("verbena_over_redis-tcp"), 0U);
}

TEST(CompareTable, TellsWhatOperationsCost) {
  const std::string table = CompareTable(ComparedConfig(), SomeComparison());
  for (const std::string& system : ComparedSystems()) EXPECT_THAT(table, HasSubstr(system));
  EXPECT_THAT(table, HasSubstr("verbena_over_redis-unix"));
  EXPECT_THAT(table,
              HasSubstr("2.000     1.500     0.500     4.000         -     0.600     0.250"));
  EXPECT_THAT(table, HasSubstr("Most of that is the socket's cost"));
  EXPECT_THAT(table, HasSubstr("apt-get install memcached"));
  EXPECT_THAT(table, Not(HasSubstr("PARTIAL")));
}

TEST(CompareTable, MarksWhatIsPartial) {
  ComparisonResult result = SomeComparison();
  result.lanes[4].sum.lost = "UNAVAILABLE: gone";
  result.lanes[4].sum.kernel_seconds = 0.001;
  const std::string table = CompareTable(ComparedConfig(), result);
  EXPECT_THAT(table, HasSubstr("PARTIAL"));
  EXPECT_THAT(table, HasSubstr("ENDED EARLY: memcached-tcp at depth 16 after 3 turns"));
  EXPECT_THAT(table, HasSubstr("4.000     1.000     0.600"));
  EXPECT_EQ(ExitStatusOf(ComparedConfig(), result), 3);
  const nlohmann::json json = CompareJson(ComparedConfig(), result);
  EXPECT_EQ(json["systems"][2]["partial"], true);
  EXPECT_EQ(json["systems"][2]["connection_lost"], "UNAVAILABLE: gone");
  EXPECT_EQ(json["systems"][0]["partial"], false);
  const std::string page = HtmlPage(CompareReport(ComparedConfig(), result));
  EXPECT_THAT(page, HasSubstr("memcached-tcp at depth 16 ended early: UNAVAILABLE: gone"));
}

TEST(CompareTable, StandsWithoutServerOrReads) {
  ComparisonResult result;
  LaneResult& lane = result.lanes.emplace_back();
  lane.system = "redis-tcp";
  lane.depth = 1;
  const std::string table = CompareTable(ComparedConfig(), result);
  EXPECT_THAT(table, HasSubstr("redis-tcp"));
  EXPECT_THAT(table, Not(HasSubstr("nan")));
  EXPECT_THAT(HtmlPage(CompareReport(ComparedConfig(), result)), HasSubstr("nothing was measured"));
}

TEST(CompareJson, HasTheDocumentedShape) {
  const nlohmann::json json = CompareJson(ComparedConfig(), SomeComparison());
  ASSERT_EQ(json["systems"].size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    const nlohmann::json& system = json["systems"][i];
    EXPECT_EQ(system["name"], ComparedSystems()[i]);
    EXPECT_GT(system["throughput_ops_s"].get<double>(), 0);
    EXPECT_EQ(system["ops"]["read"]["count"], 1000);
    EXPECT_NEAR(system["server"]["cpu_us_per_op"].get<double>(), 2, 1e-9);
    EXPECT_NEAR(system["server"]["voluntary_switches_per_op"].get<double>(), 0.5, 1e-9);
    EXPECT_NEAR(system["client"]["cpu_kernel_us_per_op"].get<double>(), 1, 1e-9);
    EXPECT_TRUE(system["copies"]["explanation"].is_string());
    EXPECT_EQ(system["wire"]["bytes_per_op"], 256);
    EXPECT_EQ(system["depth"], 16);
    EXPECT_EQ(system["depth1"]["depth"], 1);
    EXPECT_EQ(system["turns"].size(), 3U);
  }
  EXPECT_NEAR(json["ratios"]["verbena_over_verbena-send"].get<double>(), 2, 1e-9);
}

TEST(SystemFacts, PayloadIsCountedOrComputed) {
  const Config config = ComparedConfig();
  RunResult result;
  EXPECT_FALSE(PayloadOf(config, "verbena", result).has_value());
  result.ops[Index(OpKind::kRead)].count = 10;
  result.counters.reads = 10;
  const auto one_sided = PayloadOf(config, "verbena", result);
  ASSERT_TRUE(one_sided.has_value());
  EXPECT_GE(one_sided->per_op, 116);  // a block holds the item
  EXPECT_THAT(one_sided->source, HasSubstr("computed"));
  result.counters = {};
  result.counters.bytes_in = 1000;
  result.counters.bytes_out = 500;
  EXPECT_EQ(PayloadOf(config, "redis-tcp", result)->per_op, 150);
  EXPECT_THAT(PayloadOf(config, "redis-tcp", result)->source, HasSubstr("counted"));
}

TEST(SystemFacts, EverySystemsCopiesAreExplained) {
  for (const std::string& system : ComparedSystems()) {
    for (const bool soft : {true, false}) {
      EXPECT_STRNE(CopiesOf(system, soft).explanation, "") << system;
    }
  }
  EXPECT_EQ(CopiesOf("verbena", false).server + CopiesOf("verbena", false).client, 0);
  EXPECT_EQ(CopiesOf("redis-unix", true).server, 2);
}

}  // namespace
}  // namespace verbena::bench
