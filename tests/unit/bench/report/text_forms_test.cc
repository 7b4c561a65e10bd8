// The forms that other tools read: YCSB's text, HdrHistogram's distribution, CSV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/report/csv_series.h"
#include "bench/report/hgrm.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "bench/report/ycsb_text.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 1,000 reads of 1 to 1,000 us, of which the response took ten times that; three failures.
RunResult ThousandReads(bool open) {
  RunResult result;
  result.seconds = 2;
  OpResult& reads = result.ops[Index(OpKind::kRead)];
  for (uint64_t i = 1; i <= 1000; ++i) {
    reads.latency.Record(i * 1000);
    if (open) reads.response.Record(i * 10'000);
  }
  for (int i = 0; i < 3; ++i) reads.failed.Record(5000);
  reads.count = 1003;
  reads.errors = 3;
  reads.statuses[StatusIndex(absl::StatusCode::kNotFound)] = 2;
  reads.statuses[StatusIndex(absl::StatusCode::kDeadlineExceeded)] = 1;
  if (open) {
    result.open_loop.emplace();
    result.open_loop->target = 1000;
    result.open_loop->due = 2000;
    result.open_loop->seconds = 2;
    result.open_loop->backlog_most = 990;
    result.open_loop->backlog_end = 990;
  }
  return result;
}

TEST(YcsbTextTest, IsYcsbsOwn) {
  const std::string text = YcsbText(Config{}, ThousandReads(false));
  EXPECT_EQ(text,
            "[OVERALL], RunTime(ms), 2000\n"
            "[OVERALL], Throughput(ops/sec), 500.00\n"
            "[READ], Operations, 1000\n"
            "[READ], AverageLatency(us), 500.50\n"
            "[READ], MinLatency(us), 1\n"
            "[READ], MaxLatency(us), 1000\n"
            "[READ], 50thPercentileLatency(us), 500\n"
            "[READ], 95thPercentileLatency(us), 950\n"
            "[READ], 99thPercentileLatency(us), 990\n"
            "[READ], Return=OK, 1000\n"
            "[READ], Return=SERVICE_UNAVAILABLE, 1\n"
            "[READ], Return=NOT_FOUND, 2\n"
            "[READ-FAILED], Operations, 3\n"
            "[READ-FAILED], AverageLatency(us), 5.00\n"
            "[READ-FAILED], MinLatency(us), 5\n"
            "[READ-FAILED], MaxLatency(us), 5\n"
            "[READ-FAILED], 50thPercentileLatency(us), 5\n"
            "[READ-FAILED], 95thPercentileLatency(us), 5\n"
            "[READ-FAILED], 99thPercentileLatency(us), 5\n");
}

TEST(YcsbTextTest, HasAnIntendedBlockInAnOpenLoop) {
  const std::string text = YcsbText(Config{}, ThousandReads(true));
  EXPECT_THAT(text, HasSubstr("[Intended-READ], Operations, 1000\n"));
  EXPECT_THAT(text, HasSubstr("[READ], 99thPercentileLatency(us), 990\n"));
  EXPECT_THAT(text, HasSubstr("[Intended-READ], MaxLatency(us), 10000\n"));
}

Config WithForm(const YcsbForm& form) {
  Config config;
  config.load.ycsb = form;
  return config;
}

TEST(YcsbTextTest, HasTheTimesThatMeasurementIntervalSays) {
  const auto text = [](YcsbForm::Times times, bool open) {
    return YcsbText(WithForm({.times = times}), ThousandReads(open));
  };
  EXPECT_THAT(text(YcsbForm::Times::kService, true), Not(HasSubstr("Intended")));
  EXPECT_THAT(text(YcsbForm::Times::kService, true), HasSubstr("[READ], MaxLatency(us), 1000\n"));
  EXPECT_THAT(text(YcsbForm::Times::kResponse, true), Not(HasSubstr("Intended")));
  EXPECT_THAT(text(YcsbForm::Times::kResponse, true), HasSubstr("[READ], MaxLatency(us), 10000\n"));
  EXPECT_THAT(text(YcsbForm::Times::kBoth, true),
              HasSubstr("[Intended-READ], MaxLatency(us), 10000"));
  // In a closed loop an operation is due when it is submitted.
  EXPECT_THAT(text(YcsbForm::Times::kBoth, false),
              HasSubstr("[Intended-READ], MaxLatency(us), 1000\n"));
  EXPECT_THAT(text(YcsbForm::Times::kResponse, false), HasSubstr("[READ], MaxLatency(us), 1000\n"));
}

TEST(YcsbTextTest, HasHistogramsInMilliseconds) {
  RunResult result = ThousandReads(false);
  for (int i = 0; i < 4; ++i) result.ops[Index(OpKind::kRead)].latency.Record(2'500'000);
  result.ops[Index(OpKind::kRead)].latency.Record(7'000'000'000);
  const std::string text =
      YcsbText(WithForm({.percentiles = false, .histogram = true, .buckets = 3}), result);
  // 1,000 us is the first of the second one.
  EXPECT_THAT(text, HasSubstr("[READ], Return=NOT_FOUND, 2\n[READ], 0, 999\n[READ], 1, 1\n"
                              "[READ], 2, 4\n[READ], >3, 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("PercentileLatency")));
}

TEST(YcsbTextTest, HasTheMeanOfEachSecond) {
  RunResult result = ThousandReads(false);
  result.series.resize(3);
  result.series[0].kinds[Index(OpKind::kRead)] = {100, 1, 2500, 1500, 9000, 9500, 9900};
  result.series[2].kinds[Index(OpKind::kRead)] = {100, 1, 3500, 1500, 9000, 9500, 9900};
  const std::string text = YcsbText(WithForm({.time_series = true}), result);
  EXPECT_THAT(text, HasSubstr("[READ], 0, 2.50\n[READ], 2000, 3.50\n"));
  EXPECT_THAT(text, HasSubstr("[READ], 99thPercentileLatency(us), 990\n"));
}

TEST(YcsbTextTest, NamesPercentilesAsYcsbDoes) {
  EXPECT_EQ(YcsbOrdinal(50), "50th");
  EXPECT_EQ(YcsbOrdinal(1), "1st");
  EXPECT_EQ(YcsbOrdinal(92), "92nd");
  EXPECT_EQ(YcsbOrdinal(93), "93rd");
  EXPECT_EQ(YcsbOrdinal(11), "11th");
  EXPECT_EQ(YcsbOrdinal(99.9), "99.9");
}

TEST(Hgrm, HasHdrHistogramsForm) {
  Histogram histogram;
  for (uint64_t i = 1; i <= 1000; ++i) histogram.Record(i * 1000);
  const std::string text = HgrmText(histogram);
  EXPECT_THAT(text,
              ::testing::StartsWith("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"
                                    "       1.000 0.000000000000          1           1.00\n"));
  // Steps of a fifth of the half that is left: 10 %, ..., 50 %, 55 %.
  EXPECT_THAT(text, HasSubstr(" 0.100000000000        100           1.11\n"));
  EXPECT_THAT(text, HasSubstr(" 0.500000000000        500           2.00\n"));
  EXPECT_THAT(text, HasSubstr(" 0.550000000000        550           2.22\n"));
  EXPECT_THAT(text, HasSubstr("    1000.000 1.000000000000       1000\n#[Mean"));
  EXPECT_THAT(text, HasSubstr("#[Mean    =      500.500, StdDeviation   =      288."));
  EXPECT_THAT(text, HasSubstr("#[Max     =     1000.000, Total count    =         1000]\n"));
}

TEST(Hgrm, OfNothingAndOfOne) {
  Histogram histogram;
  EXPECT_THAT(HgrmText(histogram), HasSubstr("Total count    =            0"));
  histogram.Record(7000);
  EXPECT_THAT(HgrmText(histogram), HasSubstr("       7.000 1.000000000000          1\n#[Mean"));
}

TEST(Csv, HasALineForEachSecondAndKind) {
  std::vector<SeriesRow> rows(2);
  rows[0].end = rows[0].seconds = 1;
  rows[0].kinds[Index(OpKind::kRead)] = {100, 1, 2000, 1500, 9000, 9500, 9900};
  rows[0].kinds[Index(OpKind::kUpdate)] = {5, 0, 3000, 3000, 3000, 3000, 3000};
  rows[1].end = 1.5;
  rows[1].seconds = 0.5;
  rows[1].kinds[Index(OpKind::kRead)] = {50, 0, 2000, 1000, 2000, 2000, 2000};
  EXPECT_EQ(CsvHeader() + CsvLines(rows),
            "second,seconds,kind,count,errors,ops_s,mean_us,p50_us,p99_us,p99.9_us,max_us\n"
            "1.000,1.000,read,100,1,100.0,2.000,1.500,9.000,9.500,9.900\n"
            "1.000,1.000,update,5,0,5.0,3.000,3.000,3.000,3.000,3.000\n"
            "1.500,0.500,read,50,0,100.0,2.000,1.000,2.000,2.000,2.000\n");
}

TEST(RunTableTest, SaysWhichTimesTheseAre) {
  const std::string closed = RunTable(Config{}, {}, ThousandReads(false), nullptr);
  EXPECT_THAT(closed, HasSubstr("service times, from submission to callback. A closed loop"));
  EXPECT_THAT(closed, Not(HasSubstr("response")));
  const std::string open = RunTable(Config{}, {}, ThousandReads(true), nullptr);
  EXPECT_THAT(open, HasSubstr("latencies are response times"));
  EXPECT_THAT(open, HasSubstr("  service"));
  EXPECT_THAT(open, HasSubstr("backlog at most 990, at the end 990"));
  EXPECT_THAT(open,
              HasSubstr("SCHEDULE NOT KEPT      500 of 1.0 k ops/s were done, 49.5 % missed"));
}

TEST(RunJsonTest, HasBothTimes) {
  RunResult result = ThousandReads(true);
  result.server_verbs = {1003, 0, 1003, 500, 2006, 100'300};
  result.counters.reads = 1003;
  result.counters.sends = 2006;
  result.counters.completions = 4012;
  const auto json = RunJson(Config{}, {}, result, nullptr);
  const auto& read = json["ops"]["read"];
  EXPECT_EQ(read["latency_is"], "response time");
  EXPECT_EQ(read["latency_us"], read["response_us"]);
  EXPECT_EQ(read["service_us"]["max"], 1000);
  EXPECT_EQ(read["response_us"]["max"], 10'000);
  for (const char* figure : {"p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"}) {
    EXPECT_TRUE(read["response_us"].contains(figure)) << figure;
    EXPECT_TRUE(read["service_us"].contains(figure)) << figure;
  }
  EXPECT_EQ(read["statuses"]["NOT_FOUND"], 2);
  EXPECT_EQ(json["open_loop"]["schedule_kept"], false);
  EXPECT_EQ(json["open_loop"]["backlog_end"], 990);
  EXPECT_NEAR(json["open_loop"]["missed_share"], 0.495, 1e-9);
  EXPECT_DOUBLE_EQ(json["verbs_per_op"]["client"]["READs"], 1);
  EXPECT_DOUBLE_EQ(json["verbs_per_op"]["client"]["WQEs"], 3);
  EXPECT_DOUBLE_EQ(json["verbs_per_op"]["client"]["CQEs"], 4);
  EXPECT_DOUBLE_EQ(json["verbs_per_op"]["server"]["CQEs"], 2);
  const auto closed = RunJson(Config{}, {}, ThousandReads(false), nullptr);
  EXPECT_EQ(closed["ops"]["read"]["latency_is"], "service time");
  EXPECT_FALSE(closed["ops"]["read"].contains("response_us"));
  EXPECT_FALSE(closed.contains("open_loop"));
}

}  // namespace
}  // namespace verbena::bench
