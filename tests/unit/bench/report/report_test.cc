#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult SomeResult() {
  RunResult result;
  result.seconds = 2;
  OpResult& reads = result.ops[Index(OpKind::kRead)];
  for (uint64_t i = 1; i <= 1000; ++i) reads.latency.Record(i * 1000);
  reads.count = 1003;
  reads.errors = 3;
  OpResult& updates = result.ops[Index(OpKind::kUpdate)];
  updates.latency.Record(7500);
  updates.count = 1;
  result.verify = {1000, 0};
  result.counters = {1000, 1015, 4, 2, 502};
  result.server_cpu_seconds = 0.001004;
  return result;
}

RunContext SomeContext() {
  RunContext context;
  context.fabric = "soft";
  context.device = "soft0";
  context.server.items = 1000;
  context.server.used_bytes = 150'000;
  context.server.version = "1.2.3";
  return context;
}

BaselineResult SomeBaseline() {
  BaselineResult baseline;
  baseline.rounds = 9;
  baseline.raw_read_ns = {250, 200, 300};
  baseline.raw_read_rate = {5e6, 4e6, 6e6};
  baseline.pingpong_ns = {1500, 1400, 1600};
  baseline.storage_put_ns = {180, 170, 190};
  baseline.get_over_raw_read = {2.5, 2, 3};
  return baseline;
}

TEST(RunJson, HasTheDocumentedShape) {
  const BaselineResult baseline = SomeBaseline();
  const nlohmann::json json = RunJson(Config{}, SomeContext(), SomeResult(), &baseline);
  EXPECT_DOUBLE_EQ(json["throughput_ops_s"], 1001 / 2.0);
  const auto& read = json["ops"]["read"];
  EXPECT_EQ(read["count"], 1003);
  EXPECT_EQ(read["errors"], 3);
  EXPECT_NEAR(read["latency_us"]["mean"], 500.5, 1e-9);
  EXPECT_NEAR(read["latency_us"]["p50"], 500, 0.5);
  EXPECT_NEAR(read["latency_us"]["p99"], 990, 1);
  EXPECT_NEAR(read["latency_us"]["p99.9"], 999, 1);
  EXPECT_EQ(read["latency_us"]["max"], 1000.0);
  EXPECT_EQ(json["ops"]["update"]["latency_us"]["max"], 7.5);
  EXPECT_FALSE(json["ops"].contains("insert"));
  EXPECT_DOUBLE_EQ(json["rdma"]["reads_per_get"], 1.015);
  EXPECT_EQ(json["rdma"]["read_retries"], 4);
  EXPECT_EQ(json["rdma"]["rpc_gets"], 2);
  EXPECT_DOUBLE_EQ(json["rdma"]["doorbells_per_op"], 0.5);
  EXPECT_FALSE(json.contains("scans"));
  EXPECT_NEAR(json["server"]["cpu_us_per_op"], 1, 1e-9);
  EXPECT_EQ(json["baseline"]["raw_read"]["p50_us"], 0.25);
  EXPECT_EQ(json["baseline"]["raw_read"]["ops_s"], 5e6);
  EXPECT_EQ(json["baseline"]["send_pingpong"]["p50_us"], 1.5);
  EXPECT_EQ(json["baseline"]["storage_put"]["p50_us"], 0.18);
  EXPECT_EQ(json["baseline"]["ratios"]["get_p50_over_raw_read"], 2.5);
  EXPECT_EQ(json["verify"]["checked"], 1000);
  EXPECT_EQ(json["verify"]["wrong"], 0);
  EXPECT_EQ(json["memory"]["bytes_per_item"], 150.0);
  EXPECT_EQ(json["environment"]["fabric"], "soft");
  EXPECT_EQ(json["environment"]["verbena-server"], "1.2.3");
}

// A run can be repeated from it.
TEST(ConfigJsonTest, HasAllThatWasAskedFor) {
  Config config;
  config.workload = *FindWorkload("e");
  config.workload.fields.count = 3;
  config.distribution.kind = Distribution::kHotspot;
  config.records = 100;
  config.insert_start = 10;
  config.insert_count = 50;
  config.sizes = *Sizes::Parse("uniform:10-20");
  config.key_sizes = SizeModel::kEtc;
  config.connect.tos = 96;
  config.load.ramp = *ParseRamp("1000:3000:1000@0.5");
  config.load.search = *ParseSearch("p99:50us");
  config.load.sweep = {5, 6};
  config.baseline = true;
  config.rounds = 9;
  ASSERT_TRUE(config.properties.AddAssignment("fieldcount=3").ok());
  const nlohmann::json json = ConfigJson(config);
  EXPECT_EQ(json["proportions"], (nlohmann::json{{"scan", 0.95}, {"insert", 0.05}}));
  EXPECT_EQ(json["scan_lengths"]["max"], 100);
  EXPECT_EQ(json["hotspot_data_fraction"], 0.2);
  EXPECT_EQ(json["fields"]["count"], 3);
  EXPECT_EQ(json["insert_count"], 50);
  EXPECT_EQ(json["value_sizes"], "uniform:10B-20B");
  EXPECT_EQ(json["key_sizes"], "etc");
  EXPECT_EQ(json["tos"], 96);
  EXPECT_EQ(json["ramp"]["step"], 1000);
  EXPECT_EQ(json["search"]["limit_us"], 50);
  EXPECT_EQ(json["sweep"].size(), 2u);
  EXPECT_EQ(json["baseline_rounds"], 9);
  EXPECT_EQ(json["properties"]["fieldcount"], "3");
}

