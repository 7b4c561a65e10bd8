#include "bench/workload/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "bench/workload/key_names.h"
#include "bench/workload/random.h"
#include "bench/workload/zipfian.h"

namespace verbena::bench {
namespace {

constexpr int kDraws = 2'000'000;

// The share of draws that a rank below `ranks` got.
double ShareBelow(const std::vector<uint32_t>& counts, size_t ranks) {
  uint64_t sum = 0;
  for (size_t i = 0; i < ranks; ++i) sum += counts[i];
  return static_cast<double>(sum) / kDraws;
}

// The share that Gray's formula gives the ranks below `ranks` (2 or more). It is exact for ranks 0
// and 1 and an approximation for the others: the ranks just behind get a little more than in a true
// Zipfian, by at most 2 % of all draws.
double FormulaShareBelow(double ranks, double items, double zeta_items) {
  const double eta =
      (1 - std::pow(2 / items, 1 - kYcsbTheta)) / (1 - Zeta(2, kYcsbTheta) / zeta_items);
  return (std::pow(ranks / items, 1 - kYcsbTheta) - 1 + eta) / eta;
}

TEST(Zeta, MatchesReference) {
  EXPECT_NEAR(Zeta(1000, kYcsbTheta), 7.728953217, 1e-8);
  EXPECT_NEAR(Zeta(1'000'000, kYcsbTheta), 15.391849746, 1e-8);
  // zeta(10^10) itself takes too long; its tail is an integral (Euler and Maclaurin).
  const double n = 1e6;
  const double m = 1e10;
  const double tail = (std::pow(m, 0.01) - std::pow(n, 0.01)) / 0.01 +
                      (std::pow(m, -0.99) - std::pow(n, -0.99)) / 2;
  EXPECT_NEAR(Zeta(1'000'000, kYcsbTheta) + tail, ScrambledZipfian::kHiddenZeta, 1e-6);
}

TEST(Zipfian, DistributionMatchesReference) {
  Random random(1);
  const Zipfian zipfian(1000, kYcsbTheta);
  std::vector<uint32_t> counts(1000);
  for (int i = 0; i < kDraws; ++i) ++counts.at(zipfian.Next(random));
  EXPECT_NEAR(ShareBelow(counts, 1), 0.12938, 0.0015);
  EXPECT_NEAR(ShareBelow(counts, 10), 0.3825, 0.02);  // true Zipfian
  EXPECT_NEAR(ShareBelow(counts, 10), FormulaShareBelow(10, 1000, 7.728953217), 0.002);
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 0u), 0);
}

