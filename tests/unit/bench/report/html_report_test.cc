#include "bench/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/report/run_report.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HtmlPage, StandsAlone) {
  Report report;
  report.title = "A & B";
  report.subtitle = "one\ntwo";
  report.warnings = {"<b>careful</b>"};
  ReportSection section;
  section.heading = "H";
  section.lines = {{"L",
                    "x",
                    "y",
                    Axis::kLinear,
                    Axis::kLinear,
                    {{"a<", {{0, 1}, {1, 2}}}, {"", {}}, {"c", {{0, 2}, {1, 1}}}}}};
  section.tables = {{"T", {"name", "value"}, {{"k", "<v>"}}}};
  report.sections = {section};
  const std::string page = HtmlPage(report);
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0U);
  EXPECT_THAT(page, HasSubstr("<title>A &amp; B</title>"));
  EXPECT_THAT(page, HasSubstr("width=device-width"));
  EXPECT_THAT(page, HasSubstr("@media print"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;careful&lt;/b&gt;"));
  EXPECT_THAT(page, HasSubstr("<p>two</p>"));
  EXPECT_THAT(page, HasSubstr("data-label=\"value\">&lt;v&gt;"));
  EXPECT_THAT(page, HasSubstr("</svg>a&lt;</span>"));
  // Nothing comes from elsewhere.
  for (const char* part : {"<script", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(part))) << part;
  }
}

TEST(FactsSection, TakesAnyJson) {
  const auto section = FactsSection({{"text", "a\xff"}, {"list", {1, "\xfe"}}, {"none", nullptr}},
                                    nlohmann::json::object());
  ASSERT_EQ(section.tables.size(), 2U);
  EXPECT_EQ(section.tables[0].rows.size(), 3U);
  EXPECT_TRUE(section.tables[1].rows.empty());
}

TEST(RunReport, ShowsPercentilesAndWarnings) {
  RunResult result;
  OpResult& reads = result.ops[Index(OpKind::kRead)];
  for (uint64_t i = 1; i <= 1000; ++i) reads.latency.Record(i * 1000);
  reads.count = 1003;
  reads.errors = 3;
  result.seconds = 2;
  result.first_error = "NOT_FOUND: <x>";
  result.interrupted = true;
  result.verify = {1000, 2};
  std::vector<RunMoment> moments(2);
  moments[0] = {1, 500, {}};
  moments[1] = {2, 600, {}};
  moments[1].kinds[Index(OpKind::kRead)] = {true, 5, 9};
  moments[0].kinds[Index(OpKind::kRead)] = {true, 6, 8};
  Config config;
  config.workload = *FindWorkload("b");
  const Report report = RunReport(config, {}, result, moments);
  ASSERT_EQ(report.sections[0].lines.size(), 3U);
  EXPECT_EQ(report.sections[0].lines[1].series.size(), 2U);
  const std::string page = HtmlPage(report);
  EXPECT_THAT(page, HasSubstr("Latency over time"));
  EXPECT_THAT(page, HasSubstr("Throughput over time"));
  EXPECT_THAT(page, HasSubstr("Interrupted"));
  EXPECT_THAT(page, HasSubstr("2 values were wrong"));
  EXPECT_THAT(page, HasSubstr("NOT_FOUND: &lt;x&gt;"));
  EXPECT_EQ(RunReport(config, {}, result, {}).sections[0].lines.size(), 1U);
}

TEST(PercentileSeries, EndsWhereSingleOperationsBegin) {
  Histogram histogram;
  EXPECT_TRUE(PercentileSeries("x", histogram).points.empty());
  for (uint64_t i = 1; i <= 100; ++i) histogram.Record(i * 1000);
  const ChartSeries series = PercentileSeries("x", histogram);
  ASSERT_FALSE(series.points.empty());
  EXPECT_NEAR(series.points.back().x, 99, 0.01);
  EXPECT_NEAR(series.points.back().y, 99, 0.2);
}

TEST(WriteReport, SaysWhatIsWrong) {
  EXPECT_THAT(WriteReport("/no/such/folder/x.html", {}).ToString(),
              HasSubstr("/no/such/folder/x.html"));
}

}  // namespace
}  // namespace verbena::bench
