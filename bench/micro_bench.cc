// Microbenchmarks of the pieces that a GET or a PUT is made of, and of the generator itself.
// Run: verbena-micro-bench [--benchmark_filter=REGEX]
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/baseline/baseline_keys.h"
#include "bench/baseline/baseline_storage.h"
#include "bench/baseline/raw_side.h"
#include "bench/config.h"
#include "bench/load/runner.h"
#include "bench/measure/histogram.h"
#include "bench/measure/ticks.h"
#include "bench/systems/backend.h"
#include "bench/workload/value.h"
#include "bench/workload/workload.h"
#include "common/base/clock.h"
#include "common/layout/bucket.h"
#include "common/layout/item.h"
#include "common/layout/slot_match.h"
#include "common/wire/messages.h"
#include "server/storage/expiry.h"
#include "server/storage/index.h"
#include "server/storage/store.h"

namespace verbena::bench {
namespace {

constexpr uint64_t kRecords = 100'000;
constexpr size_t kValueSize = 100;
// As a client has it.
const layout::SeededXxh3 kSeed(1);

Config SomeConfig() {
  Config config;
  config.workload = *FindWorkload("b");
  config.records = kRecords;
  config.value_size = kValueSize;
  config.depth = 16;
  return config;
}

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

void BM_EncodePut(benchmark::State& state) {
  alignas(8) uint8_t buffer[1024];
  const std::string key(23, 'k');
  const std::string value(kValueSize, 'v');
  for (auto _ : state) {
    wire::RequestWriter writer(buffer);
    wire::OperationHeader header{};
    header.sequence = 1;
    header.code = static_cast<uint8_t>(wire::OpCode::kPut);
    writer.Add(header, key, value);
    writer.Finish(0, 0);
    benchmark::DoNotOptimize(buffer);
  }
}
BENCHMARK(BM_EncodePut);

void BM_DecodePut(benchmark::State& state) {
  alignas(8) uint8_t buffer[1024];
  wire::RequestWriter writer(buffer);
  wire::OperationHeader header{};
  header.sequence = 1;
  header.code = static_cast<uint8_t>(wire::OpCode::kPut);
  writer.Add(header, std::string(23, 'k'), std::string(kValueSize, 'v'));
  writer.Finish(0, 0);
  for (auto _ : state) {
    auto reader = wire::RequestReader::Open({buffer, writer.size()});
    auto operation = reader->Next();
    if (!operation.ok()) state.SkipWithError("not decoded");
    benchmark::DoNotOptimize(operation);
  }
}
BENCHMARK(BM_DecodePut);

std::unique_ptr<storage::Store> EmptyStore(const storage::StoreOptions& options,
                                           uint64_t region_size) {
  storage::RegionOptions region_options;
  region_options.size = region_size;
  auto region = storage::Region::Create(region_options);
  if (!region.ok()) return nullptr;
  auto store = storage::Store::Create(*std::move(region), options);
  return store.ok() ? *std::move(store) : nullptr;
}

std::unique_ptr<storage::Store> FilledStore(const storage::StoreOptions& options,
                                            uint64_t region_size) {
  auto store = EmptyStore(options, region_size);
  if (store == nullptr) return nullptr;
  const std::vector<uint8_t> value(kValueSize, 'v');
  for (uint64_t i = 0; i < kRecords; ++i) {
    if (!store->Put(0, KeyNames(0).Name(i), value).ok()) return nullptr;
  }
  return store;
}

std::unique_ptr<storage::Store> FilledStore(int workers = 1, uint64_t region_size = 128 << 20) {
  storage::StoreOptions options;
  options.workers = workers;
  return FilledStore(options, region_size);
}

// Random keys: what it costs when the memory is not in the cache.
void BM_StoragePut(benchmark::State& state) {
  const auto store = FilledStore();
  const KeySequence keys(SomeConfig(), 1 << 16, 1);
  const std::vector<uint8_t> value(kValueSize, 'w');
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store->Put(0, keys[i++ & 0xffff], value));
  }
}
BENCHMARK(BM_StoragePut);

