// What a client does with what it has READ: hashes, bucket matches, item checks.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/layout/bucket.h"
#include "common/layout/item.h"
#include "common/layout/slot_match.h"

namespace verbena::bench {
namespace {

// As a client has it.
const layout::SeededXxh3 kSeed(1);

void BM_KeyHash(benchmark::State& state) {
  const std::string key(static_cast<size_t>(state.range(0)), 'k');
  for (auto _ : state) benchmark::DoNotOptimize(layout::KeyHash::Of(key, kSeed).bits);
}
BENCHMARK(BM_KeyHash)->Arg(16)->Arg(23)->Arg(100);

// What a client does with a block that it has READ.
void BM_JudgeItem(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  const std::string key = "user6284781860667377211";
  const std::string value(size, 'v');
  std::vector<uint8_t> block(layout::ItemSize(key.size(), size));
  layout::ItemHeader header{0, 1, static_cast<uint32_t>(size), static_cast<uint16_t>(key.size()),
                            0};
  std::memcpy(block.data() + sizeof(header), key.data(), key.size());
  std::memcpy(block.data() + sizeof(header) + key.size(), value.data(), size);
  header.check = layout::CombineChecks(
      layout::HeaderCheck(header, 4096, kSeed),
      layout::BodyCheck(block.data() + sizeof(header), block.size() - sizeof(header), kSeed));
  std::memcpy(block.data(), &header, sizeof(header));
  for (auto _ : state) {
    uint64_t item_size;
    const auto verdict =
        layout::JudgeItem(block.data(), block.size(), 4096, key, kSeed, &item_size);
    if (verdict != layout::ItemState::kAccepted) state.SkipWithError("not accepted");
    benchmark::DoNotOptimize(verdict);
  }
}
BENCHMARK(BM_JudgeItem)->Arg(100)->Arg(1000)->Arg(4096);

void BM_MatchSlots(benchmark::State& state) {
  layout::Bucket bucket{};
  uint32_t fingerprint = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bucket);
    benchmark::DoNotOptimize(layout::MatchSlots(bucket, fingerprint++ & 4095));
  }
}
BENCHMARK(BM_MatchSlots);

}  // namespace
}  // namespace verbena::bench
