// A store that is loaded full with items of one mix of sizes and then, again and again, has them
// replaced by those of another: most of the slice holds live items whenever "out of memory" is
// said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/workload/random.h"
#include "bench/workload/size_models.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "common/layout/item.h"
#include "server/storage/allocator.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

using bench::SizeModel;
constexpr std::array<SizeModel, 3> kModels = {SizeModel::kEtc, SizeModel::kKvCache,
                                              SizeModel::kCdn};

#if defined(VERBENA_FULL_TESTS)
constexpr int kRounds = 50;
constexpr uint64_t kSliceSize = 256 * kMiB;
#elif defined(VERBENA_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 3;
constexpr uint64_t kSliceSize = 64 * kMiB;
#else
constexpr int kRounds = 3;
constexpr uint64_t kSliceSize = 64 * kMiB;
#endif
// The promise.
constexpr double kLeastLive = 0.8;
// A mix is replaced by the next one in so many steps, each of which ends with the slice full.
constexpr size_t kSteps = 10;

class SizeMixesTest : public testing::Test {
 protected:
  struct Figures {
    double least_live = 1;
    uint64_t refused = 0;
  };

  void SetUp() override {
    ASSERT_NE(store_, nullptr);
    pattern_.resize(8 * kMiB);
    for (char& c : pattern_) c = static_cast<char>(random_.Next());
  }

  // The key of item `number`, of some size: unique, since the number stands in front.
  static std::string KeyOf(uint64_t number, uint32_t size) {
    std::string key = absl::StrCat(absl::Hex(number), ".");
    if (key.size() < size) key.resize(size, 'k');
    return key;
  }

  double Live() const {
    const StoreStats stats = store_->Stats();
    return static_cast<double>(stats.live_bytes + stats.items * sizeof(layout::ItemHeader)) /
           static_cast<double>(stats.slice_bytes);
  }

  // Puts items until one is refused.
  void Fill(SizeModel model) {
    for (;;) {
      std::string key = KeyOf(next_++, bench::KeySize(model, random_.NextDouble()));
      const uint32_t size = bench::ValueSize(model, random_.NextDouble());
      const std::string_view value = std::string_view(pattern_).substr(next_ % 4096, size);
      const absl::StatusOr<PutResult> put = store_->Put(0, key, AsBytes(value));
      if (put.ok()) {
        keys_.push_back(std::move(key));
        continue;
      }
      ASSERT_EQ(put.status().code(), absl::StatusCode::kResourceExhausted) << put.status();
      Figures& figures = figures_[model];
      ++figures.refused;
      if (const double live = Live(); live < figures.least_live) {
        figures.least_live = live;
        ASSERT_GE(live, kLeastLive) << "with " << bench::SizeModelName(model) << ", round "
                                    << round_ << ": " << put.status();
      }
      return;
    }
  }

  // Deletes `count` of the keys ahead of `end`, anywhere among them.
  void DeleteSome(size_t count, size_t& end) {
    for (; count > 0 && end > 0; --count) {
      std::swap(keys_[random_.Below(end)], keys_[end - 1]);
      ASSERT_TRUE(store_->Delete(0, keys_[end - 1])->existed);
      // The new ones lie behind; the order among them does not matter.
      std::swap(keys_[end - 1], keys_.back());
      keys_.pop_back();
      --end;
    }
  }

  void Replace(SizeModel model) {
    size_t old = keys_.size();
    const size_t at_once = old / kSteps + 1;
    while (old > 0 && !HasFatalFailure()) {
      DeleteSome(at_once, old);
      Fill(model);
    }
  }

  bench::Random random_{1};
  std::unique_ptr<Store> store_ = MakeStore(kSliceSize);
  std::string pattern_;
  std::vector<std::string> keys_;
  uint64_t next_ = 0;
  int round_ = 0;
  std::map<SizeModel, Figures> figures_;
};

TEST_F(SizeMixesTest, MostOfTheSliceIsLiveWhenMemoryIsOut) {
  Fill(kModels[0]);
  for (round_ = 1; round_ <= kRounds && !HasFatalFailure(); ++round_) {
    const int64_t begin = MonotonicNanos();
    const SizeModel model = kModels[static_cast<size_t>(round_) % 3];
    Replace(model);
    ASSERT_TRUE(store_->allocator().Validate().ok()) << store_->allocator().Validate();
    const CompactionCounters c = store_->Stats().compaction;
    std::printf(
        "round %d, %s: live %.3f of the slice for the least, %zu items, %.2f s; moved %.0f MiB, "
        "%llu windows emptied, %llu given up\n",
        round_, bench::SizeModelName(model), figures_[model].least_live, keys_.size(),
        static_cast<double>(MonotonicNanos() - begin) / 1e9,
        static_cast<double>(c.bytes_moved) / kMiB,
        static_cast<unsigned long long>(c.windows_emptied),
        static_cast<unsigned long long>(c.given_up));
  }
  ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  for (const SizeModel model : kModels) {
    const Figures& figures = figures_[model];
    EXPECT_GT(figures.refused, 0u);
    RecordProperty(absl::StrCat("least_live_", bench::SizeModelName(model)),
                   absl::StrCat(figures.least_live));
  }
  EXPECT_GT(store_->Stats().compaction.windows_emptied, 0u);
  size_t left = keys_.size();
  DeleteSome(left, left);
  store_->allocator().FlushCaches();
  ASSERT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  const StoreStats stats = store_->Stats();
  EXPECT_EQ(stats.block_bytes, 0u);
  EXPECT_EQ(stats.free_pages, stats.heap_pages - stats.segment_pages);
}

// The part of a slice that holds live items when it is full with values of these sizes, put in
// turn.
double LiveWithValuesOf(const std::vector<uint64_t>& sizes) {
  const std::unique_ptr<Store> store = MakeStore(kSliceSize);
  if (store == nullptr) return 0;
  const std::string value(*std::max_element(sizes.begin(), sizes.end()), 'v');
  uint64_t next = 0;
  for (const uint64_t size : sizes) {
    // To the end with each, so that what one leaves over is there for the next.
    while (store->Put(0, absl::StrCat(next), AsBytes(std::string_view(value).substr(0, size))).ok())
      ++next;
  }
  const StoreStats stats = store->Stats();
  return static_cast<double>(stats.live_bytes + stats.items * sizeof(layout::ItemHeader)) /
         static_cast<double>(stats.slice_bytes);
}

// A value over 512 KiB begins a page of its own, whose rest is for others: where there are none it
// stays empty, which is as docs/operations.md says.
TEST(LargeSizesTest, ThePromiseIsForMixes) {
  for (const uint64_t kib : {513u, 600u, 700u, 830u, 1000u, 1100u, 1500u, 2500u, 4100u}) {
    const double alone = LiveWithValuesOf({kib * kKiB});
    const double with_others = LiveWithValuesOf({kib * kKiB, 200 * kKiB, 20 * kKiB, 1000});
    std::printf("values of %llu KiB: live %.3f alone, %.3f with smaller ones\n",
                static_cast<unsigned long long>(kib), alone, with_others);
    EXPECT_GE(alone, 0.45) << kib;
    EXPECT_GE(with_others, 0.9) << kib;
  }
}

}  // namespace
}  // namespace verbena::storage
