#include "bench/config.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;
using Flags = std::vector<std::pair<std::string, std::string>>;

// The configuration for these flags; they are reset afterwards.
absl::StatusOr<Config> Configure(Command command, const Flags& flags) {
  gflags::FlagSaver saver;
  gflags::SetCommandLineOption("server", "127.0.0.1:7400");
  for (const auto& [name, value] : flags) {
    EXPECT_FALSE(gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) << name;
  }
  return ConfigFromFlags(command);
}

TEST(Config, HasDefaults) {
  const auto config = Configure(Command::kRun, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->workload.name, "b");
  EXPECT_EQ(config->records, 100'000u);
  EXPECT_EQ(config->threads, 1u);
  EXPECT_EQ(config->connections, 1u);
  EXPECT_EQ(config->depth, 16u);
  EXPECT_EQ(config->value_size, 100u);
  EXPECT_EQ(config->duration, std::chrono::seconds(10));
  EXPECT_EQ(config->distribution, Distribution::kZipfian);
}

TEST(Config, ReadsEveryFlag) {
  const auto config = Configure(Command::kRun, {{"workload", "A"},
                                                {"records", "2M"},
                                                {"operations", "10k"},
                                                {"seconds", "2.5"},
                                                {"threads", "2"},
                                                {"connections", "6"},
                                                {"depth", "3"},
                                                {"key_size", "16"},
                                                {"value_size", "1KiB"},
                                                {"distribution", "uniform"},
                                                {"seed", "18446744073709551615"},
                                                {"cache_bytes", "1MiB"},
                                                {"preload", "true"},
                                                {"fabric", "soft"},
                                                {"json", "out.json"},
                                                {"baseline", "true"},
                                                {"rounds", "11"},
                                                {"warmup_seconds", "1"},
                                                {"timeout_seconds", "0.5"},
                                                {"max_errors", "5"},
                                                {"server_pid", "42"},
                                                {"tos", "104"},
                                                {"ack_timeout", "16"},
                                                {"retry_count", "3"},
                                                {"rnr_timer", "14"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->workload.name, "a");
  EXPECT_EQ(config->records, 2'000'000u);
  EXPECT_EQ(config->operations, 10'000u);
  EXPECT_EQ(config->duration, std::chrono::milliseconds(2500));
  EXPECT_EQ(config->threads, 2u);
  EXPECT_EQ(config->connections, 6u);
  EXPECT_EQ(config->depth, 3u);
  EXPECT_EQ(config->key_size, 16u);
  EXPECT_EQ(config->value_size, 1024u);
  EXPECT_EQ(config->distribution, Distribution::kUniform);
  EXPECT_EQ(config->seed, UINT64_MAX);
  EXPECT_EQ(config->cache_bytes, uint64_t{1} << 20);
  EXPECT_TRUE(config->preload);
  EXPECT_EQ(config->fabric, "soft");
  EXPECT_EQ(config->json_file, "out.json");
  EXPECT_TRUE(config->baseline);
  EXPECT_EQ(config->rounds, 11u);
  EXPECT_EQ(config->warmup, std::chrono::seconds(1));
  EXPECT_EQ(config->timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(config->max_errors, 5u);
  EXPECT_EQ(config->server_pid, 42);
  EXPECT_EQ(config->connect.tos, 104);
  EXPECT_EQ(config->connect.ack_timeout, 16);
  EXPECT_EQ(config->connect.retry_count, 3);
  EXPECT_EQ(config->connect.min_rnr_timer, 14);
}

TEST(Config, OperationsAloneHaveNoTimeLimit) {
  EXPECT_EQ(Configure(Command::kRun, {{"operations", "5"}})->duration.count(), 0);
  EXPECT_EQ(Configure(Command::kLoad, {{"seconds", "5"}})->duration.count(), 0);
}

TEST(Config, ScansAreOneByOne) {
  const auto run = Configure(Command::kRun, {{"workload", "e"}, {"depth", "8"}});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->workload.scans());
  EXPECT_EQ(run->depth, 8u);
  EXPECT_EQ(run->lane_depth(), 1u);
  EXPECT_EQ(Configure(Command::kLoad, {{"workload", "e"}, {"depth", "8"}})->lane_depth(), 8u);
  EXPECT_EQ(Configure(Command::kRun, {{"workload", "b"}, {"depth", "8"}})->lane_depth(), 8u);
  const auto compare = Configure(Command::kCompare, {{"workload", "e"}});
  EXPECT_EQ(compare.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(compare.status().ToString(), HasSubstr("memcached and Redis cannot scan"));
}

struct BadCase {
  const char* flag;
  const char* value;
  const char* allowed;
};

class ConfigRefuses : public ::testing::TestWithParam<BadCase> {};

TEST_P(ConfigRefuses, WithFlagValueAndRange) {
  const BadCase& bad = GetParam();
  const auto config = Configure(Command::kRun, {{bad.flag, bad.value}});
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(config.status().message().data(), config.status().message().size());
  EXPECT_THAT(message, HasSubstr(std::string("--") + bad.flag));
  EXPECT_THAT(message, HasSubstr(bad.value));
  EXPECT_THAT(message, HasSubstr(bad.allowed));
}

INSTANTIATE_TEST_SUITE_P(
    Flags, ConfigRefuses,
    ::testing::Values(
        BadCase{"workload", "z", "a, b, c, d, e or f"}, BadCase{"records", "0", "1 to 10000000000"},
        BadCase{"records", "many", "1 to 10000000000"}, BadCase{"records", "-1", "1 to"},
        BadCase{"records", "1x", "1 to"}, BadCase{"operations", "99999999999G", "0 to"},
        BadCase{"seconds", "0", "0.1 to 1000000"}, BadCase{"seconds", "nan", "0.1 to 1000000"},
        BadCase{"warmup_seconds", "-1", "0 to 100000"}, BadCase{"threads", "0", "1 to 1024"},
        BadCase{"connections", "65537", "0 to 65536"}, BadCase{"depth", "0", "1 to 1024"},
        BadCase{"depth", "1025", "1 to 1024"}, BadCase{"key_size", "7", "8 to 1024"},
        BadCase{"key_size", "1025", "8 to 1024"}, BadCase{"value_size", "0", "1B to 1GiB"},
        BadCase{"value_size", "2GiB", "1B to 1GiB"}, BadCase{"value_size", "big", "1B to 1GiB"},
        BadCase{"distribution", "newest", "zipfian, uniform, latest"},
        BadCase{"distribution", "zipf:0", "THETA above 0"},
        BadCase{"value_size", "uniform:9-1", "least is more than its most"},
        BadCase{"value_size", "list:10", "no SIZE:WEIGHT"},
        BadCase{"seed", "x", "0 to 18446744073709551615"}, BadCase{"cache_bytes", "-5", "to 1TiB"},
        BadCase{"fabric", "tcp", "auto, verbs or soft"}, BadCase{"max_errors", "none", "0 to"},
        BadCase{"rounds", "3", "9 to 1000"}, BadCase{"server_pid", "me", "0 to 2147483647"},
        BadCase{"tos", "256", "0 to 255"}, BadCase{"ack_timeout", "0", "1 to 31"},
        BadCase{"retry_count", "8", "0 to 7"}, BadCase{"rnr_timer", "x", "0 to 31"},
        BadCase{"timeout_seconds", "0", "0.001 to 3600"}, BadCase{"server", "nowhere", "ADDR:PORT"},
        BadCase{"server", "127.0.0.1:0", "1 to 65535"},
        BadCase{"server", "[fe80::1]:7400", "[fe80::1%INTERFACE]:7400"}));

// Whether there is such a host is no question of usage.
TEST(Config, HostsAreNotLookedUp) {
  EXPECT_TRUE(Configure(Command::kRun, {{"server", "no.such.host.invalid:7400"}}).ok());
}

TEST(Config, ConnectionsAreAMultipleOfThreads) {
  const auto config = Configure(Command::kRun, {{"threads", "2"}, {"connections", "3"}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().ToString(), HasSubstr("multiple of --threads=2"));
}

TEST(Config, RatesAreForThoseThatCanKeepThem) {
  EXPECT_EQ(Configure(Command::kRun, {{"rate", "20k"}})->load.rate, 20'000);
  EXPECT_THAT(Configure(Command::kRun, {{"rate", "20M"}}).status().ToString(),
              HasSubstr("at most 10M for each thread"));
  EXPECT_TRUE(Configure(Command::kRun, {{"rate", "20M"}, {"threads", "2"}}).ok());
  EXPECT_THAT(Configure(Command::kRun, {{"sweep", "1k,20M"}}).status().ToString(),
              HasSubstr("at most 10M for each thread"));
  EXPECT_THAT(Configure(Command::kLoad, {{"sweep", "1k"}}).status().ToString(),
              HasSubstr("--ramp, --sweep and --search are for run"));
  EXPECT_THAT(Configure(Command::kCompare, {{"agents", "a:1"}}).status().ToString(),
              HasSubstr("--agents is for load and run"));
}

TEST(Config, OutputsThatWouldNotComeAreRefused) {
  const auto error = [](Command command, const Flags& flags) {
    return Configure(command, flags).status().ToString();
  };
  EXPECT_THAT(error(Command::kCompare, {{"csv", "x"}}), HasSubstr("--csv and --hgrm are for load"));
  EXPECT_THAT(error(Command::kCompare, {{"hgrm", "x"}}),
              HasSubstr("--csv and --hgrm are for load"));
  EXPECT_THAT(error(Command::kCompare, {{"format", "ycsb"}}),
              HasSubstr("--format=ycsb is for load"));
  EXPECT_TRUE(Configure(Command::kCompare, {{"format", "json"}}).ok());
  for (const Command command : {Command::kLoad, Command::kCompare}) {
    EXPECT_THAT(error(command, {{"baseline", "true"}}), HasSubstr("--baseline is for run"));
  }
  EXPECT_THAT(error(Command::kRun, {{"baseline", "true"}, {"sweep", "1k"}}),
              HasSubstr("--baseline is for run, without --ramp"));
}

TEST(Config, ServerIsNeededExceptForCompare) {
  EXPECT_THAT(Configure(Command::kRun, {{"server", ""}}).status().ToString(),
              HasSubstr("--server"));
  EXPECT_TRUE(Configure(Command::kCompare, {{"server", ""}}).ok());
}

TEST(Help, NamesEveryFlag) {
  const std::string help = HelpText();
  for (const char* flag :
       {"workload",       "records",         "operations",   "seconds",
        "warmup_seconds", "threads",         "connections",  "depth",
        "key_size",       "value_size",      "distribution", "seed",
        "cache_bytes",    "fabric",          "json",         "max_errors",
        "baseline",       "rounds",          "server_pid",   "redis",
        "systems",        "scenario",        "report",       "memcached_protocol",
        "memcached",      "timeout_seconds", "tos",          "ack_timeout",
        "retry_count",    "rnr_timer",       "preload"}) {
    EXPECT_THAT(help, HasSubstr(std::string("--") + flag));
  }
}

TEST(Config, ReadsTraces) {
  const auto plain = Configure(Command::kRun, {{"trace", "t.csv"}});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->trace.file, "t.csv");
  EXPECT_EQ(plain->trace.speed, 0);
  EXPECT_EQ(plain->duration.count(), 0) << "to its end";
  const auto all = Configure(Command::kRun, {{"trace", "t.csv"},
                                             {"speed", "2.5"},
                                             {"strict", "true"},
                                             {"fill_on_miss", "true"},
                                             {"seconds", "3"}});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->trace.speed, 2.5);
  EXPECT_TRUE(all->trace.strict);
  EXPECT_TRUE(all->trace.fill_on_miss);
  EXPECT_EQ(all->duration, std::chrono::seconds(3));
}

TEST(Config, RefusesWhatDoesNotGoWithATrace) {
  const auto refused = [](Command command, Flags flags) {
    const auto config = Configure(command, flags);
    EXPECT_TRUE(absl::IsInvalidArgument(config.status())) << config.status();
    return std::string(config.status().message());
  };
  const std::pair<std::string, std::string> trace{"trace", "t.csv"};
  for (const char* speed : {"-1", "x", "nan", "inf", "0.0009", "1e7", ""}) {
    EXPECT_THAT(refused(Command::kRun, {trace, {"speed", speed}}),
                HasSubstr("it must be 0 or a number from 0.001 to 1000000"));
  }
  const Flags others = {{"workload", "a"},    {"distribution", "uniform"},
                        {"key_size", "16"},   {"value_size", "5"},
                        {"rate", "5"},        {"sweep", "5,6"},
                        {"baseline", "true"}, {"agents", "h:1"}};
  for (const auto& other : others) {
    EXPECT_THAT(refused(Command::kRun, {trace, other}),
                HasSubstr("--" + other.first + " is not allowed with --trace"));
  }
  EXPECT_THAT(refused(Command::kCompare, {trace}), HasSubstr("not allowed for compare"));
  EXPECT_THAT(refused(Command::kLoad, {trace}), HasSubstr("not allowed for load"));
  EXPECT_THAT(refused(Command::kRun, {{"speed", "2"}}), HasSubstr("without --trace"));
  EXPECT_THAT(refused(Command::kRun, {{"strict", "true"}}), HasSubstr("without --trace"));
}

}  // namespace
}  // namespace verbena::bench
