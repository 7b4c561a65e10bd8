#include "bench/load/load_options.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace verbena::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Flags = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<LoadOptions> Options(const Flags& flags) {
  gflags::FlagSaver saver;
  for (const auto& [name, value] : flags) {
    EXPECT_FALSE(gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) << name;
  }
  return LoadOptionsFromFlags();
}

TEST(LoadOptions, HaveDefaults) {
  const auto options = Options({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->rate, 0);
  EXPECT_FALSE(options->several_rates());
  EXPECT_EQ(options->format, OutputFormat::kTable);
  EXPECT_EQ(options->status_interval, std::chrono::seconds(10));
  EXPECT_TRUE(options->agents.empty());
}

TEST(LoadOptions, AreRead) {
  const auto options = Options({{"rate", "2.5k"},
                                {"arrival", "poisson"},
                                {"warmup_operations", "500"},
                                {"format", "ycsb"},
                                {"csv", "a.csv"},
                                {"hgrm", "b"},
                                {"status_interval", "0.5"},
                                {"agents", "127.0.0.1:1,host:65535"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->rate, 2500);
  EXPECT_EQ(options->arrival, Arrival::kPoisson);
  EXPECT_EQ(options->warmup_operations, 500u);
  EXPECT_EQ(options->format, OutputFormat::kYcsb);
  EXPECT_EQ(options->csv_file, "a.csv");
  EXPECT_EQ(options->hgrm_prefix, "b");
  EXPECT_EQ(options->status_interval, std::chrono::milliseconds(500));
  EXPECT_THAT(options->agents, ElementsAre("127.0.0.1:1", "host:65535"));
}

TEST(LoadOptions, RampsSweepsAndSearches) {
  EXPECT_THAT(ParseRamp("1k:3k:1k@2")->Rates(), ElementsAre(1000, 2000, 3000));
  EXPECT_THAT(ParseRamp("3k:1500:1k@2")->Rates(), ElementsAre(3000, 2000));
  EXPECT_EQ(ParseRamp("0.1:1:0.1@0.5")->Rates().size(), 10u);
  EXPECT_EQ(ParseRamp("1:2:1@0.5")->hold, std::chrono::milliseconds(500));
  EXPECT_THAT(*ParseSweep("10,1k,2M"), ElementsAre(10, 1000, 2e6));
  const auto search = ParseSearch("p99.9:1.5ms");
  ASSERT_TRUE(search.ok()) << search.status();
  EXPECT_EQ(search->percent, 99.9);
  EXPECT_EQ(search->limit, std::chrono::microseconds(1500));
  EXPECT_EQ(*ParseDuration("800ns"), std::chrono::nanoseconds(800));
  EXPECT_EQ(*ParseDuration("2s"), std::chrono::seconds(2));
}

struct BadLoadCase {
  const char* flag;
  const char* value;
  const char* allowed;
};
class LoadOptionsRefuse : public ::testing::TestWithParam<BadLoadCase> {};

TEST_P(LoadOptionsRefuse, WithFlagValueAndRange) {
  const BadLoadCase& bad = GetParam();
  const auto options = Options({{bad.flag, bad.value}});
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(options.status().message());
  EXPECT_THAT(message, HasSubstr(std::string("--") + bad.flag));
  EXPECT_THAT(message, HasSubstr(bad.value));
  EXPECT_THAT(message, HasSubstr(bad.allowed));
}

INSTANTIATE_TEST_SUITE_P(
    Flags, LoadOptionsRefuse,
    ::testing::Values(
        BadLoadCase{"rate", "-1", "0.001 to 100M"}, BadLoadCase{"rate", "many", "0.001 to 100M"},
        BadLoadCase{"rate", "101M", "0.001 to 100M"}, BadLoadCase{"rate", "nan", "0.001 to 100M"},
        BadLoadCase{"arrival", "uniform", "fixed or poisson"},
        BadLoadCase{"ramp", "1:2:3", "FROM:TO:STEP@SECONDS"},
        BadLoadCase{"ramp", "1:2:0@1", "0.001 to 100M"},
        BadLoadCase{"ramp", "1:2@1", "FROM:TO:STEP@SECONDS"},
        BadLoadCase{"ramp", "1:1M:1@1", "at most 1000"},
        BadLoadCase{"ramp", "1:2:1@0", "0.1 to 1000000"},
        BadLoadCase{"sweep", "1,,2", "commas between"}, BadLoadCase{"sweep", "0", "0.001 to 100M"},
        BadLoadCase{"search", "99:50us", "p99:50us"}, BadLoadCase{"search", "p99", "p99:50us"},
        BadLoadCase{"search", "p100:50us", "below 100"},
        BadLoadCase{"search", "p99:50", "p99:50us"}, BadLoadCase{"search", "p99:0us", "p99:50us"},
        BadLoadCase{"warmup_operations", "x", "0 to 1000000000000"},
        BadLoadCase{"format", "xml", "table, ycsb, json or none"},
        BadLoadCase{"status_interval", "-1", "0 to 100000"},
        BadLoadCase{"agents", "host", "HOST:PORT"}, BadLoadCase{"agents", "host:0", "HOST:PORT"},
        BadLoadCase{"agents", "a:1,:2", "HOST:PORT"}));

TEST(LoadOptions, OnlyOneKindOfRate) {
  const auto options = Options({{"rate", "10"}, {"sweep", "1,2"}});
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(std::string(options.status().message()), HasSubstr("only one of --rate, --ramp"));
}

TEST(LoadOptions, HelpNamesEveryFlag) {
  for (const char* flag : {"rate", "arrival", "ramp", "sweep", "search", "warmup_operations",
                           "format", "csv", "hgrm", "status_interval", "agents", "listen"}) {
    EXPECT_THAT(std::string(LoadOptionsHelp()), HasSubstr(std::string("--") + flag));
  }
}

}  // namespace
}  // namespace verbena::bench
