#include "bench/measure/process_usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "common/base/clock.h"

namespace verbena::bench {
namespace {

TEST(ProcessUsage, ParsesStat) {
  const auto line = ParseStat(
      "17 (a ) (b 1 2) S 2 0 0 0 -1 2129984 1 2 3 4 123 456 0 0 20 0 1 0 14 0 0 "
      "18446744073709551615");
  ASSERT_TRUE(line.has_value());
  EXPECT_TRUE(line->kernel_thread);
  EXPECT_EQ(line->user_ticks, 123U);
  EXPECT_EQ(line->system_ticks, 456U);
  const auto program = ParseStat("17 (x) R 2 0 0 0 -1 4194304 1 2 3 4 1 2 0 0");
  ASSERT_TRUE(program.has_value());
  EXPECT_FALSE(program->kernel_thread);
}

TEST(ProcessUsage, RefusesWhatIsNoStat) {
  for (const char* text : {"", "17", "17 (x", "17 (x) R 2 0 0", "17 (x) R 2 0 0 0 -1 y 1 2 3 4 1 2",
                           "17 (x) R 2 0 0 0 -1 4194304 1 2 3 4 one 2"}) {
    EXPECT_FALSE(ParseStat(text).has_value()) << text;
  }
}

TEST(ProcessUsage, AddsSwitches) {
  ProcessUsage usage;
  usage.voluntary_switches = 1;
  AddSwitches("Name:\tx\nvoluntary_ctxt_switches:\t20\nnonvoluntary_ctxt_switches:\t3\n", &usage);
  AddSwitches("voluntary_ctxt_switches:\tmany\nnonvoluntary_ctxt_switches:\t4", &usage);
  AddSwitches("", &usage);
  EXPECT_EQ(usage.voluntary_switches, 21U);
  EXPECT_EQ(usage.involuntary_switches, 7U);
}

TEST(ProcessUsage, DifferencesDoNotGoBelowZero) {
  ProcessUsage earlier;
  earlier.cpu_seconds = 2;
  earlier.voluntary_switches = 5;
  ProcessUsage now;
  now.cpu_seconds = 3;
  now.voluntary_switches = 4;
  EXPECT_EQ((now - earlier).cpu_seconds, 1);
  EXPECT_EQ((now - earlier).voluntary_switches, 0U);
  now += earlier;
  EXPECT_EQ(now.cpu_seconds, 5);
  EXPECT_EQ(now.voluntary_switches, 9U);
}

// Both ways of asking see the same process: what it has used, and that it slept.
TEST(ProcessUsage, SeesWork) {
  const ProcessUsage own = OwnUsage();
  const auto seen = UsageOf(getpid());
  ASSERT_TRUE(seen.has_value());
  const double until = seen->cpu_seconds + 0.05;
  while (UsageOf(getpid())->cpu_seconds < until) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const ProcessUsage own_more = OwnUsage() - own;
  const ProcessUsage seen_more = *UsageOf(getpid()) - *seen;
  EXPECT_GE(own_more.cpu_seconds, 0.04);
  EXPECT_GE(seen_more.cpu_seconds, 0.05);
  EXPECT_GE(own_more.voluntary_switches, 1U);
  EXPECT_GE(seen_more.voluntary_switches, 1U);
}

TEST(ProcessUsage, NobodyUsesNothing) {
  EXPECT_FALSE(UsageOf(0).has_value());
  EXPECT_FALSE(UsageOf(int64_t{1} << 40).has_value());
}

}  // namespace
}  // namespace verbena::bench
