// What a change costs in the storage, without a network: a PUT beside what no store can do without,
// two threads beside one, and PUTs while the index grows. Both sides of a ratio are measured in
// turns, a few milliseconds each, so that what else happens on the machine meets both alike; judged
// is the median of the rounds.
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/baseline/baseline_keys.h"
#include "bench/commands.h"
#include "bench/load/interrupt.h"
#include "bench/measure/histogram.h"
#include "bench/measure/ratio.h"
#include "bench/measure/statistics.h"
#include "bench/measure/ticks.h"
#include "bench/workload/random.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/shared_memory.h"
#include "common/base/sizes.h"
#include "common/layout/item.h"
#include "server/storage/store.h"

namespace verbena::bench {
namespace {

constexpr size_t kTurns = 8;  // of each side in a round
constexpr size_t kPutsOfATurn = 5000;
constexpr size_t kPutsOfAThread = 100'000;
// Beside splits: keys at the beginning, and what is put over them.
constexpr uint64_t kFewRecords = 100'000;
constexpr size_t kPutsBesideSplits = 1'000'000;
constexpr uint32_t kMostMeasuredBesideSplits = 5;

// Of this thread, so that others may have the processor meanwhile.
double ProcessorNanos() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

absl::StatusOr<std::unique_ptr<storage::Store>> FilledStore(const Config& config,
                                                            uint64_t region_bytes) {
  storage::RegionOptions region_options;
  region_options.name = "verbena-bench-storage";
  region_options.size = region_bytes;
  VERBENA_ASSIGN_OR_RETURN(storage::Region region, storage::Region::Create(region_options));
  storage::StoreOptions options;
  options.workers = 2;
  options.max_value_size = layout::kMaxValueSize;
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<storage::Store> store,
                           storage::Store::Create(std::move(region), options));
  const std::vector<uint8_t> value(config.value_size, 'v');
  for (uint64_t i = 0; i < config.records; ++i) {
    VERBENA_RETURN_IF_ERROR(store->Put(0, config.key_names().Name(i), value).status());
  }
  return store;
}

// What no store can do without: one cache miss (a word of the old item, whose version the new one
// must exceed), XXH3 over the item's bytes and a copy of them. Each place holds the number of the
// next one, in one cycle through as many places as there are records, in random order: so the miss
// counts whole, and none is hidden behind the one before. The memory is of the kind that a region
// is made of, and as much.
class CopyAndHash {
 public:
  static absl::StatusOr<CopyAndHash> Create(const Config& config) {
    CopyAndHash made(config);
    VERBENA_ASSIGN_OR_RETURN(made.memory_, SharedMemory::Create("verbena-bench-places",
                                                                config.records * made.place_size_,
                                                                /*want_huge=*/true));
    std::vector<uint64_t> order(config.records);
    std::iota(order.begin(), order.end(), 0);
    Random random(config.seed);
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
    std::memset(made.memory_.data(), 1, made.memory_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const uint64_t next = order[(i + 1) % order.size()];
      std::memcpy(made.Place(order[i]) + kVersion, &next, sizeof(next));
    }
    return made;
  }

  void Put(std::string_view key) {
    uint8_t* const place = Place(next_);
    std::memcpy(&next_, place + kVersion, sizeof(next_));
    std::memcpy(item_.data() + kVersion, &next_, sizeof(next_));
    std::memcpy(item_.data() + sizeof(layout::ItemHeader), key.data(), key.size());
    const uint64_t hash = XXH3_64bits(item_.data() + kVersion, item_.size() - kVersion);
    std::memcpy(item_.data(), &hash, sizeof(hash));
    std::memcpy(place, item_.data(), item_.size());
    asm volatile("" : : : "memory");
  }

 private:
  // The header's second word.
  static constexpr size_t kVersion = 8;

  explicit CopyAndHash(const Config& config)
      : item_(layout::ItemSize(config.key_names().typical_size(), config.value_size), 2),
        place_size_(layout::BlockSize(layout::SizeClassFor(item_.size()))) {}

  uint8_t* Place(uint64_t number) const { return memory_.data() + number * place_size_; }

