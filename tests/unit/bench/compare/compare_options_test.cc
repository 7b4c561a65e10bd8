#include "bench/compare/compare_options.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/config.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<CompareOptions> WithFlag(const char* name, const char* value) {
  gflags::FlagSaver saver;
  EXPECT_FALSE(gflags::SetCommandLineOption(name, value).empty()) << name;
  return CompareOptionsFromFlags();
}

TEST(ParseRivals, KnowsPlaces) {
  auto places = ParseRivals("redis-server");
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->front().kind, RivalPlace::Kind::kProgram);
  places = ParseRivals("/opt/a:b/redis-server");
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->front().kind, RivalPlace::Kind::kProgram);
  places = ParseRivals("off");
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->front().kind, RivalPlace::Kind::kOff);
  places = ParseRivals("127.0.0.1:6379,unix:/run/redis.sock");
  ASSERT_TRUE(places.ok());
  ASSERT_EQ(places->size(), 2U);
  EXPECT_EQ((*places)[0].kind, RivalPlace::Kind::kTcp);
  EXPECT_EQ((*places)[1].kind, RivalPlace::Kind::kUnix);
  EXPECT_EQ((*places)[1].where, "/run/redis.sock");
}

TEST(ParseRivals, RefusesOthers) {
  for (const char* text :
       {"", ",", "unix:", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x", "off,redis-server",
        "redis-server,127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "unix:/a,unix:/b"}) {
    EXPECT_FALSE(ParseRivals(text).ok()) << text;
  }
}

TEST(CompareOptions, ReadsFlags) {
  const auto defaults = CompareOptionsFromFlags();
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  for (const std::string& system : ComparedSystems()) EXPECT_TRUE(defaults->Wants(system));
  const auto some = WithFlag("systems", "verbena,redis-unix");
  ASSERT_TRUE(some.ok());
  EXPECT_TRUE(some->Wants("redis-unix"));
  EXPECT_FALSE(some->Wants("redis-tcp"));
  EXPECT_EQ(WithFlag("redis_server", "valkey-server")->redis.front().where, "valkey-server");
  EXPECT_TRUE(WithFlag("memcached_protocol", "meta")->meta_protocol);
  EXPECT_EQ(WithFlag("scenario", "storage4k")->scenario, Scenario::kStorage4k);
}

TEST(CompareOptions, RefusesWithFlagValueAndChoice) {
  const auto expect = [](const char* flag, const char* value, const char* choice) {
    const std::string text = WithFlag(flag, value).status().ToString();
    EXPECT_THAT(text, HasSubstr(std::string("--") + flag + "=" + value));
    EXPECT_THAT(text, HasSubstr(choice));
  };
  expect("systems", "verbena,postgres", "memcached-unix");
  expect("systems", "verbena,", "'' is none");
  expect("redis", "unix:", "unix:PATH");
  expect("redis_server", "a,b", "alone");
  expect("memcached", "127.0.0.1:0", "ADDR:PORT");
  expect("memcached_protocol", "binary", "text or meta");
  expect("scenario", "storage", "storage4k");
}

TEST(CompareOptions, ScenarioSetsTheWorkloadUnlessFlagsDo) {
  gflags::FlagSaver saver;
  gflags::SetCommandLineOption("scenario", "storage4k");
  auto config = ConfigFromFlags(Command::kCompare);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->value_size, 4096U);
  EXPECT_EQ(config->workload.name, "c");
  EXPECT_EQ(config->distribution, Distribution::kUniform);
  gflags::SetCommandLineOption("value_size", "8KiB");
  config = ConfigFromFlags(Command::kCompare);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->value_size, 8192U);
}

}  // namespace
}  // namespace verbena::bench
