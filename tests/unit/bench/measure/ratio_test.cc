// Ratios with limits: what is printed, and what is judged.
#include "bench/measure/ratio.h"

#include <gtest/gtest.h>

#include <string>

namespace verbena::bench {
namespace {

struct Printed {
  bool met;
  std::string text;
};
Printed Print(double median, Bound bound, double limit) {
  ::testing::internal::CaptureStdout();
  const bool met = PrintRatio("a over b", {median, 0.5, 2}, bound, limit);
  return {met, ::testing::internal::GetCapturedStdout()};
}

TEST(Ratio, TheMedianIsJudged) {
  EXPECT_TRUE(Print(1.5, Bound::kAtMost, 1.5).met);
  EXPECT_FALSE(Print(1.501, Bound::kAtMost, 1.5).met);
  EXPECT_TRUE(Print(0.8, Bound::kAtLeast, 0.8).met);
  EXPECT_FALSE(Print(0.799, Bound::kAtLeast, 0.8).met);
  EXPECT_TRUE(Print(99, Bound::kNone, 0).met);
}

TEST(Ratio, IsPrintedWithItsLimit) {
  const std::string met = Print(1.25, Bound::kAtMost, 1.5).text;
  EXPECT_TRUE(met.starts_with("a over b ")) << met;
  EXPECT_TRUE(met.ends_with("1.250  (0.500 to 2.000)  <= 1.5  met\n")) << met;
  const std::string missed = Print(1.25, Bound::kAtLeast, 4).text;
  EXPECT_TRUE(missed.ends_with("1.250  (0.500 to 2.000)  >= 4  MISSED\n")) << missed;
  const std::string plain = Print(1.25, Bound::kNone, 0).text;
  EXPECT_TRUE(plain.ends_with("1.250  (0.500 to 2.000)\n")) << plain;
}

}  // namespace
}  // namespace verbena::bench