  std::vector<uint8_t> item_;
  uint64_t place_size_;
  SharedMemory memory_;
  uint64_t next_ = 0;
};

class StorageRatios {
 public:
  // Whether all limits are kept.
  static absl::StatusOr<bool> Measure(const Config& config) {
    StorageRatios ratios(config);
    VERBENA_ASSIGN_OR_RETURN(ratios.store_, FilledStore(config, ratios.RegionBytes()));
    VERBENA_ASSIGN_OR_RETURN(CopyAndHash needed, CopyAndHash::Create(config));
    uint32_t done = 0;
    for (; done <= config.rounds && !Interrupted(); ++done) {
      if (done == 1) ratios.ForgetRounds();  // the first one is to warm up
      VERBENA_RETURN_IF_ERROR(ratios.Put(done, needed));
      VERBENA_RETURN_IF_ERROR(ratios.Threads(done));
    }
    if (done < 2) return absl::CancelledError("interrupted before the first round");
    ratios.store_.reset();
    for (uint32_t i = 0; i < std::min(config.rounds, kMostMeasuredBesideSplits); ++i) {
      if (i > 0 && Interrupted()) break;
      VERBENA_RETURN_IF_ERROR(ratios.BesideSplits(i));
    }
    return ratios.Print();
  }

 private:
  explicit StorageRatios(const Config& config) : config_(config), value_(config.value_size, 'w') {}

  // Items, index, and pages that are begun.
  uint64_t RegionBytes() const {
    const uint64_t item =
        layout::ItemSize(config_.key_names().typical_size(), config_.value_size) + 64;
    return config_.records * item * 5 / 4 + 64 * kMiB;
  }

  void ForgetRounds() {
    for (std::vector<double>* rounds : {&put_, &put_ns_, &needed_ns_, &threads_, &one_, &two_}) {
      rounds->clear();
    }
  }

  // Processor time of PUTs of one thread over present keys, chosen at random, and of what they
  // need.
  absl::Status Put(uint32_t number, CopyAndHash& needed) {
    double put = 0;
    double base = 0;
    const KeySequence keys(config_, kTurns * kPutsOfATurn, config_.seed + number);
    absl::Status failure;
    const auto turn_of_puts = [&](size_t first) {
      const double begin = ProcessorNanos();
      for (size_t i = first; i < first + kPutsOfATurn; ++i) {
        const auto result = store_->Put(0, keys[i], value_);
        if (!result.ok()) failure = result.status();
      }
      put += ProcessorNanos() - begin;
    };
    const auto turn_of_needed = [&](size_t first) {
      const double begin = ProcessorNanos();
      for (size_t i = first; i < first + kPutsOfATurn; ++i) needed.Put(keys[i]);
      base += ProcessorNanos() - begin;
    };
    for (size_t turn = 0; turn < kTurns; ++turn) {
      const size_t first = turn * kPutsOfATurn;
      const bool puts_first = (number + turn) % 2 == 0;
      if (puts_first) turn_of_puts(first);
      turn_of_needed(first);
      if (!puts_first) turn_of_puts(first);
    }
    VERBENA_RETURN_IF_ERROR(failure);
    put_.push_back(put / base);
    put_ns_.push_back(put / (kTurns * kPutsOfATurn));
    needed_ns_.push_back(base / (kTurns * kPutsOfATurn));
    return absl::OkStatus();
  }