TEST(Zipfian, MillionItemsMatchReference) {
  Random random(2);
  const Zipfian zipfian(1'000'000, kYcsbTheta);
  std::vector<uint32_t> counts(1'000'000);
  for (int i = 0; i < kDraws; ++i) ++counts.at(zipfian.Next(random));
  EXPECT_NEAR(ShareBelow(counts, 1), 0.06497, 0.001);
  EXPECT_NEAR(ShareBelow(counts, 2), 0.06497 + 0.03271, 0.0015);
  EXPECT_NEAR(ShareBelow(counts, 10'000), 0.664, 0.01);  // true Zipfian
  EXPECT_NEAR(ShareBelow(counts, 10'000), FormulaShareBelow(1e4, 1e6, 15.391849746), 0.002);
}

// The hidden ranks: what the scrambled distribution is made of.
TEST(ScrambledZipfian, RanksMatchReference) {
  Random random(3);
  const Zipfian ranks(ScrambledZipfian::kHiddenItems, kYcsbTheta, ScrambledZipfian::kHiddenZeta);
  const std::vector<uint64_t> bounds = {1, 2, 10, 1000, 1'000'000};
  const std::vector<double> expected = {0.03778, 0.03778 + 0.01902, 0.1117, 0.292, 0.5815};
  std::vector<int> below(bounds.size());
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t rank = ranks.Next(random);
    ASSERT_LT(rank, ScrambledZipfian::kHiddenItems);
    for (size_t b = 0; b < bounds.size(); ++b) below[b] += rank < bounds[b] ? 1 : 0;
  }
  for (size_t b = 0; b < bounds.size(); ++b) {
    const double share = static_cast<double>(below[b]) / kDraws;
    EXPECT_NEAR(share, expected[b], bounds[b] <= 2 ? 0.001 : 0.008) << bounds[b];
    if (bounds[b] >= 2) {
      EXPECT_NEAR(
          share,
          FormulaShareBelow(static_cast<double>(bounds[b]), 1e10, ScrambledZipfian::kHiddenZeta),
          0.002)
          << bounds[b];
    }
  }
}

TEST(ScrambledZipfian, HottestKeysAreTheHashedRanks) {
  constexpr uint64_t kItems = 100'000;
  Random random(4);
  const ScrambledZipfian zipfian(kItems);
  std::vector<uint32_t> counts(kItems);
  for (int i = 0; i < kDraws; ++i) ++counts.at(zipfian.Next(random));
  const auto hottest =
      static_cast<uint64_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
  EXPECT_EQ(hottest, FnvHash64(0) % kItems);
  EXPECT_NEAR(counts[hottest] / double{kDraws}, 0.03778, 0.001);
  EXPECT_NEAR(counts[FnvHash64(1) % kItems] / double{kDraws}, 0.01902, 0.001);
}

// A source over `records` records, with the inserts that it needs.
struct Source {
  Source(const Workload& workload, const RequestDistribution& distribution, uint64_t records,
         uint64_t seed)
      : inserts(records),
        source(workload, distribution, {.first = 0, .count = records}, seed, &inserts) {}

  Operation Next() { return source.Next(); }

  InsertSequence inserts;
  OperationSource source;
};

TEST(OperationSource, MixesAsTheWorkloadSays) {
  for (const Workload& workload : AllWorkloads()) {
    Source source(workload, Distribution::kZipfian, 1000, 5);
    std::array<int, kOpKinds> counts{};
    for (int i = 0; i < 100'000; ++i) {
      const Operation operation = source.Next();
      ASSERT_TRUE(operation.kind == OpKind::kInsert || operation.record < 1000u);
      ++counts[Index(operation.kind)];
    }
    for (size_t kind = 0; kind < kOpKinds; ++kind) {
      const double share = workload.proportion[kind];
      EXPECT_NEAR(counts[kind] / 1e5, share, 0.005) << workload.name << kind;
      EXPECT_EQ(counts[kind] == 0, share == 0) << workload.name << kind;
    }
  }
}

TEST(OperationSource, LengthsOfScansAreUniform) {
  Source source(*FindWorkload("e"), Distribution::kUniform, 1000, 10);
  std::vector<int> counts(kMaxScanLength);
  for (int scans = 0; scans < 1'000'000;) {
    const Operation operation = source.Next();
    if (operation.kind != OpKind::kScan) continue;
    ++counts.at(operation.length - 1);
    ++scans;
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_GT(*least, 9'400);
  EXPECT_LT(*most, 10'600);
}

TEST(OperationSource, NoTwoInsertTheSameRecord) {
  std::set<uint64_t> inserted;
  for (uint64_t index = 0; index < 3; ++index) {
    InsertSequence sequence(1000, {.index = index, .step = 3});
    OperationSource source(*FindWorkload("e"), Distribution::kZipfian, {.first = 0, .count = 1000},
                           index, &sequence);
    for (int inserts = 0; inserts < 100;) {
      const Operation operation = source.Next();
      if (operation.kind != OpKind::kInsert) continue;
      ++inserts;
      EXPECT_TRUE(inserted.insert(operation.record).second) << operation.record;
    }
  }
  EXPECT_EQ(*inserted.begin(), 1000u);
  EXPECT_EQ(*inserted.rbegin(), 1299u);
}

TEST(OperationSource, UniformIsUniform) {
  Source source(*FindWorkload("c"), Distribution::kUniform, 100, 6);
  std::vector<int> counts(100);
  for (int i = 0; i < 1'000'000; ++i) ++counts.at(source.Next().record);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_GT(*least, 9'400);
  EXPECT_LT(*most, 10'600);
}

TEST(OperationSource, SameSeedSameOperations) {
  Source one(*FindWorkload("a"), Distribution::kZipfian, 5000, 7);
  Source two(*FindWorkload("A"), Distribution::kZipfian, 5000, 7);
  Source other(*FindWorkload("a"), Distribution::kZipfian, 5000, 8);
  int differences = 0;
  for (int i = 0; i < 1000; ++i) {
    const Operation a = one.Next();
    const Operation b = two.Next();
    ASSERT_EQ(a.record, b.record);
    ASSERT_EQ(a.kind, b.kind);
    differences += other.Next().record != a.record ? 1 : 0;
  }
  EXPECT_GT(differences, 500);
}

TEST(OperationSource, OneRecordIsEnough) {
  Source source(*FindWorkload("b"), Distribution::kZipfian, 1, 9);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(source.Next().record, 0u);
}

TEST(FindWorkload, KnowsItsNames) {
  EXPECT_EQ(FindWorkload("b")->proportion[Index(OpKind::kRead)], 0.95);
  for (const char* name : {"", "g", "ab", "*"}) EXPECT_FALSE(FindWorkload(name).has_value());
}

}  // namespace
}  // namespace verbena::bench
