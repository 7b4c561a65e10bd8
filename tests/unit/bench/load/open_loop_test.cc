// The open loop: what is due is counted from when it was due.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/load/runner.h"
#include "common/base/clock.h"
#include "tests/unit/bench/load/memory_backend.h"

namespace verbena::bench {
namespace {

constexpr int64_t kMilli = 1'000'000;

Config OpenConfig(double rate, uint64_t operations) {
  Config config;
  config.workload = *FindWorkload("c");
  config.records = 100;
  config.operations = operations;
  config.value_size = 50;
  config.depth = 4;
  config.poll = std::chrono::microseconds(100);
  config.load.rate = rate;
  config.seed = 1;
  return config;
}

std::vector<std::unique_ptr<Backend>> Loaded(const Config& config, MemoryStore* store) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (uint32_t i = 0; i < config.connections; ++i) {
    backends.push_back(std::make_unique<MemoryBackend>(store));
  }
  Config load = config;
  load.command = Command::kLoad;
  load.load.rate = 0;
  load.warmup = {};
  EXPECT_EQ(RunWorkload(load, backends, {}).errors(), 0u);
  return backends;
}

// The store does nothing for 100 ms, once.
void StallOnce(Backend& backend) {
  auto& memory = static_cast<MemoryBackend&>(backend);
  const auto polls = std::make_shared<int>(0);
  memory.before_poll = [polls] {
    if (++*polls != 50) return;
    const int64_t until = MonotonicNanos() + 100 * kMilli;
    while (MonotonicNanos() < until) CpuRelax();
  };
}

// 4,000 operations at 2,000/s: a stall of 100 ms delays the 200 that are due meanwhile, which is
// 5 % of all. So every percentile from 95.1 up shows it, though only 4 operations (those in flight)
// have been served slowly.
TEST(OpenLoop, AStallShowsInTheResponseTime) {
  const Config config = OpenConfig(2000, 4000);
  MemoryStore store;
  auto backends = Loaded(config, &store);
  StallOnce(*backends[0]);
  const RunResult result = RunWorkload(config, backends, {});
  const OpResult& reads = result.op(OpKind::kRead);
  EXPECT_EQ(reads.count, 4000u);
  EXPECT_EQ(reads.errors, 0u);
  EXPECT_EQ(reads.response.count(), 4000u);
  EXPECT_EQ(reads.latency.count(), 4000u);
  EXPECT_GE(reads.response.Percentile(99.9), static_cast<uint64_t>(90 * kMilli));
  EXPECT_GE(reads.response.Percentile(98), static_cast<uint64_t>(50 * kMilli));
  EXPECT_LT(reads.latency.Percentile(98), static_cast<uint64_t>(50 * kMilli));
  EXPECT_EQ(&reads.judged(), &reads.response);
  ASSERT_TRUE(result.open_loop.has_value());
  EXPECT_EQ(result.open_loop->due, 4000u);
  EXPECT_GE(result.open_loop->backlog_most, 150u);
  EXPECT_EQ(result.open_loop->backlog_end, 0u);
}

// The same in a closed loop: four operations of 4,000 met the stall, and there is no response time
// that could claim otherwise.
TEST(OpenLoop, AClosedLoopHasNoResponseTime) {
  Config config = OpenConfig(0, 8000);
  MemoryStore store;
  auto backends = Loaded(config, &store);
  StallOnce(*backends[0]);
  const RunResult result = RunWorkload(config, backends, {});
  const OpResult& reads = result.op(OpKind::kRead);
  EXPECT_EQ(reads.response.count(), 0u);
  EXPECT_EQ(&reads.judged(), &reads.latency);
  EXPECT_GE(reads.latency.max(), static_cast<uint64_t>(100 * kMilli));
  EXPECT_LT(reads.latency.Percentile(99.9), static_cast<uint64_t>(100 * kMilli));
  EXPECT_FALSE(result.open_loop.has_value());
}

TEST(OpenLoop, KeepsTheRate) {
  for (const Arrival arrival : {Arrival::kFixed, Arrival::kPoisson}) {
    Config config = OpenConfig(10'000, 0);
    config.load.arrival = arrival;
    config.duration = std::chrono::milliseconds(300);
    config.warmup = std::chrono::milliseconds(100);
    MemoryStore store;
    auto backends = Loaded(config, &store);
    const RunResult result = RunWorkload(config, backends, {});
    // How many became due is the clock's and the schedule's, whatever the machine does.
    EXPECT_NEAR(static_cast<double>(result.open_loop->due) / result.open_loop->seconds, 10'000,
                2'000);
    EXPECT_LE(result.operations() + result.open_loop->backlog_end, result.open_loop->due + 1);
    EXPECT_EQ(result.errors(), 0u);
  }
}

// A store that answers four operations each 10 ms, at most, and a schedule of 4,000/s.
TEST(OpenLoop, SaysWhatWasMissed) {
  Config config = OpenConfig(4000, 0);
  config.duration = std::chrono::milliseconds(400);
  MemoryStore store;
  auto backends = Loaded(config, &store);
  auto& memory = static_cast<MemoryBackend&>(*backends[0]);
  memory.before_poll = [] {
    const int64_t until = MonotonicNanos() + 10 * kMilli;
    while (MonotonicNanos() < until) CpuRelax();
  };
  const RunResult result = RunWorkload(config, backends, {});
  EXPECT_LE(result.throughput(), 450);
  EXPECT_FALSE(result.schedule_kept());
  EXPECT_GT(result.missed(), 0.8);
  EXPECT_GT(result.open_loop->backlog_end, 1000u);
  EXPECT_GE(result.open_loop->backlog_most, result.open_loop->backlog_end);
  // By count everything is done at last, and it is the time that tells.
  config.duration = {};
  config.operations = 200;
  const RunResult counted = RunWorkload(config, backends, {});
  EXPECT_EQ(counted.operations(), 200u);
  EXPECT_EQ(counted.open_loop->due, 200u);
  EXPECT_EQ(counted.open_loop->backlog_end, 0u);
  EXPECT_FALSE(counted.schedule_kept());
}

// Two connections with one slot each: the slots of both are used, and given back.
TEST(OpenLoop, UsesAllConnections) {
  Config config = OpenConfig(1e6, 3000);
  config.connections = 2;
  config.depth = 1;
  MemoryStore store;
  auto backends = Loaded(config, &store);
  int polls[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    static_cast<MemoryBackend&>(*backends[static_cast<size_t>(i)]).before_poll = [&polls, i] {
      ++polls[i];
    };
  }
  const RunResult result = RunWorkload(config, backends, {});
  EXPECT_EQ(result.operations(), 3000u);
  EXPECT_GE(std::min(polls[0], polls[1]), 1000);
}

TEST(OpenLoop, ErrorsAndLossEndAsInAClosedLoop) {
  Config config = OpenConfig(20'000, 1000);
  MemoryStore store;
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<MemoryBackend>(&store));
  const RunResult missing = RunWorkload(config, backends, {});  // nothing was loaded
  EXPECT_EQ(missing.errors(), 1000u);
  EXPECT_EQ(missing.op(OpKind::kRead).statuses[StatusIndex(absl::StatusCode::kNotFound)], 1000u);
  EXPECT_EQ(missing.op(OpKind::kRead).failed.count(), 1000u);
  config.operations = 0;
  auto& memory = static_cast<MemoryBackend&>(*backends[0]);
  int polls = 0;
  memory.before_poll = [&] {
    if (++polls == 100) memory.Break(absl::UnavailableError("the server is gone"));
  };
  const RunResult lost = RunWorkload(config, backends, {});
  EXPECT_THAT(lost.lost, ::testing::HasSubstr("the server is gone"));
  EXPECT_EQ(ExitStatusOf(config, lost), 3);
}

TEST(OpenLoop, LoadsAtARate) {
  Config config = OpenConfig(50'000, 0);
  config.command = Command::kLoad;
  config.records = 1000;
  config.threads = config.connections = 2;
  MemoryStore store;
  std::vector<std::unique_ptr<Backend>> backends;
  for (int i = 0; i < 2; ++i) backends.push_back(std::make_unique<MemoryBackend>(&store));
  const RunResult result = RunWorkload(config, backends, {});
  EXPECT_EQ(result.operations(), 1000u);
  EXPECT_EQ(store.map.size(), 1000u);
  EXPECT_GE(result.seconds, 0.018);
}

}  // namespace
}  // namespace verbena::bench