  // Millions of PUTs a second of the first `count` threads at once.
  absl::StatusOr<double> Rate(const std::vector<KeySequence>& keys, size_t count) {
    std::vector<absl::Status> outcomes(count);
    const int64_t begin = MonotonicNanos();
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
          for (size_t j = 0; j < keys[i].size(); ++j) {
            const auto result = store_->Put(static_cast<int>(i), keys[i][j], value_);
            if (!result.ok()) outcomes[i] = result.status();
          }
        });
      }
    }
    const auto nanos = static_cast<double>(MonotonicNanos() - begin);
    for (const absl::Status& outcome : outcomes) VERBENA_RETURN_IF_ERROR(outcome);
    return static_cast<double>(count * kPutsOfAThread) * 1e3 / nanos;
  }

  absl::Status Threads(uint32_t number) {
    std::vector<KeySequence> keys;
    for (uint64_t i = 0; i < 2; ++i) {
      keys.emplace_back(config_, kPutsOfAThread, config_.seed + (i + 1) * 1'000'000 + number);
    }
    std::array<double, 2> rates{};
    for (size_t i = 0; i < 2; ++i) {
      const size_t threads = (number + i) % 2;  // less 1
      VERBENA_ASSIGN_OR_RETURN(rates[threads], Rate(keys, threads + 1));
    }
    threads_.push_back(rates[1] / rates[0]);
    one_.push_back(rates[0]);
    two_.push_back(rates[1]);
    return absl::OkStatus();
  }

  // What other writers wait while segments of the index are split: latencies of PUTs over present
  // keys beside a thread that puts new ones all the time. Both take a processor each: where there
  // are fewer, what is measured is the scheduler.
  absl::Status BesideSplits(uint32_t number) {
    Config few = config_;
    few.records = std::min(config_.records, kFewRecords);
    VERBENA_ASSIGN_OR_RETURN(const std::unique_ptr<storage::Store> store,
                             FilledStore(few, 512 * kMiB));
    const uint64_t splits = store->Stats().splits;
    std::atomic<bool> stop{false};
    std::jthread grower([&] {
      const KeyNames names = few.key_names();
      for (uint64_t i = few.records; !stop.load(std::memory_order_relaxed); ++i) {
        if (!store->Put(1, names.Name(i), value_).ok()) return;  // full: as many as there can be
      }
    });
    const KeySequence keys(few, 1 << 16, config_.seed + number);
    const TickClock clock;
    Histogram latencies;
    absl::Status failure;
    for (size_t i = 0; i < kPutsBesideSplits; ++i) {
      const int64_t begin = clock.Now();
      const auto result = store->Put(0, keys[i & 0xffff], value_);
      latencies.Record(clock.Nanos(begin, clock.Now()));
      if (!result.ok()) failure = result.status();
    }
    stop = true;
    grower.join();
    VERBENA_RETURN_IF_ERROR(failure);
    splits_.push_back(static_cast<double>(store->Stats().splits - splits));
    p999_us_.push_back(static_cast<double>(latencies.Percentile(99.9)) / 1e3);
    longest_us_.push_back(static_cast<double>(latencies.max()) / 1e3);
    return absl::OkStatus();
  }

  bool Print() const {
    std::printf("%llu records of %u bytes, %zu rounds\n",
                static_cast<unsigned long long>(config_.records), config_.value_size, put_.size());
    PrintRatio("  a PUT, ns", SpreadOf(put_ns_), Bound::kNone, 0);
    PrintRatio("  copy, hash and one cache miss, ns", SpreadOf(needed_ns_), Bound::kNone, 0);
    bool met =
        PrintRatio("PUT / copy, hash and one cache miss", SpreadOf(put_), Bound::kAtMost, 2.5);
    PrintRatio("  PUTs of one thread, million/s", SpreadOf(one_), Bound::kNone, 0);
    PrintRatio("  PUTs of two threads, million/s", SpreadOf(two_), Bound::kNone, 0);
    met =
        PrintRatio("PUTs of two threads / of one", SpreadOf(threads_), Bound::kAtLeast, 1.7) && met;
    PrintRatio("  splits beside a million PUTs", SpreadOf(splits_), Bound::kNone, 0);
    PrintRatio("  the longest of these PUTs, us", SpreadOf(longest_us_), Bound::kNone, 0);
    return PrintRatio("PUT beside splits, p99.9, us", SpreadOf(p999_us_), Bound::kAtMost, 1000) &&
           met;
  }

  const Config& config_;
  const std::vector<uint8_t> value_;
  std::unique_ptr<storage::Store> store_;
  // One for each round.
  std::vector<double> put_, put_ns_, needed_ns_;
  std::vector<double> threads_, one_, two_;
  std::vector<double> p999_us_, longest_us_, splits_;
};

}  // namespace

int MeasureStorageRatios(const Config& config) {
  const absl::StatusOr<bool> met = StorageRatios::Measure(config);
  if (!met.ok()) {
    std::fprintf(stderr, "verbena-bench: %s\n", met.status().ToString().c_str());
    return kExitConnection;
  }
  return *met ? kExitOk : kExitWrong;
}

}  // namespace verbena::bench
