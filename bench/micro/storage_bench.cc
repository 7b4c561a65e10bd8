// The server's storage in this process, without a network.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/baseline/baseline_keys.h"
#include "bench/micro/micro_bench.h"
#include "common/base/clock.h"
#include "server/storage/expiry.h"
#include "server/storage/index.h"
#include "server/storage/store.h"

namespace verbena::bench {
namespace {

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

// Puts what it deletes back, outside of the time.
void BM_StorageDelete(benchmark::State& state) {
  constexpr size_t kBatch = 1024;
  const auto store = FilledStore();
  if (store == nullptr) return state.SkipWithError("no store");
  const KeyNames names(0);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kRecords; ++i) keys.push_back(names.Name(i));
  const std::vector<uint8_t> value(kValueSize, 'w');
  size_t first = 0;
  while (state.KeepRunningBatch(kBatch)) {
    for (size_t i = 0; i < kBatch; ++i) {
      benchmark::DoNotOptimize(store->Delete(0, keys[(first + i) % kRecords]));
    }
    state.PauseTiming();
    for (size_t i = 0; i < kBatch; ++i) {
      if (!store->Put(0, keys[(first + i) % kRecords], value).ok()) {
        return state.SkipWithError("no room");
      }
    }
    first = (first + kBatch) % kRecords;
    state.ResumeTiming();
  }
}
BENCHMARK(BM_StorageDelete);

// A PUT of a new key that has to split a segment first: each iteration puts new keys until there
// was one, and only that PUT is timed.
void BM_StorageSplit(benchmark::State& state) {
  constexpr uint64_t kMostKeys = 1'000'000;
  const KeyNames names(0);
  const std::vector<uint8_t> value(8, 'v');
  std::unique_ptr<storage::Store> store;
  uint64_t next = kMostKeys;
  for (auto _ : state) {
    for (bool split = false; !split; ++next) {
      if (next == kMostKeys) {
        store = EmptyStore({}, 256 << 20);
        if (store == nullptr) return state.SkipWithError("no store");
        next = 0;
      }
      const std::string key = names.Name(next);
      const uint64_t splits = store->index().Usage().splits;
      const int64_t begin = MonotonicNanos();
      if (!store->Put(0, key, value).ok()) return state.SkipWithError("no room");
      const int64_t end = MonotonicNanos();
      split = store->index().Usage().splits != splits;
      if (split) state.SetIterationTime(static_cast<double>(end - begin) * 1e-9);
    }
  }
}
BENCHMARK(BM_StorageSplit)->UseManualTime();

}  // namespace
}  // namespace verbena::bench
