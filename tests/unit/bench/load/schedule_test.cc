#include "bench/load/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace verbena::bench {
namespace {

TEST(Schedule, FixedTimesAreMultiples) {
  Schedule schedule(Arrival::kFixed, 1000, 1);
  for (int64_t i = 0; i < 1'000'000; ++i, schedule.Advance()) {
    ASSERT_EQ(schedule.due(), i * 1'000'000);
  }
}

// Threads that share a rate are due one after another, in equal intervals.
TEST(Schedule, ThreadsInterleave) {
  std::vector<Schedule> threads;
  for (uint32_t i = 0; i < 4; ++i) threads.emplace_back(Arrival::kFixed, 250, 1, i, 4);
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(threads[static_cast<size_t>(i) % 4].due(), i * 1'000'000);
    threads[static_cast<size_t>(i) % 4].Advance();
  }
}

// Of a Poisson process at 1000/s: mean of the intervals 1 ms, their standard deviation too, and
// exp(-1) of them are longer than the mean.
TEST(Schedule, PoissonIntervalsAreExponential) {
  Schedule schedule(Arrival::kPoisson, 1000, 7);
  constexpr int kCount = 200'000;
  double sum = 0;
  double squares = 0;
  int longer = 0;
  int64_t before = 0;
  for (int i = 0; i < kCount; ++i, schedule.Advance()) {
    const auto interval = static_cast<double>(schedule.due() - before) * 1e-6;
    before = schedule.due();
    sum += interval;
    squares += interval * interval;
    longer += interval > 1 ? 1 : 0;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 1, 0.01);
  EXPECT_NEAR(squares / kCount - mean * mean, 1, 0.03);
  EXPECT_NEAR(static_cast<double>(longer) / kCount, 0.3679, 0.005);
}

TEST(Schedule, TheSameSeedGivesTheSameTimes) {
  Schedule one(Arrival::kPoisson, 5e6, 3);
  Schedule two(Arrival::kPoisson, 5e6, 3);
  Schedule other(Arrival::kPoisson, 5e6, 4);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(one.due(), two.due());
    equal += one.due() == other.due() ? 1 : 0;
    one.Advance();
    two.Advance();
    other.Advance();
  }
  EXPECT_LT(equal, 10);
}

TEST(Backlog, CountsWhatIsDueAndNotSubmitted) {
  const Schedule schedule(Arrival::kFixed, 1000, 1);  // due at 0, 1 ms, 2 ms...
  Backlog backlog(schedule, 0);
  backlog.Look(0, 1);
  EXPECT_EQ(backlog.last(), 0u);
  backlog.Look(99'500'000, 1);
  EXPECT_EQ(backlog.last(), 99u);
  EXPECT_EQ(backlog.due(), 100u);
  backlog.Look(100'000'000, 101);
  EXPECT_EQ(backlog.last(), 0u);
  EXPECT_EQ(backlog.most(), 99u);
  // The end of the warm-up.
  backlog.Restart(200'000'000, 190);
  EXPECT_EQ(backlog.due(), 0u);
  EXPECT_EQ(backlog.most(), 11u);
  backlog.Look(210'000'000, 211);
  EXPECT_EQ(backlog.due(), 10u);
  EXPECT_EQ(backlog.last(), 0u);
}

TEST(Backlog, EndsWithTheOperationsOfTheRun) {
  Backlog backlog(Schedule(Arrival::kFixed, 1000, 1), 10);
  backlog.Restart(-1, 0);
  backlog.Look(1'000'000'000, 4);
  EXPECT_EQ(backlog.due(), 10u);
  EXPECT_EQ(backlog.last(), 6u);
}

}  // namespace
}  // namespace verbena::bench
