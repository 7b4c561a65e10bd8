// The software device: READs and SENDs without a store.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "bench/baseline/raw_side.h"
#include "bench/workload/random.h"

namespace verbena::bench {
namespace {

std::unique_ptr<RawSide> SoftSide(benchmark::State& state) {
  RawInitiatorOptions options;
  options.fabric = "soft";
  options.depth = 16;
  options.block_size = 160;
  options.request_size = 176;
  options.response_size = 48;
  auto side = RawSide::Start("127.0.0.1:0", 64 << 20, options);
  if (!side.ok()) {
    state.SkipWithError(side.status().ToString().c_str());
    return nullptr;
  }
  return *std::move(side);
}

std::vector<uint64_t> RandomOffsets() {
  Random random(1);
  std::vector<uint64_t> offsets(10'000);
  for (uint64_t& offset : offsets) offset = random.Below((64 << 20) / 160) * 160;
  return offsets;
}

void BM_SoftRead(benchmark::State& state) {
  const auto side = SoftSide(state);
  if (side == nullptr) return;
  const std::vector<uint64_t> offsets = RandomOffsets();
  std::vector<uint32_t> nanos(offsets.size());
  while (state.KeepRunningBatch(static_cast<int64_t>(offsets.size()))) {
    if (!side->initiator().ReadOneByOne(offsets, 0, nanos).ok()) state.SkipWithError("failed");
  }
}
BENCHMARK(BM_SoftRead);

void BM_SoftReadPipelined(benchmark::State& state) {
  const auto side = SoftSide(state);
  if (side == nullptr) return;
  const std::vector<uint64_t> offsets = RandomOffsets();
  while (state.KeepRunningBatch(static_cast<int64_t>(offsets.size()))) {
    if (!side->initiator().ReadPipelined(offsets).ok()) state.SkipWithError("failed");
  }
}
BENCHMARK(BM_SoftReadPipelined);

void BM_SoftSendPingPong(benchmark::State& state) {
  const auto side = SoftSide(state);
  if (side == nullptr) return;
  std::vector<uint32_t> nanos(1000);
  while (state.KeepRunningBatch(static_cast<int64_t>(nanos.size()))) {
    if (!side->initiator().PingPong(0, nanos).ok()) state.SkipWithError("failed");
  }
}
BENCHMARK(BM_SoftSendPingPong)->UseRealTime();

}  // namespace
}  // namespace verbena::bench
