#include "bench/workload/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "bench/workload/key_names.h"

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

constexpr int kDistributionDraws = 1'000'000;

// How often each of `count` positions comes up.
std::vector<uint32_t> CountsOf(const RequestDistribution& distribution, const RecordRange& range,
                               InsertSequence* inserts, uint64_t seed) {
  RecordChooser chooser(distribution, range, inserts);
  Random random(seed);
  std::vector<uint32_t> counts(inserts->present());
  for (int i = 0; i < kDistributionDraws; ++i) ++counts.at(chooser.Next(random));
  return counts;
}

double PartOf(const std::vector<uint32_t>& counts, size_t from, size_t to) {
  uint64_t sum = 0;
  for (size_t i = from; i < to; ++i) sum += counts[i];
  return static_cast<double>(sum) / kDistributionDraws;
}

TEST(Distribution, NamesAreReadAndTold) {
  for (const char* name : {"zipfian", "uniform", "latest", "hotspot", "sequential", "exponential",
                           "zipf:0.5", "zipf:1.2"}) {
    const auto parsed = ParseDistribution(name);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(DistributionName(*parsed), name);
  }
  for (const char* name :
       {"", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:101", "zipf:nan", "zipf:x", "Uniform"}) {
    const auto parsed = ParseDistribution(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_THAT(parsed.status().ToString(), HasSubstr("zipf:THETA"));
  }
}

class ExactZipfTest : public ::testing::TestWithParam<double> {};

// Chi-square over the ranks that are expected 20 times or more, the rest in one cell. The bound is
// five standard deviations above the mean of the distribution of chi-square.
TEST_P(ExactZipfTest, HasTheProbabilitiesOfTheDefinition) {
  constexpr uint64_t kItems = 1000;
  const double theta = GetParam();
  const ExactZipf zipf(kItems, theta);
  Random random(11);
  std::vector<uint32_t> counts(kItems);
  for (int i = 0; i < kDistributionDraws; ++i) ++counts.at(zipf.Next(random));
  const double zeta = Zeta(kItems, theta);
  double chi_square = 0;
  double cells = 0;
  double rest_expected = 0;
  double rest_seen = 0;
  for (uint64_t rank = 0; rank < kItems; ++rank) {
    const double expected =
        kDistributionDraws / std::pow(static_cast<double>(rank + 1), theta) / zeta;
    if (expected < 20) {
      rest_expected += expected;
      rest_seen += counts[rank];
      continue;
    }
    chi_square += (counts[rank] - expected) * (counts[rank] - expected) / expected;
    ++cells;
  }
  if (rest_expected >= 20) {
    chi_square += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = cells - 1;
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << freedom;
  EXPECT_GT(chi_square, freedom - 5 * std::sqrt(2 * freedom)) << freedom;
}

INSTANTIATE_TEST_SUITE_P(Thetas, ExactZipfTest, ::testing::Values(0.5, 0.99, 1.0, 1.2, 2.0, 3.5));

TEST(ExactZipf, AnyNumberOfItemsAndAnyTheta) {
  Random random(12);
  for (const double theta : {0.001, 1.0, 50.0, ExactZipf::kMaxTheta}) {
    for (const uint64_t items : {uint64_t{1}, uint64_t{2}, uint64_t{10'000'000'000}}) {
      const ExactZipf zipf(items, theta);
      for (int i = 0; i < 10'000; ++i) ASSERT_LT(zipf.Next(random), items) << theta;
    }
  }
}

// P0 .12938, the ten hottest of a thousand .3825; of a million P0 .06497, the hottest 1 % .664.
TEST(ExactZipf, MatchesTheReferenceFigures) {
  InsertSequence thousand(1000);
  RequestDistribution zipf = *ParseDistribution("zipf:0.99");
  const auto few = CountsOf(zipf, {.first = 0, .count = 1000}, &thousand, 13);
  EXPECT_NEAR(PartOf(few, 0, 1), 0.12938, 0.0015);
  EXPECT_NEAR(PartOf(few, 0, 10), 0.3825, 0.002);
  InsertSequence million(1'000'000);
  const auto many = CountsOf(zipf, {.first = 0, .count = 1'000'000}, &million, 14);
  EXPECT_NEAR(PartOf(many, 0, 1), 0.06497, 0.001);
  EXPECT_NEAR(PartOf(many, 1, 2), 0.03271, 0.001);
  EXPECT_NEAR(PartOf(many, 0, 10'000), 0.664, 0.002);
}

TEST(RecordChooser, HotspotGivesThePartOfTheRecordsThePartOfTheRequests) {
  InsertSequence inserts(1000);
  RequestDistribution hotspot = Distribution::kHotspot;
  const auto usual = CountsOf(hotspot, {.first = 0, .count = 1000}, &inserts, 15);
  EXPECT_NEAR(PartOf(usual, 0, 200), 0.8, 0.002);
  EXPECT_NEAR(PartOf(usual, 0, 100), 0.4, 0.002);  // evenly within
  hotspot.hotspot_data = 0.01;
  hotspot.hotspot_operations = 0.5;
  const auto narrow = CountsOf(hotspot, {.first = 0, .count = 1000}, &inserts, 16);
  EXPECT_NEAR(PartOf(narrow, 0, 10), 0.5, 0.002);
  for (const double all_or_none : {0.0, 1.0}) {
    hotspot.hotspot_data = all_or_none;
    const auto even = CountsOf(hotspot, {.first = 0, .count = 1000}, &inserts, 17);
    EXPECT_NEAR(PartOf(even, 0, 500), 0.5, 0.003) << all_or_none;
  }
}

TEST(RecordChooser, SequentialTakesTurnsOverAllThreads) {
  InsertSequence inserts(10);
  RecordChooser one(Distribution::kSequential, {.first = 2, .count = 5}, &inserts);
  RecordChooser two(Distribution::kSequential, {.first = 2, .count = 5}, &inserts);
  Random random(18);
  for (const uint64_t expected : {2u, 3u, 4u, 5u, 6u, 2u, 3u}) {
    EXPECT_EQ((expected % 2 == 0 ? one : two).Next(random), expected);
  }
}

// 95 % of the requests go to the newest six sevenths; half of them to 0.231 of these.
TEST(RecordChooser, ExponentialFavoursTheNewest) {
  InsertSequence inserts(7000);
  const auto counts =
      CountsOf(Distribution::kExponential, {.first = 0, .count = 7000}, &inserts, 19);
  // What is beyond the oldest record, e^-3.495, is drawn again.
  const double there = 1 - std::exp(std::log(0.05) * 7 / 6);
  EXPECT_NEAR(PartOf(counts, 1000, 7000), 0.95 / there, 0.002);
  const double half = std::log(0.5) / std::log(0.05);
  EXPECT_NEAR(PartOf(counts, 7000 - static_cast<size_t>(half * 6000), 7000), 0.5 / there, 0.003);
}

// The newest 999 ranks of a Zipfian of 999: the last record has 1 / zeta(999).
TEST(RecordChooser, LatestIsZipfianFromTheLastBackwards) {
  InsertSequence inserts(1000);
  const auto counts = CountsOf(Distribution::kLatest, {.first = 0, .count = 1000}, &inserts, 20);
  EXPECT_NEAR(PartOf(counts, 999, 1000), 1 / Zeta(999, kYcsbTheta), 0.0015);
  EXPECT_NEAR(PartOf(counts, 998, 999), std::pow(0.5, kYcsbTheta) / Zeta(999, kYcsbTheta), 0.0015);
  EXPECT_EQ(counts[0], 0u);
  InsertSequence one(1);
  EXPECT_EQ(CountsOf(Distribution::kLatest, {.first = 0, .count = 1}, &one, 21)[0],
            static_cast<uint32_t>(kDistributionDraws));
}

TEST(RecordChooser, LatestFollowsWhatIsAcknowledged) {
  InsertSequence inserts(1000);
  RecordChooser chooser(Distribution::kLatest, {.first = 0, .count = 1000}, &inserts);
  Random random(22);
  for (int i = 0; i < 1000; ++i) ASSERT_LT(chooser.Next(random), 1000u);
  std::vector<uint64_t> under_way;
  for (int i = 0; i < 100; ++i) under_way.push_back(inserts.Next());
  for (int i = 0; i < 1000; ++i) ASSERT_LT(chooser.Next(random), 1000u);
  for (const uint64_t record : under_way) inserts.Acknowledge(record);
  uint64_t newest = 0;
  for (int i = 0; i < 1000; ++i) newest = std::max(newest, chooser.Next(random));
  EXPECT_EQ(newest, 1099u);
}

// With inserts expected, new records are among the scrambled ones as soon as they are there.
TEST(RecordChooser, ZipfianReachesNewRecords) {
  InsertSequence inserts(1000);
  const RecordRange range = {.first = 0, .count = 1000, .expected_inserts = 500};
  RecordChooser chooser(Distribution::kZipfian, range, &inserts);
  Random random(23);
  for (int i = 0; i < 100'000; ++i) ASSERT_LT(chooser.Next(random), 1000u);
  for (int i = 0; i < 500; ++i) inserts.Acknowledge(inserts.Next());
  int beyond = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t position = chooser.Next(random);
    ASSERT_LT(position, 1500u);
    beyond += position >= 1000 ? 1 : 0;
  }
  EXPECT_GT(beyond, 10'000);
}

TEST(RecordChooser, KeepsToItsRange) {
  InsertSequence inserts(1000);
  for (const Distribution kind : {Distribution::kUniform, Distribution::kHotspot,
                                  Distribution::kSequential, Distribution::kExactZipf}) {
    const auto counts = CountsOf(kind, {.first = 300, .count = 200}, &inserts, 24);
    EXPECT_EQ(PartOf(counts, 300, 500), 1.0) << DistributionName(kind);
    EXPECT_GT(counts[300], 0u);
    EXPECT_GT(counts[499], 0u);
  }
}

TEST(InsertSequence, WaitsForTheOnesBefore) {
  InsertSequence inserts(10, {.index = 1, .step = 3});
  const uint64_t first = inserts.Next();
  const uint64_t second = inserts.Next();
  const uint64_t third = inserts.Next();
  EXPECT_EQ(first, 11u);
  EXPECT_EQ(second, 14u);
  EXPECT_EQ(third, 17u);
  inserts.Acknowledge(third);
  inserts.Acknowledge(second);
  EXPECT_EQ(inserts.present(), 10u);
  inserts.Acknowledge(first);
  EXPECT_EQ(inserts.present(), 13u);
  EXPECT_EQ(inserts.RecordAt(9), 9u);
  EXPECT_EQ(inserts.RecordAt(12), 17u);
}

TEST(InsertSequence, ThreadsInsertEachRecordOnce) {
  constexpr uint64_t kEach = 20'000;
  InsertSequence inserts(5);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&inserts] {
      for (uint64_t i = 0; i < kEach; ++i) inserts.Acknowledge(inserts.Next());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inserts.present(), 5 + 4 * kEach);
  EXPECT_EQ(inserts.Next(), 5 + 4 * kEach);
}

}  // namespace
}  // namespace verbena::bench
