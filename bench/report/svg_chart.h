// Charts as inline SVG: no script, no font or picture from elsewhere. Texts are escaped. Values
// that are not finite, or not positive on a logarithmic axis, are left out. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::bench {

// Of an SVG of kChartWidth units; on a page it is as wide as there is room.
inline constexpr int kChartWidth = 480;

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // in the order of x
};

enum class Axis {
  kLinear,
  kLog,
  kPercentile,  // values are percentiles, 0 to below 100; each nine takes as much room
};

struct LineChart {
  std::string title;
  std::string x_title;  // with the unit
  std::string y_title;
  Axis x_axis = Axis::kLinear;
  Axis y_axis = Axis::kLinear;
  std::vector<ChartSeries> series;
};

// A horizontal bar with its value written beside it, and a line from least to most.
struct ChartBar {
  std::string name;
  double value = 0;
  double least = 0;
  double most = 0;
  std::string text;  // the value as written
  size_t color = 0;  // which of SeriesColor
};

struct BarChart {
  std::string title;
  std::string x_title;
  Axis x_axis = Axis::kLinear;  // or kLog
  std::vector<ChartBar> bars;
};

std::string LineChartSvg(const LineChart& chart);
std::string BarChartSvg(const BarChart& chart);

// "#rrggbb" of series number `index`; nine, most of which colour-blind people can tell apart, then
// again.
const char* SeriesColor(size_t index);

// Of text for HTML and SVG, attributes included: markup becomes text, and bytes that no document
// may hold are left out.
std::string EscapeMarkup(std::string_view text);

// Parts of the above, for tests.

// Where an axis from `least` to `most` has its marks, at most about `wanted`: round numbers, within
// the range for a linear axis, and around it for a logarithmic one.
std::vector<double> AxisTicks(Axis axis, double least, double most, int wanted);
// "0.5", "20", "3k", "1.5M", "99.9".
std::string TickText(double value);

}  // namespace verbena::bench
