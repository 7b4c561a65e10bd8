#include "bench/report/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace verbena::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The numbers of the first `points` attribute.
std::vector<double> PointsOf(const std::string& svg) {
  std::vector<double> numbers;
  const size_t begin = svg.find(" points=\"") + 9;
  std::string number;
  for (size_t i = begin; i < svg.size(); ++i) {
    const char c = svg[i];
    if (c == ' ' || c == ',' || c == '"') {
      numbers.push_back(std::stod(number));
      number.clear();
      if (c == '"') break;
    } else {
      number += c;
    }
  }
  return numbers;
}

TEST(AxisTicks, AreRoundNumbers) {
  EXPECT_THAT(AxisTicks(Axis::kLinear, 0, 10, 6), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(AxisTicks(Axis::kLinear, 0, 97, 6), ElementsAre(0, 20, 40, 60, 80));
  EXPECT_THAT(AxisTicks(Axis::kLinear, 5, 5, 6), ElementsAre(5));
  EXPECT_THAT(AxisTicks(Axis::kLog, 1, 1e6, 7), ElementsAre(1, 10, 100, 1e3, 1e4, 1e5, 1e6));
  EXPECT_THAT(AxisTicks(Axis::kLog, 3, 30, 6), ElementsAre(2, 5, 10, 20, 50));
  EXPECT_THAT(AxisTicks(Axis::kPercentile, 0, 99.95, 6), ElementsAre(0, 50, 90, 99, 99.9));
}

// Whatever the range, there are marks, they rise, and there are not too many to read.
TEST(AxisTicks, AreFewForAnyRange) {
  for (double least = 1e-3; least < 1e9; least *= 7) {
    for (double factor = 1; factor < 1e9; factor *= 13) {
      for (const Axis axis : {Axis::kLinear, Axis::kLog}) {
        const auto ticks = AxisTicks(axis, least, least * factor, 6);
        ASSERT_FALSE(ticks.empty()) << least << " " << factor;
        EXPECT_LE(ticks.size(), 10U) << least << " " << factor;
        EXPECT_TRUE(std::is_sorted(ticks.begin(), ticks.end()));
        if (axis == Axis::kLog) {
          EXPECT_LE(ticks.front(), least * (1 + 1e-9));
          EXPECT_GE(ticks.back(), least * factor * (1 - 1e-9));
        }
      }
    }
  }
}

TEST(TickText, IsShort) {
  EXPECT_EQ(TickText(0), "0");
  EXPECT_EQ(TickText(0.5), "0.5");
  EXPECT_EQ(TickText(20), "20");
  EXPECT_EQ(TickText(3000), "3k");
  EXPECT_EQ(TickText(1.5e6), "1.5M");
  EXPECT_EQ(TickText(2e9), "2G");
  EXPECT_EQ(TickText(99.9), "99.9");
}

TEST(EscapeMarkup, LeavesNoMarkup) {
  EXPECT_EQ(EscapeMarkup("<script>\"x\" & 'y'</script>"),
            "&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;&lt;/script&gt;");
  EXPECT_EQ(EscapeMarkup(std::string("a\0b\x01\xff\n", 6)), "ab\n");
}

TEST(LineChartSvg, DrawsEachSeriesInItsColour) {
  LineChart chart{"Title <1>", "seconds",
                  "us & more", Axis::kLinear,
                  Axis::kLog,  {{"a", {{0, 1}, {1, 10}}}, {"b", {{0, 100}, {1, 1000}}}}};
  const std::string svg = LineChartSvg(chart);
  EXPECT_EQ(CountOf(svg, "<polyline"), 2U);
  EXPECT_THAT(svg, HasSubstr(SeriesColor(0)));
  EXPECT_THAT(svg, HasSubstr(SeriesColor(1)));
  EXPECT_THAT(svg, HasSubstr("Title &lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("us &amp; more"));
  // The line rises: y falls, within the drawing.
  const auto points = PointsOf(svg);
  ASSERT_EQ(points.size(), 4U);
  EXPECT_LT(points[0], points[2]);
  EXPECT_GT(points[1], points[3]);
  for (const double number : points) {
    EXPECT_GE(number, 0);
    EXPECT_LE(number, kChartWidth);
  }
}

TEST(LineChartSvg, ALogarithmicAxisHasEqualSteps) {
  const std::string svg = LineChartSvg(
      {"t", "x", "y", Axis::kLinear, Axis::kLog, {{"a", {{0, 1}, {1, 10}, {2, 100}}}}});
  const auto points = PointsOf(svg);
  ASSERT_EQ(points.size(), 6U);
  EXPECT_NEAR(points[1] - points[3], points[3] - points[5], 0.2);
}

TEST(LineChartSvg, APercentileAxisHasAStepForEachNine) {
  const std::string svg = LineChartSvg({"t",
                                        "x",
                                        "y",
                                        Axis::kPercentile,
                                        Axis::kLinear,
                                        {{"a", {{0, 1}, {90, 1}, {99, 1}, {99.9, 1}}}}});
  const auto points = PointsOf(svg);
  ASSERT_EQ(points.size(), 8U);
  EXPECT_NEAR(points[2] - points[0], points[4] - points[2], 0.2);
  EXPECT_NEAR(points[4] - points[2], points[6] - points[4], 0.2);
  EXPECT_THAT(svg, HasSubstr(">99.9<"));
}

TEST(LineChartSvg, LeavesOutWhatCannotBeDrawn) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const std::string svg =
      LineChartSvg({"t",
                    "x",
                    "y",
                    Axis::kLinear,
                    Axis::kLog,
                    {{"a", {{0, 0}, {1, -1}, {2, nan}, {3, inf}, {nan, 1}, {4, 5}}}}});
  EXPECT_EQ(CountOf(svg, "<circle"), 1U);
  EXPECT_EQ(CountOf(svg, "<polyline"), 0U);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(LineChartSvg({"t", "x", "y", Axis::kLinear, Axis::kLog, {{"a", {{0, 0}}}}}),
              HasSubstr("nothing was measured"));
  EXPECT_THAT(LineChartSvg({}), HasSubstr("nothing was measured"));
}

TEST(BarChartSvg, BarsStayWithinTheDrawing) {
  BarChart chart{"t",
                 "x",
                 Axis::kLinear,
                 {{"verbena", 1e6, 9e5, 2e6, "1.00 M", 0}, {"memcached-unix", 1, 1, 1, "1", 3}}};
  for (const Axis axis : {Axis::kLinear, Axis::kLog}) {
    chart.x_axis = axis;
    const std::string svg = BarChartSvg(chart);
    EXPECT_EQ(CountOf(svg, "<rect"), 2U);
    EXPECT_THAT(svg, HasSubstr(SeriesColor(3)));
    EXPECT_THAT(svg, HasSubstr("1.00 M"));
    EXPECT_THAT(svg, Not(HasSubstr("width=\"-")));
  }
  EXPECT_THAT(BarChartSvg({"t", "x", Axis::kLog, {{"a", 0, 0, 0, "0", 0}}}),
              HasSubstr("nothing was measured"));
}

}  // namespace
}  // namespace verbena::bench