TEST(RunJson, LeavesOutWhatIsNotKnown) {
  RunResult result = SomeResult();
  result.server_cpu_seconds.reset();
  result.counters = {};
  const nlohmann::json json = RunJson(Config{}, RunContext{}, result, nullptr);
  EXPECT_FALSE(json.contains("baseline"));
  EXPECT_FALSE(json["server"].contains("cpu_us_per_op"));
  EXPECT_FALSE(json["rdma"].contains("reads_per_get"));
  EXPECT_FALSE(json["rdma"].contains("doorbells_per_op"));
  EXPECT_FALSE(json.contains("memory"));
  EXPECT_FALSE(json.contains("connection_lost"));
}

TEST(RunJson, CarriesTextsThatAreNoUtf8) {
  RunResult result = SomeResult();
  result.first_error = "bad \xff byte";
  const std::string path = absl::StrCat(::testing::TempDir(), "/bench_json_", getpid());
  ASSERT_TRUE(WriteJson(path, RunJson(Config{}, RunContext{}, result, nullptr)).ok());
  std::ifstream file(path);
  EXPECT_THAT(nlohmann::json::parse(file)["first_error"].get<std::string>(), HasSubstr("bad"));
  std::remove(path.c_str());
}

TEST(WriteJson, SaysWhyItCannot) {
  const absl::Status status = WriteJson("/nonexistent/folder/x.json", nlohmann::json::object());
  EXPECT_THAT(status.ToString(), HasSubstr("/nonexistent/folder/x.json"));
  EXPECT_THAT(status.ToString(), HasSubstr("No such file"));
  EXPECT_FALSE(WriteJson("/dev/full/x", nlohmann::json::object()).ok());
}

TEST(Reports, TellOfScans) {
  Config config;
  config.workload = *FindWorkload("e");
  config.depth = 16;
  RunResult result = SomeResult();
  OpResult& scans = result.ops[Index(OpKind::kScan)];
  for (int i = 0; i < 10; ++i) scans.latency.Record(2000);
  scans.count = 10;
  result.scanned = 505;
  const nlohmann::json json = RunJson(config, SomeContext(), result, nullptr);
  EXPECT_EQ(json["scans"]["items"], 505);
  EXPECT_DOUBLE_EQ(json["scans"]["items_s"], 252.5);
  EXPECT_DOUBLE_EQ(json["scans"]["items_per_scan"], 50.5);
  EXPECT_EQ(json["ops"]["scan"]["count"], 10);
  const std::string table = RunTable(config, SomeContext(), result, nullptr);
  for (const char* part : {"YCSB-E", "\nscan ", "50.5 a scan", "one operation at a time"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
}

TEST(RunTable, ShowsWhatMatters) {
  Config config;
  config.workload = *FindWorkload("b");
  RunResult result = SomeResult();
  const BaselineResult baseline = SomeBaseline();
  std::string table = RunTable(config, SomeContext(), result, &baseline);
  for (const char* part :
       {"YCSB-B", "read", "update", "p99.9", "READs per GET          1.015",
        "1.000 us per operation", "wrong 0", "150.0 bytes each", "raw READ", "ping-pong"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_THAT(table, Not(HasSubstr("INTERRUPTED")));
  for (OpResult& op : result.ops) op.errors = 0;
  EXPECT_THAT(RunTable(config, SomeContext(), result, nullptr),
              Not(HasSubstr("operations failed")));
  result.ops[Index(OpKind::kUpdate)].errors = 7;
  EXPECT_THAT(RunTable(config, SomeContext(), result, nullptr),
              HasSubstr("errors                 7 of "));
  result.interrupted = true;
  result.lost = "UNAVAILABLE: server gone";
  table = RunTable(config, SomeContext(), result, nullptr);
  EXPECT_THAT(table, HasSubstr("INTERRUPTED"));
  EXPECT_THAT(table, HasSubstr("server gone"));
}

TEST(ExitStatus, TellsHowItWent) {
  Config config;
  RunResult result;
  EXPECT_EQ(ExitStatusOf(config, result), 0);
  result.interrupted = true;
  EXPECT_EQ(ExitStatusOf(config, result), 130);
  result.ops[0].errors = 2;
  EXPECT_EQ(ExitStatusOf(config, result), 1);
  config.max_errors = 2;
  EXPECT_EQ(ExitStatusOf(config, result), 130);
  result.verify.wrong = 1;
  EXPECT_EQ(ExitStatusOf(config, result), 1);
  result.lost = "gone";
  EXPECT_EQ(ExitStatusOf(config, result), 1);
  result.interrupted = false;
  EXPECT_EQ(ExitStatusOf(config, result), 3);
  // A terminal's Ctrl-C ends a script's server as well.
  result.verify.wrong = 0;
  result.ops[0].errors = 5;
  result.interrupted = true;
  EXPECT_EQ(ExitStatusOf(config, result), 130);
}

TEST(FormatNanos, ChoosesTheUnit) {
  EXPECT_EQ(FormatNanos(120), "120 ns");
  EXPECT_EQ(FormatNanos(12'340), "12.34 us");
  EXPECT_EQ(FormatNanos(1'200'000), "1.20 ms");
  EXPECT_EQ(FormatNanos(3.4e9), "3.40 s");
}

}  // namespace
}  // namespace verbena::bench
