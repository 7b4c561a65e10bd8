// Runs by a trace, on a store in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/load/runner.h"
#include "common/base/clock.h"
#include "tests/unit/bench/load/memory_backend.h"
#include "tests/unit/bench/load/trace_testing.h"

namespace verbena::bench {
namespace {

constexpr int64_t kReplayMilli = 1'000'000;

Config ReplayConfig(uint32_t threads = 1, uint32_t depth = 1) {
  Config config;
  config.workload = *FindWorkload("b");
  config.records = 1;
  config.threads = config.connections = threads;
  config.depth = depth;
  config.poll = std::chrono::microseconds(100);
  config.seed = 1;
  return config;
}

RunnerOptions ByTrace(TraceReader& reader) {
  RunnerOptions options;
  options.trace = &reader;
  return options;
}

RunResult Replay(const Config& config, std::string_view text, MemoryStore* store,
                 TraceOptions options = {}) {
  const TraceFile file(text);
  options.path = file.path();
  const auto reader = TraceReader::Open(std::move(options));
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<std::unique_ptr<Backend>> backends;
  for (uint32_t i = 0; i < config.connections; ++i) {
    backends.push_back(std::make_unique<MemoryBackend>(store));
  }
  return RunWorkload(config, backends, ByTrace(**reader));
}

TEST(TraceReplay, DoesWhatEachLineSays) {
  MemoryStore store;
  const RunResult result = Replay(ReplayConfig(),
                                  "0,k1,2,0,1,get,0\n"       // miss
                                  "0,k1,2,100,1,set,60\n"    //
                                  "0,k1,2,100,1,get,0\n"     // hit
                                  "0,k1,2,50,1,add,0\n"      // is there
                                  "0,k2,4,50,1,add,7\n"      //
                                  "0,k3,2,10,1,replace,0\n"  // is not there
                                  "0,k3,2,10,1,cas,0\n"      // nor now
                                  "0,k1,2,30,1,cas,5\n"      //
                                  "0,k1,2,12,1,append,0\n"   // 42 bytes
                                  "0,k1,2,8,1,prepend,0\n"   // 50 bytes
                                  "0,k4,2,8,1,append,0\n"    // of nothing
                                  "0,k4,2,8,1,prepend,0\n"   // likewise
                                  "0,k4,2,8,1,incr,0\n"      // likewise
                                  "0,k2,4,1,1,incr,0\n"      // still 50 bytes
                                  "0,k2,4,1,1,decr,0\n"      // still
                                  "0,k9,2,1,1,delete,0\n"    // of nothing
                                  "0,k1,2,0,1,gets,0\n"      // hit
                                  "0,k5,2,0,1,set,0\n"       // an empty value
                                  "0,k5,2,0,1,get,0\n"       // hit
                                  "0,k6,2,9,1,set,0\n"       //
                                  "0,k6,2,9,1,delete,0\n"    //
                                  "0,k6,2,9,1,get,0\n",      // miss
                                  &store);
  EXPECT_EQ(result.errors(), 0u) << result.first_error;
  EXPECT_EQ(result.operations(), 22u);
  EXPECT_EQ(result.op(OpKind::kRead).count, 5u);
  EXPECT_EQ(result.op(OpKind::kUpdate).count, 6u);
  EXPECT_EQ(result.op(OpKind::kInsert).count, 2u);
  EXPECT_EQ(result.op(OpKind::kReadModifyWrite).count, 7u);
  EXPECT_EQ(result.op(OpKind::kDelete).count, 2u);
  EXPECT_EQ(result.verify.wrong, 0u);
  ASSERT_TRUE(result.trace.has_value());
  const TraceOutcome& outcome = result.trace->outcome;
  EXPECT_EQ(outcome.reads, 5u);
  EXPECT_EQ(outcome.misses, 2u);
  EXPECT_EQ(outcome.hit_rate(), 0.6);
  EXPECT_EQ(outcome.not_stored, 3u);
  EXPECT_EQ(outcome.not_found, 4u);
  EXPECT_FALSE(result.open_loop.has_value());
  EXPECT_EQ(ExitStatusOf(ReplayConfig(), result), 0);
  ASSERT_EQ(store.map.size(), 3u);
  EXPECT_EQ(store.map["k1"].size(), 50u);
  EXPECT_EQ(store.map["00k2"].size(), 50u);
  EXPECT_EQ(store.map["k5"].size(), 0u);
  EXPECT_EQ(store.ttls["k6"], std::chrono::seconds(0));
}

TEST(TraceReplay, TimesToLiveAreGivenOn) {
  MemoryStore store;
  Replay(ReplayConfig(), "0,a,1,5,1,set,60\n0,b,1,5,1,add,3153600000\n0,c,1,5,1,set,0\n", &store,
         {.path = {}, .speed = 100});
  EXPECT_EQ(store.ttls["a"], std::chrono::seconds(60));
  EXPECT_EQ(store.ttls["b"], std::chrono::seconds(3'153'600'000));
  EXPECT_EQ(store.ttls["c"], std::chrono::seconds(0));
}

TEST(TraceReplay, MissesCanBeFilled) {
  MemoryStore store;
  Config config = ReplayConfig();
  config.trace.fill_on_miss = true;
  const RunResult result =
      Replay(config, "0,a,1,33,1,get,0\n0,a,1,33,1,get,0\n0,b,1,0,1,get,0\n", &store);
  EXPECT_EQ(store.map["a"].size(), 33u);
  EXPECT_EQ(result.trace->outcome.fills, 1u);
  EXPECT_EQ(result.trace->outcome.reads, 3u);
  EXPECT_EQ(result.trace->outcome.misses, 2u);
  EXPECT_EQ(result.op(OpKind::kInsert).count, 1u);
  EXPECT_EQ(result.errors(), 0u);
}

std::string ManyLines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, i / 1000, ",k", i % 500, ",6,", i % 300, ",1,",
                    i % 3 == 0 ? "set" : "get", ",0\n");
  }
  return text;
}

// Each request once, whoever takes it, and values that stay right.
TEST(TraceReplay, ThreadsShareATrace) {
  MemoryStore store;
  Config config = ReplayConfig(3, 8);
  config.connections = 6;
  const RunResult result = Replay(config, ManyLines(30'000), &store);
  EXPECT_EQ(result.operations(), 30'000u);
  EXPECT_EQ(result.op(OpKind::kUpdate).count, 10'000u);
  EXPECT_EQ(result.trace->outcome.reads, 20'000u);
  EXPECT_EQ(result.errors(), 0u);
  EXPECT_EQ(result.verify.checked, 20'000u - result.trace->outcome.misses);
  EXPECT_EQ(result.verify.wrong, 0u);
}

TEST(TraceReplay, ThreadsShareASchedule) {
  MemoryStore store;
  const RunResult result =
      Replay(ReplayConfig(3, 8), ManyLines(3'000), &store, {.path = {}, .speed = 100});
  EXPECT_EQ(result.operations(), 3'000u);
  ASSERT_TRUE(result.open_loop.has_value());
  EXPECT_EQ(result.open_loop->due, 3'000u);
  EXPECT_EQ(result.open_loop->arrival, Arrival::kTrace);
  EXPECT_EQ(result.op(OpKind::kRead).response.count(), 2'000u);
}

// 300 ms of a trace, three times as fast: nothing is submitted early, and the end is when it is
// due, as far as this machine lets it.
TEST(TraceReplay, KeepsTheTimesOfTheTrace) {
  MemoryStore store;
  std::string text;
  for (int i = 0; i <= 30; ++i) absl::StrAppend(&text, 1000 + i * 0.03, ",k,1,5,1,set,0\n");
  const int64_t begin = MonotonicNanos();
  const RunResult result = Replay(ReplayConfig(2, 4), text, &store, {.path = {}, .speed = 3});
  EXPECT_GE(MonotonicNanos() - begin, 300 * kReplayMilli);
  EXPECT_GE(result.seconds, 0.299);
  EXPECT_NEAR(result.open_loop->seconds, 0.3, 0.05);
  EXPECT_NEAR(result.open_loop->target, 103, 20);
  EXPECT_EQ(result.operations(), 31u);
}

// The store does nothing for 100 ms: what was due meanwhile has waited.
TEST(TraceReplay, AStallShowsInTheResponseTime) {
  MemoryStore store;
  std::string text;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&text, i * 0.001, ",k,1,5,1,set,0\n");
  const TraceFile file(text);
  const auto reader = TraceReader::Open({.path = file.path(), .speed = 1});
  ASSERT_TRUE(reader.ok());
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<MemoryBackend>(&store));
  int64_t stalled_at = 0;
  static_cast<MemoryBackend&>(*backends[0]).before_poll = [&] {
    if (store.map.empty() || stalled_at != 0) return;
    stalled_at = MonotonicNanos();
    while (MonotonicNanos() < stalled_at + 100 * kReplayMilli) CpuRelax();
  };
  const RunResult result = RunWorkload(ReplayConfig(1, 4), backends, ByTrace(**reader));
  EXPECT_EQ(result.operations(), 300u);
  // About 100 of the 300 were due meanwhile.
  EXPECT_GT(result.op(OpKind::kUpdate).response.Percentile(90), uint64_t{50} * kReplayMilli);
  EXPECT_GE(result.open_loop->late_most, 0.09);
}

TEST(TraceReplay, EndsEarlyWhereAskedTo) {
  MemoryStore store;
  Config config = ReplayConfig();
  config.duration = std::chrono::milliseconds(100);
  const int64_t begin = MonotonicNanos();
  const RunResult result =
      Replay(config, "0,a,1,5,1,set,0\n1e12,a,1,5,1,set,0\n", &store, {.path = {}, .speed = 0.001});
  EXPECT_LT(MonotonicNanos() - begin, 30'000 * kReplayMilli);
  EXPECT_EQ(result.operations(), 1u);
  EXPECT_TRUE(result.schedule_kept());

  const RunResult strict =
      Replay(ReplayConfig(), "0,a,1,5,1,set,0\nx\n", &store, {.path = {}, .strict = true});
  EXPECT_EQ(strict.operations(), 1u);
  EXPECT_EQ(ExitStatusOf(config, strict), 2);
  EXPECT_TRUE(strict.partial());

  const RunResult nothing = Replay(ReplayConfig(), "x\n", &store);
  EXPECT_EQ(nothing.operations(), 0u);
  EXPECT_EQ(ExitStatusOf(config, nothing), 2);
}

// What cannot be written is an error of that request.
TEST(TraceReplay, OtherFailuresAreErrors) {
  MemoryStore store;
  const TraceFile file("0,a,1,5,1,set,0\n0,a,1,5,1,get,0\n");
  const auto reader = TraceReader::Open({.path = file.path()});
  ASSERT_TRUE(reader.ok());
  class Refusing : public MemoryBackend {
   public:
    using MemoryBackend::MemoryBackend;
    absl::Status SubmitWriteWith(uint32_t, std::string_view, std::string_view,
                                 const WriteOptions&) override {
      return absl::InvalidArgumentError("too large");
    }
  };
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<Refusing>(&store));
  const RunResult result = RunWorkload(ReplayConfig(), backends, ByTrace(**reader));
  EXPECT_EQ(result.op(OpKind::kUpdate).errors, 1u);
  EXPECT_EQ(result.op(OpKind::kRead).errors, 0u);
  EXPECT_EQ(result.trace->outcome.misses, 1u);
}

}  // namespace
}  // namespace verbena::bench