// One append to a value of so many bytes, which the worker copies and hashes in one go: what others
// of the worker wait for it.
void BM_StorageAppendToLarge(benchmark::State& state) {
  storage::StoreOptions options;
  options.max_value_size = static_cast<uint64_t>(state.range(0)) + (64 << 20);
  const auto store =
      EmptyStore(options, (uint64_t{256} << 20) + 4 * static_cast<uint64_t>(state.range(0)));
  if (store == nullptr) return state.SkipWithError("no store");
  const std::vector<uint8_t> value(static_cast<size_t>(state.range(0)), 'v');
  const std::vector<uint8_t> suffix(kValueSize, 's');
  if (!store->Put(0, "key", value).ok()) return state.SkipWithError("no room");
  for (auto _ : state) {
    if (!store->Append(0, "key", suffix).ok()) return state.SkipWithError("no room");
  }
}
BENCHMARK(BM_StorageAppendToLarge)->Arg(1 << 20)->Arg(64 << 20)->Arg(256 << 20)->UseRealTime();

// A virtual hour of the maintenance thread's work where so many keys are due evenly over it: each
// look that the wheels ask for, and the removal of what is due then. The counters: its processor
// time as a share of a core, how many looks those were (each wakes the thread), and what the times
// take outside the region.
void BM_ExpiryOverAnHour(benchmark::State& state) {
  constexpr int64_t kHour = 3'600'000'000'000;  // ns
  const auto keys = static_cast<uint64_t>(state.range(0));
  const KeyNames names(0);
  const std::vector<uint8_t> value(kValueSize, 'v');
  uint64_t looks = 0;
  double bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto store = EmptyStore({}, keys * 256 + (64 << 20));
    if (store == nullptr) return state.SkipWithError("no store");
    const int64_t start = MonotonicNanos() + kHour;  // filling it takes less than that
    for (uint64_t i = 0; i < keys; ++i) {
      storage::PutOptions options;
      options.due_ns = start + static_cast<int64_t>(i) * (kHour / static_cast<int64_t>(keys));
      if (!store->Put(0, names.Name(i), value, options).ok()) {
        return state.SkipWithError("no room");
      }
    }
    bytes = static_cast<double>(store->Stats().expiry_memory) / static_cast<double>(keys);
    looks = 0;
    state.ResumeTiming();
    constexpr size_t kPiece = 256;
    for (int64_t now = start; !store->expiry().empty(); ++looks) {
      if (store->RemoveDue(store->maintenance_worker(), now, kPiece) == kPiece) continue;
      now = store->expiry().NextLook(now);
    }
    state.PauseTiming();
    if (store->Stats().items != 0) return state.SkipWithError("items are left");
    state.ResumeTiming();
  }
  state.counters["looks"] = static_cast<double>(looks);
  state.counters["bytes_per_key"] = bytes;
  // 36 s for each iteration would be 1 %.
  using Counter = benchmark::Counter;
  state.counters["percent_of_core"] =
      Counter(36, Counter::kIsIterationInvariantRate | Counter::kInvert);
}
BENCHMARK(BM_ExpiryOverAnHour)
    ->Arg(900'000)
    ->Arg(1'000'000)
    ->Arg(1'060'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// What a worker does with a client's report of 64 reads, the message itself left out.
void BM_StorageReportOf64Reads(benchmark::State& state) {
  constexpr size_t kReads = 64;
  storage::StoreOptions options;
  options.evict = true;
  const auto store = FilledStore(options, 128 << 20);
  const KeySequence keys(SomeConfig(), 1 << 16, 1);
  std::vector<layout::KeyHash> hashes;
  for (size_t i = 0; i < 1 << 16; ++i) hashes.push_back(store->index().Hash(keys[i]));
  size_t next = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < kReads; ++i) store->Touch(hashes[next + i]);
    next = (next + kReads) & 0xffff;
  }
}
BENCHMARK(BM_StorageReportOf64Reads);

void BM_StorageGet(benchmark::State& state) {
  const auto store = FilledStore();
  const KeySequence keys(SomeConfig(), 1 << 16, 1);
  std::vector<uint8_t> out(kValueSize);
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store->Get(0, keys[i++ & 0xffff], std::span<uint8_t>(out)));
  }
}
BENCHMARK(BM_StorageGet);

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

}  // namespace
}  // namespace verbena::bench

BENCHMARK_MAIN();
