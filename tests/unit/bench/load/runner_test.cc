#include "bench/load/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/load/progress.h"
#include "bench/load/worker.h"
#include "bench/measure/process_cpu.h"
#include "common/base/clock.h"
#include "tests/unit/bench/load/memory_backend.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

Config SmallConfig(Command command) {
  Config config;
  config.command = command;
  config.workload = *FindWorkload("a");
  config.records = 1000;
  config.operations = command == Command::kRun ? 10'000 : 0;
  config.threads = 2;
  config.connections = 4;
  config.depth = 3;
  config.value_size = 50;
  config.seed = 1;
  return config;
}

std::vector<std::unique_ptr<Backend>> MakeBackends(const Config& config, MemoryStore* store) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (uint32_t i = 0; i < config.connections; ++i) {
    backends.push_back(std::make_unique<MemoryBackend>(store));
  }
  return backends;
}

RunResult RunOn(const Config& config, MemoryStore* store) {
  return RunWorkload(config, MakeBackends(config, store), {});
}

TEST(Runner, LoadInsertsEveryRecordOnce) {
  MemoryStore store;
  Config config = SmallConfig(Command::kLoad);
  config.records = 1001;  // not a multiple of the threads
  const RunResult result = RunOn(config, &store);
  EXPECT_EQ(result.op(OpKind::kInsert).count, 1001u);
  EXPECT_EQ(result.operations(), 1001u);
  EXPECT_EQ(store.map.size(), 1001u);
  for (uint64_t i = 0; i < config.records; ++i) {
    EXPECT_EQ(store.map.count(config.key_names().Name(i)), 1u) << i;
  }
}

TEST(Runner, MoreThreadsThanRecords) {
  MemoryStore store;
  Config config = SmallConfig(Command::kLoad);
  config.threads = config.connections = 8;
  config.records = 3;
  EXPECT_EQ(RunOn(config, &store).operations(), 3u);
  EXPECT_EQ(store.map.size(), 3u);
}

TEST(Runner, RunDoesAsManyOperationsAsAskedAndVerifies) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  const RunResult result = RunOn(SmallConfig(Command::kRun), &store);
  EXPECT_EQ(result.operations(), 10'000u);
  EXPECT_EQ(result.errors(), 0u);
  EXPECT_NEAR(static_cast<double>(result.op(OpKind::kRead).count), 5000, 300);
  EXPECT_EQ(result.verify.checked, result.op(OpKind::kRead).count);
  EXPECT_EQ(result.verify.wrong, 0u);
  EXPECT_GT(result.throughput(), 0);
  EXPECT_EQ(result.op(OpKind::kRead).latency.count(), result.op(OpKind::kRead).count);
}

TEST(Runner, MissingRecordsAreErrors) {
  MemoryStore store;
  Config config = SmallConfig(Command::kRun);
  config.workload = *FindWorkload("c");
  const RunResult result = RunOn(config, &store);
  EXPECT_EQ(result.errors(), 10'000u);
  EXPECT_THAT(result.first_error, HasSubstr("absent"));
  EXPECT_EQ(ExitStatusOf(config, result), 1);
}

TEST(Runner, WrongValuesAreCounted) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  for (auto& [key, value] : store.map) value[20] = static_cast<char>(value[20] + 1);
  Config config = SmallConfig(Command::kRun);
  config.workload = *FindWorkload("c");
  const RunResult result = RunOn(config, &store);
  EXPECT_EQ(result.verify.wrong, 10'000u);
  EXPECT_EQ(ExitStatusOf(config, result), 1);
}

Config ScanConfig() {
  Config config = SmallConfig(Command::kRun);
  config.workload = *FindWorkload("e");
  config.operations = 2000;
  return config;
}

TEST(Runner, ScansAndInserts) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  // Others' keys are left out, also those behind the last record.
  store.map["zebra"] = store.map["greeting"] = "not a record";
  const RunResult result = RunOn(ScanConfig(), &store);
  EXPECT_EQ(result.errors(), 0u) << result.first_error;
  EXPECT_EQ(result.verify.wrong, 0u);
  const uint64_t scans = result.op(OpKind::kScan).count;
  const uint64_t inserts = result.op(OpKind::kInsert).count;
  EXPECT_EQ(scans + inserts, 2000u);
  EXPECT_NEAR(static_cast<double>(inserts), 100, 50);
  EXPECT_EQ(store.map.size(), 1002 + inserts);
  EXPECT_EQ(result.verify.checked, result.scanned);
  // 50.5 less the ends of those that come to the last record.
  EXPECT_NEAR(*result.scanned_per_scan(), 49, 4);
  EXPECT_GT(*result.scanned_per_second(), 0);
  EXPECT_EQ(result.op(OpKind::kScan).latency.count(), scans);
}

