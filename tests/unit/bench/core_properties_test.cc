#include "bench/core_properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace verbena::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct CoreCase {
  std::vector<std::string> assignments;
  std::set<std::string> flags = {};  // that the user gave
  bool named = false;                // --workload=b too
  Command command = Command::kRun;
};

// What the flags alone have made of the configuration.
Config BaseConfig(const CoreCase& core) {
  Config config;
  config.command = core.command;
  config.workload = *FindWorkload("b");
  config.records = 100'000;
  config.duration = std::chrono::seconds(10);
  config.value_size = 100;
  return config;
}

absl::StatusOr<Config> Applied(const CoreCase& core) {
  Properties properties;
  for (const std::string& assignment : core.assignments) {
    const absl::Status status = properties.AddAssignment(assignment);
    if (!status.ok()) return status;
  }
  Config config = BaseConfig(core);
  const absl::Status status = ApplyProperties(
      properties, [&core](const char* flag) { return core.flags.count(flag) != 0; }, core.named,
      &config);
  if (!status.ok()) return status;
  return config;
}

std::string ErrorOf(const CoreCase& core) {
  const auto config = Applied(core);
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return config.status().ToString();
}

double PartIn(const Config& config, OpKind kind) { return config.workload.proportion[Index(kind)]; }

TEST(CoreProperties, NoneChangeNothing) {
  const auto config = Applied({});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->workload.name, "b");
  EXPECT_EQ(config->value_size, 100u);
  EXPECT_EQ(config->workload.fields.count, 1u);
  EXPECT_EQ(config->distribution, Distribution::kZipfian);
}

