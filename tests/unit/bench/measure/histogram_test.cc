#include "bench/measure/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/measure/statistics.h"
#include "bench/workload/random.h"

namespace verbena::bench {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Percentile(99), 0u);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.max(), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t v = 1; v <= 1000; ++v) histogram.Record(v);
  EXPECT_EQ(histogram.Percentile(50), 500u);
  EXPECT_EQ(histogram.Percentile(99), 990u);
  EXPECT_EQ(histogram.Percentile(99.9), 999u);
  EXPECT_EQ(histogram.Percentile(100), 1000u);
  EXPECT_EQ(histogram.Percentile(0), 1u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 500.5);
}

// Three significant digits over the whole range: one value alone comes back within 0.1 %.
TEST(Histogram, KeepsThreeDigits) {
  for (double v = 1; v < 1e11; v *= 1.037) {
    const auto value = static_cast<uint64_t>(v);
    Histogram histogram;
    histogram.Record(value);
    histogram.Record(Histogram::kMaxValue);
    const uint64_t median = histogram.Percentile(50);
    EXPECT_GE(median, value);
    EXPECT_LE(static_cast<double>(median), static_cast<double>(value) * 1.001);
  }
}

TEST(Histogram, PercentilesMatchSortedSamples) {
  Random random(1);
  Histogram histogram;
  std::vector<uint64_t> samples;
  for (int i = 0; i < 100'000; ++i) {
    // Log-uniform between 100 ns and 10 s.
    const auto value = static_cast<uint64_t>(std::exp(std::log(100) + random.NextDouble() * 18.4));
    samples.push_back(value);
    histogram.Record(value);
  }
  std::sort(samples.begin(), samples.end());
  for (const double percent : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 1e5)) - 1;
    const auto exact = static_cast<double>(samples[rank]);
    EXPECT_NEAR(static_cast<double>(histogram.Percentile(percent)), exact, exact * 0.001);
  }
  EXPECT_EQ(histogram.max(), samples.back());
}

TEST(Histogram, MergingIsRecordingTogether) {
  Random random(2);
  Histogram one;
  Histogram two;
  Histogram both;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t value = random.Below(1'000'000);
    (i % 3 == 0 ? one : two).Record(value);
    both.Record(value);
  }
  Histogram merged = one;
  merged.Merge(two);
  EXPECT_EQ(merged.count(), both.count());
  EXPECT_EQ(merged.max(), both.max());
  EXPECT_DOUBLE_EQ(merged.mean(), both.mean());
  for (double percent = 1; percent < 100; ++percent) {
    EXPECT_EQ(merged.Percentile(percent), both.Percentile(percent));
  }
  merged.Subtract(one);
  EXPECT_EQ(merged.count(), two.count());
  EXPECT_EQ(merged.Percentile(50), two.Percentile(50));
}

TEST(Histogram, CountsWhatIsTooLarge) {
  Histogram histogram;
  histogram.Record(5);
  histogram.Record(3 * Histogram::kMaxValue);
  EXPECT_EQ(histogram.count(), 2u);
  EXPECT_EQ(histogram.max(), 3 * Histogram::kMaxValue);
  EXPECT_EQ(histogram.Percentile(100), 3 * Histogram::kMaxValue);
  histogram.Reset();
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Percentile(100), 0u);
}

TEST(Spread, IsMedianAndExtremes) {
  EXPECT_EQ(SpreadOf({}).median, 0);
  const Spread odd = SpreadOf({5, 1, 9});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 9);
  EXPECT_EQ(SpreadOf({4, 1, 2, 9}).median, 3);
}

TEST(GroupedMedian, LiesWithinTheStep) {
  std::vector<uint32_t> none;
  EXPECT_EQ(GroupedMedian(none), 0);
  std::vector<uint32_t> one = {7};
  EXPECT_EQ(GroupedMedian(one), 7);
  std::vector<uint32_t> fine = {5, 1, 4, 2, 3};
  EXPECT_EQ(GroupedMedian(fine), 3);
  // A clock that goes in steps of 10: a quarter of the samples in the middle step lie below the
  // median.
  std::vector<uint32_t> coarse = {20, 10, 10, 10, 20, 20, 20, 30};
  EXPECT_EQ(GroupedMedian(coarse), 17.5);
  // True values between 250 and 290, seen through such a clock.
  Random random(1);
  std::vector<uint32_t> seen;
  for (int i = 0; i < 100'000; ++i) {
    seen.push_back(static_cast<uint32_t>(250 + random.NextDouble() * 40 + 5) / 10 * 10);
  }
  EXPECT_NEAR(GroupedMedian(seen), 270, 0.5);
}

}  // namespace
}  // namespace verbena::bench