TEST(Runner, ScansThatAreWrongAreCounted) {
  using Records = std::vector<ScannedRecord>;
  const Config config = ScanConfig();
  const auto wrong = [&config](std::function<void(Records&)> alter) {
    MemoryStore store;
    RunOn(SmallConfig(Command::kLoad), &store);
    auto backends = MakeBackends(config, &store);
    for (auto& backend : backends) static_cast<MemoryBackend&>(*backend).alter_scan = alter;
    return RunWorkload(config, backends, {});
  };
  EXPECT_GT(wrong([](Records& records) { records.back().value = "torn"; }).verify.wrong, 1000u);
  // The same record twice: more than were wanted, or out of order.
  EXPECT_GT(wrong([](Records& r) { r.push_back(r.back()); }).verify.wrong, 1000u);
  EXPECT_GT(wrong([](Records& r) {
              if (r.size() > 2) std::swap(r[1], r[2]);
            }).verify.wrong,
            1000u);
  // The one that is asked for is missing, which is an error as for reads.
  const RunResult missing = wrong([](Records& records) { records.erase(records.begin()); });
  EXPECT_EQ(missing.errors(), missing.op(OpKind::kScan).count);
  EXPECT_THAT(missing.first_error, HasSubstr("did not find user"));
  EXPECT_EQ(ExitStatusOf(config, missing), 1);
}

TEST(Runner, EndsWhenTimeIsOver) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  Config config = SmallConfig(Command::kRun);
  config.operations = 0;
  config.duration = std::chrono::milliseconds(200);
  config.warmup = std::chrono::milliseconds(100);
  const int64_t begin = MonotonicNanos();
  const RunResult result = RunOn(config, &store);
  const int64_t elapsed = MonotonicNanos() - begin;
  EXPECT_GE(elapsed, 300'000'000);
  // The workers notice the ends of warm-up and run when they have their turn.
  EXPECT_GT(result.seconds, 0.05);
  EXPECT_LT(result.seconds, static_cast<double>(elapsed) * 1e-9);
  EXPECT_GT(result.operations(), 0u);
}

// As on a machine that is overloaded.
TEST(Runner, AThreadThatMissesTheRunMeasuresNothing) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  Config config = SmallConfig(Command::kRun);
  config.operations = 0;
  config.duration = std::chrono::milliseconds(50);
  config.warmup = std::chrono::milliseconds(50);
  auto backends = MakeBackends(config, &store);
  const int64_t begin = MonotonicNanos();
  for (auto& backend : backends) {
    static_cast<MemoryBackend*>(backend.get())->before_poll = [begin] {
      while (MonotonicNanos() < begin + 200'000'000) std::this_thread::yield();
    };
  }
  const RunResult result = RunWorkload(config, backends, {});
  EXPECT_LT(result.seconds, static_cast<double>(MonotonicNanos() - begin) * 1e-9);
  EXPECT_EQ(result.operations(), 0u);
}

// A connection that dies ends the run; what was in flight on it counts as failed.
TEST(Runner, LostConnectionEndsTheRun) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  Config config = SmallConfig(Command::kRun);
  config.operations = 0;
  auto backends = MakeBackends(config, &store);
  auto* victim = static_cast<MemoryBackend*>(backends[1].get());
  int polls = 0;
  victim->before_poll = [&polls, victim] {
    if (++polls == 100) victim->Break(absl::UnavailableError("the server is gone"));
  };
  const RunResult result = RunWorkload(config, backends, {});
  EXPECT_THAT(result.lost, HasSubstr("the server is gone"));
  EXPECT_GE(result.errors(), config.depth);
  EXPECT_EQ(ExitStatusOf(config, result), 3);
}

// What a dying connection still tells, after the run or after giving up, reaches nobody.
TEST(Runner, LateAnswersAreIgnored) {
  MemoryStore store;
  RunOn(SmallConfig(Command::kLoad), &store);
  Config config = SmallConfig(Command::kRun);
  config.threads = config.connections = 1;
  auto backends = MakeBackends(config, &store);
  auto* backend = static_cast<MemoryBackend*>(backends[0].get());
  backend->before_poll = [backend] { backend->Break(absl::UnavailableError("gone")); };
  const RunResult result = RunWorkload(config, backends, {});
  EXPECT_EQ(result.errors(), config.depth);
  backend->AnswerLate();
}

// Operations that fail are no progress, but they are seen.
TEST(ProgressLine, CountsErrors) {
  for (const bool loaded : {true, false}) {
    MemoryStore store;
    if (loaded) RunOn(SmallConfig(Command::kLoad), &store);
    Config config = SmallConfig(Command::kRun);
    config.workload = *FindWorkload("c");
    MemoryBackend backend(&store);
    RunControl control(config);
    control.measuring = true;
    control.running = 1;
    std::vector<std::unique_ptr<Worker>> workers;
    workers.push_back(std::make_unique<Worker>(config, WorkerPlan{.operations = 100},
                                               std::vector<Backend*>{&backend}, &control));
    ProgressLine line(config, workers);
    workers.front()->Run();
    EXPECT_EQ(workers.front()->ended(), 100u);
    const std::string text = line.Next(MonotonicNanos(), true);
    EXPECT_EQ(text.ends_with("  100 errors"), !loaded) << text;
    EXPECT_EQ(text.find("error") == std::string::npos, loaded) << text;
  }
}

TEST(ProcessCpu, GrowsWithWork) {
  const auto before = ProcessCpuSeconds(getpid());
  ASSERT_TRUE(before.has_value());
  const int64_t until = MonotonicNanos() + 20'000'000;
  while (MonotonicNanos() < until) CpuRelax();
  EXPECT_GT(*ProcessCpuSeconds(getpid()), *before);
  EXPECT_FALSE(ProcessCpuSeconds(0).has_value());
  EXPECT_FALSE(ProcessCpuSeconds(INT32_MAX).has_value());
  EXPECT_EQ(ProcessName(getpid()), std::string("bench_test"));
}

}  // namespace
}  // namespace verbena::bench