TEST(CoreProperties, HaveYcsbsDefaults) {
  const auto config = Applied({.assignments = {"recordcount=1000"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->workload.name, "core");
  EXPECT_EQ(config->records, 1000u);
  EXPECT_EQ(config->operations, 0u);
  EXPECT_EQ(config->duration, std::chrono::seconds(10));  // neither operationcount nor a time
  EXPECT_EQ(PartIn(*config, OpKind::kRead), 0.95);
  EXPECT_EQ(PartIn(*config, OpKind::kUpdate), 0.05);
  EXPECT_EQ(config->distribution, Distribution::kUniform);
  EXPECT_EQ(config->workload.min_scan_length, 1u);
  EXPECT_EQ(config->workload.max_scan_length, 1000u);
  EXPECT_FALSE(config->workload.short_scans);
  const RecordFields& fields = config->workload.fields;
  EXPECT_EQ(fields.count, 10u);
  EXPECT_EQ(fields.name_prefix, "field");
  EXPECT_TRUE(fields.read_all);
  EXPECT_FALSE(fields.write_all);
  EXPECT_FALSE(fields.integrity);
  EXPECT_EQ(config->sizes->Mean(), 100u);
  EXPECT_FALSE(config->ordered_keys);
  EXPECT_EQ(config->zero_padding, 1u);
  EXPECT_EQ(config->insert_start, 0u);
  EXPECT_EQ(config->insert_count, 1000u);
  EXPECT_EQ(config->insert_retries, 0u);
  EXPECT_EQ(config->insert_retry_interval, std::chrono::seconds(3));
  EXPECT_EQ(config->threads, 1u);
  EXPECT_EQ(config->load.rate, 0);
  EXPECT_EQ(config->load.ycsb.times, YcsbForm::Times::kAll);
  EXPECT_THAT(config->load.ycsb.percents, ElementsAre(50, 95, 99));
}

TEST(CoreProperties, EveryOneIsTaken) {
  const auto config = Applied({.assignments = {"workload=site.ycsb.workloads.CoreWorkload",
                                               "table=usertable",
                                               "recordcount=5000",
                                               "operationcount=77",
                                               "insertstart=1000",
                                               "insertcount=3000",
                                               "readproportion=0.1",
                                               "updateproportion=0.2",
                                               "insertproportion=0.3",
                                               "scanproportion=0.15",
                                               "readmodifywriteproportion=0.25",
                                               "requestdistribution=hotspot",
                                               "hotspotdatafraction=0.3",
                                               "hotspotopnfraction=0.6",
                                               "exponential.percentile=90",
                                               "exponential.frac=0.5",
                                               "fieldcount=4",
                                               "fieldlength=50",
                                               "minfieldlength=10",
                                               "fieldlengthdistribution=uniform",
                                               "fieldnameprefix=f",
                                               "readallfields=false",
                                               "writeallfields=true",
                                               "insertorder=ordered",
                                               "zeropadding=12",
                                               "minscanlength=3",
                                               "maxscanlength=9",
                                               "scanlengthdistribution=zipfian",
                                               "threadcount=4",
                                               "target=500",
                                               "maxexecutiontime=20",
                                               "status.interval=5",
                                               "measurementtype=hdrhistogram+histogram",
                                               "histogram.buckets=20",
                                               "timeseries.granularity=1000",
                                               "hdrhistogram.fileoutput=false",
                                               "measurement.interval=both",
                                               "hdrhistogram.percentiles=50,99.9",
                                               "core_workload_insertion_retry_limit=2",
                                               "core_workload_insertion_retry_interval=0.5"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->records, 5000u);
  EXPECT_EQ(config->operations, 77u);
  EXPECT_EQ(config->record_range().first, 1000u);
  EXPECT_EQ(config->record_range().count, 3000u);
  EXPECT_EQ(config->record_range().expected_inserts, 23u);
  EXPECT_EQ(PartIn(*config, OpKind::kRead), 0.1);
  EXPECT_EQ(PartIn(*config, OpKind::kUpdate), 0.2);
  EXPECT_EQ(PartIn(*config, OpKind::kInsert), 0.3);
  EXPECT_EQ(PartIn(*config, OpKind::kScan), 0.15);
  EXPECT_EQ(PartIn(*config, OpKind::kReadModifyWrite), 0.25);
  EXPECT_EQ(config->distribution.kind, Distribution::kHotspot);
  EXPECT_EQ(config->distribution.hotspot_data, 0.3);
  EXPECT_EQ(config->distribution.hotspot_operations, 0.6);
  EXPECT_EQ(config->distribution.exponential_percentile, 90);
  EXPECT_EQ(config->distribution.exponential_part, 0.5);
  EXPECT_EQ(config->workload.fields.count, 4u);
  EXPECT_EQ(config->workload.fields.name_prefix, "f");
  EXPECT_FALSE(config->workload.fields.read_all);
  EXPECT_TRUE(config->workload.fields.write_all);
  EXPECT_EQ(config->sizes->name(), "uniform:10B-50B");
  EXPECT_EQ(config->key_names().Name(17), "user000000000017");
  EXPECT_EQ(config->workload.min_scan_length, 3u);
  EXPECT_EQ(config->workload.max_scan_length, 9u);
  EXPECT_TRUE(config->workload.short_scans);
  EXPECT_EQ(config->threads, 4u);
  EXPECT_EQ(config->connections, 4u);
  EXPECT_EQ(config->load.rate, 500);
  EXPECT_EQ(config->duration, std::chrono::seconds(20));
  EXPECT_EQ(config->load.status_interval, std::chrono::seconds(5));
  const YcsbForm& form = config->load.ycsb;
  EXPECT_EQ(form.times, YcsbForm::Times::kBoth);
  EXPECT_TRUE(form.percentiles && form.histogram);
  EXPECT_FALSE(form.time_series);
  EXPECT_EQ(form.buckets, 20u);
  EXPECT_THAT(form.percents, ElementsAre(50, 99.9));
  EXPECT_EQ(config->insert_retries, 2u);
  EXPECT_EQ(config->insert_retry_interval, std::chrono::milliseconds(500));
}

TEST(CoreProperties, FlagsOfTheSameMeaningWin) {
  const auto config =
      Applied({.assignments = {"recordcount=5", "operationcount=6", "threadcount=7", "target=8",
                               "maxexecutiontime=9", "requestdistribution=latest"},
               .flags = {"records", "operations", "threads", "connections", "rate", "seconds",
                         "distribution", "value_size"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->records, 100'000u);
  EXPECT_EQ(config->operations, 0u);
  EXPECT_EQ(config->threads, 1u);
  EXPECT_EQ(config->load.rate, 0);
  EXPECT_EQ(config->duration, std::chrono::seconds(10));
  EXPECT_EQ(config->distribution, Distribution::kZipfian);
  EXPECT_EQ(config->workload.fields.count, 1u);
  EXPECT_EQ(config->value_size, 100u);
}

TEST(CoreProperties, HistogramsMayBeGivenAsLists) {
  const auto config = Applied({.assignments = {"fieldcount=2", "fieldlengthdistribution=histogram",
                                               "fieldlengthhistogram=list:10:1,30:1"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->sizes->Mean(), 20u);
}

TEST(CoreProperties, AFlagSaysHowOftenProgressIsShown) {
  const auto config = Applied({.assignments = {"status.interval=5"}, .flags = {"status_interval"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_NE(config->load.status_interval, std::chrono::seconds(5));
  for (const auto& [value, times] : {std::pair{"op", YcsbForm::Times::kService},
                                     std::pair{"intended", YcsbForm::Times::kResponse}}) {
    EXPECT_EQ(
        Applied({.assignments = {std::string("measurement.interval=") + value}})->load.ycsb.times,
        times);
  }
}

TEST(CoreProperties, AmongThemOnlyOperationsMeansNoTimeLimit) {
  EXPECT_EQ(Applied({.assignments = {"operationcount=6"}})->duration.count(), 0);
  EXPECT_EQ(Applied({.assignments = {"maxexecutiontime=6"}})->duration, std::chrono::seconds(6));
}

TEST(CoreProperties, ANamedWorkloadIsWhatTheyChange) {
  const auto config =
      Applied({.assignments = {"readproportion=0.9", "updateproportion=0.1"}, .named = true});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->workload.name, "b");
  EXPECT_EQ(PartIn(*config, OpKind::kRead), 0.9);
  EXPECT_EQ(config->distribution, Distribution::kZipfian);
  EXPECT_EQ(config->workload.max_scan_length, kMaxScanLength);
}

TEST(CoreProperties, UnknownOnesAreNamedWithTheNearest) {
  EXPECT_THAT(ErrorOf({.assignments = {"recordcuont=5"}}),
              AllOf(HasSubstr("'recordcuont'"), HasSubstr("-p recordcuont=5"),
                    HasSubstr("nearest is 'recordcount'")));
  EXPECT_THAT(ErrorOf({.assignments = {"readPropotion=1"}}), HasSubstr("'readproportion'"));
}

TEST(CoreProperties, ProportionsMustAddUpToOne) {
  EXPECT_THAT(ErrorOf({.assignments = {"readproportion=0.5", "updateproportion=0.3"}}),
              AllOf(HasSubstr("add up to 0.8, not to 1"), HasSubstr("readproportion=0.5"),
                    HasSubstr("insertproportion=0 (by default)")));
  EXPECT_THAT(ErrorOf({.assignments = {"scanproportion=1"}}), HasSubstr("add up to 2"));
  EXPECT_TRUE(
      Applied({.assignments = {"readproportion=0.3333333", "updateproportion=0.6666667"}}).ok());
}

struct BadProperty {
  std::vector<std::string> assignments;
  const char* message;
};

TEST(CoreProperties, ValuesOutOfRangeAreNamedWithTheRange) {
  for (const BadProperty& bad : std::vector<BadProperty>{
           {{"recordcount=0"}, "1 to 10000000000"},
           {{"recordcount=many"}, "recordcount=many (-p recordcount=many)"},
           {{"operationcount=-1"}, "0 to 1000000000000"},
           {{"recordcount=10", "insertstart=10"}, "0 to 9"},
           {{"recordcount=10", "insertstart=5", "insertcount=6"}, "1 to 5"},
           {{"readproportion=1.5"}, "a number from 0 to 1"},
           {{"readproportion=nan"}, "a number from 0 to 1"},
           {{"requestdistribution=zipf:0"}, "zipf:THETA"},
           {{"hotspotdatafraction=2"}, "0 to 1"},
           {{"hotspotopnfraction=-1"}, "0 to 1"},
           {{"exponential.percentile=100"}, "0.001 to 99.999"},
           {{"exponential.frac=0"}, "to 1000"},
           {{"fieldcount=0"}, "1 to 65536"},
           {{"fieldlength=0"}, "1 to 1073741824"},
           {{"minfieldlength=x"}, "1 to 1073741824"},
           {{"fieldlengthdistribution=normal"}, "constant or uniform or zipfian or histogram"},
           {{"fieldlengthdistribution=uniform", "minfieldlength=101"}, "is not above fieldlength"},
           {{"fieldlengthdistribution=histogram", "fieldlengthhistogram=/no/where"}, "/no/where"},
           {{"fieldcount=65536", "fieldlength=1048576"}, "none above 1GiB"},
           {{"readallfields=yes"}, "true or false"},
           {{"writeallfields=1"}, "true or false"},
           {{"dataintegrity=maybe"}, "true or false"},
           {{"dataintegrity=true", "fieldlengthdistribution=uniform"}, "of several sizes"},
           {{"insertorder=random"}, "hashed or ordered"},
           {{"zeropadding=1001"}, "0 to 1000"},
           {{"minscanlength=0"}, "1 to 1000000"},
           {{"maxscanlength=0"}, "1 to 1000000"},
           {{"minscanlength=9", "maxscanlength=3"}, "is not above maxscanlength=3"},
           {{"scanlengthdistribution=constant"}, "uniform or zipfian"},
           {{"threadcount=0"}, "1 to 1024"},
           {{"target=-5"}, "0 to 1e+09"},
           {{"maxexecutiontime=-1"}, "0 to 1e+06"},
           {{"status.interval=0"}, "1 to 86400"},
           {{"measurementtype=raw"}, "--hgrm=PREFIX"},
           {{"measurementtype=none"}, "hdrhistogram, histogram or timeseries"},
           {{"measurementtype=histogram+timeseries"}, "only one of histogram and timeseries"},
           {{"measurementtype=hdrhistogram+"}, "hdrhistogram, histogram or timeseries"},
           {{"histogram.buckets=0"}, "1 to 100000"},
           {{"timeseries.granularity=500"}, "1000"},
           {{"hdrhistogram.fileoutput=true"}, "--hgrm=PREFIX"},
           {{"fieldlengthdistribution=histogram", "fieldlengthhistogram=list:x:1"},
            "'x' is no size"},
           {{"measurement.interval=none"}, "op or intended or both"},
           {{"hdrhistogram.percentiles=50,x"}, "above 0 up to 100"},
           {{"core_workload_insertion_retry_limit=-1"}, "0 to 1000000"},
           {{"core_workload_insertion_retry_interval=x"}, "0 to 3600"},
           {{"workload=site.ycsb.workloads.TimeSeriesWorkload"},
            "site.ycsb.workloads.CoreWorkload"},
       }) {
    const std::string error = ErrorOf({.assignments = bad.assignments});
    EXPECT_THAT(error, HasSubstr(bad.message)) << bad.assignments[0];
    // Where one alone is wrong, it is the one that is told of.
    EXPECT_THAT(error, HasSubstr(bad.assignments.size() == 1 ? bad.assignments[0] : bad.message));
  }
  EXPECT_THAT(ErrorOf({.assignments = {"fieldcount=3"}, .flags = {"value_size"}}),
              HasSubstr("--value_size left out"));
}

}  // namespace
}  // namespace verbena::bench
