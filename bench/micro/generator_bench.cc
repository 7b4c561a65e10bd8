// The load generator: its pieces, and all that it does for an operation.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/load/runner.h"
#include "bench/load/schedule.h"
#include "bench/measure/histogram.h"
#include "bench/measure/ticks.h"
#include "bench/micro/micro_bench.h"
#include "bench/systems/backend.h"
#include "bench/workload/value.h"
#include "bench/workload/workload.h"

namespace verbena::bench {
namespace {

void BM_FillValue(benchmark::State& state) {
  std::vector<char> value(kValueSize);
  uint64_t stamp = 0;
  for (auto _ : state) {
    FillValue("user6284781860667377211", stamp++, value);
    benchmark::DoNotOptimize(value.data());
  }
}
BENCHMARK(BM_FillValue);

void BM_VerifyValue(benchmark::State& state) {
  std::string value(kValueSize, '\0');
  FillValue("user6284781860667377211", 1, value);
  for (auto _ : state) {
    benchmark::DoNotOptimize(VerifyValue("user6284781860667377211", value));
  }
}
BENCHMARK(BM_VerifyValue);

void BM_OperationSource(benchmark::State& state) {
  InsertSequence inserts(kRecords);
  OperationSource source(*FindWorkload("b"),
                         state.range(0) == 0 ? Distribution::kZipfian : Distribution::kUniform,
                         {.first = 0, .count = kRecords}, 1, &inserts);
  for (auto _ : state) benchmark::DoNotOptimize(source.Next());
}
BENCHMARK(BM_OperationSource)->Arg(0)->Arg(1);

void BM_KeyName(benchmark::State& state) {
  const KeyNames names(static_cast<size_t>(state.range(0)));
  char buffer[64];
  uint64_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(names.Write(i++ % kRecords, buffer));
}
BENCHMARK(BM_KeyName)->Arg(0)->Arg(16);

void BM_Clock(benchmark::State& state) {
  const TickClock clock;
  for (auto _ : state) benchmark::DoNotOptimize(clock.Now());
}
BENCHMARK(BM_Clock);

void BM_HistogramRecord(benchmark::State& state) {
  Histogram histogram;
  Random random(1);
  for (auto _ : state) histogram.Record(300 + (random.Next() & 1023));
}
BENCHMARK(BM_HistogramRecord);

// Answers everything at the next poll with the same value.
class NullBackend : public Backend {
 public:
  absl::Status SubmitRead(uint32_t slot, std::string_view) override {
    pending_.push_back(slot);
    return absl::OkStatus();
  }
  absl::Status SubmitWrite(uint32_t slot, std::string_view, std::string_view) override {
    pending_.push_back(slot | kWrite);
    return absl::OkStatus();
  }
  int Poll() override {
    batch_.swap(pending_);
    for (const uint32_t entry : batch_) {
      if ((entry & kWrite) != 0) {
        sink_->OnWrite(entry & ~kWrite, absl::OkStatus());
      } else {
        sink_->OnRead(entry, absl::OkStatus(), value_);
      }
    }
    const auto finished = static_cast<int>(batch_.size());
    batch_.clear();
    return finished;
  }
  int Wait(std::chrono::nanoseconds) override { return Poll(); }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  static constexpr uint32_t kWrite = 1U << 31;
  const std::string value_ = std::string(kValueSize, 'v');
  std::vector<uint32_t> pending_;
  std::vector<uint32_t> batch_;
};

// All that the generator itself does for an operation: it must never be what is measured.
void BM_GeneratorPerOperation(benchmark::State& state) {
  Config config = SomeConfig();
  config.operations = 1'000'000;
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<NullBackend>());
  while (state.KeepRunningBatch(static_cast<int64_t>(config.operations))) {
    const RunResult result = RunWorkload(config, backends, {});
    benchmark::DoNotOptimize(result.seconds);
  }
}
BENCHMARK(BM_GeneratorPerOperation)->MeasureProcessCPUTime();

// The same in an open loop that is always behind its schedule.
void BM_GeneratorOpenLoop(benchmark::State& state) {
  Config config = SomeConfig();
  config.operations = 1'000'000;
  config.poll = std::chrono::microseconds(100);
  config.load.rate = 1e7;
  config.load.arrival = state.range(0) == 0 ? Arrival::kFixed : Arrival::kPoisson;
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<NullBackend>());
  while (state.KeepRunningBatch(static_cast<int64_t>(config.operations))) {
    const RunResult result = RunWorkload(config, backends, {});
    benchmark::DoNotOptimize(result.seconds);
  }
}
BENCHMARK(BM_GeneratorOpenLoop)->Arg(0)->Arg(1)->MeasureProcessCPUTime();

}  // namespace
}  // namespace verbena::bench
