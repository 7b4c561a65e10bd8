#include "bench/report/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

constexpr double kHeight = 300;
constexpr double kLeft = 62;    // of the plot
constexpr double kRight = 464;  // leaves room for half of the last mark's text
constexpr double kTop = 34;
constexpr double kBottom = 248;
constexpr double kBarsLeft = 130;
constexpr double kBarHeight = 18;
constexpr double kBarStep = 28;
constexpr double kValueRoom = 78;  // of the text behind a bar
constexpr int kTicks = 6;

// Where a value lies on an axis before it is scaled.
double Place(Axis axis, double value) {
  switch (axis) {
    case Axis::kLinear:
      return value;
    case Axis::kLog:
      return std::log10(value);
    case Axis::kPercentile:
      break;
  }
  return -std::log10(1 - value / 100);
}

bool Fits(Axis axis, double value) {
  if (!std::isfinite(value)) return false;
  if (axis == Axis::kLog) return value > 0;
  if (axis == Axis::kPercentile) return value >= 0 && value < 100;
  return true;
}

// Maps the values of an axis to the units of the drawing.
class Scale {
 public:
  Scale(Axis axis, double least, double most, double from, double to)
      : axis_(axis), from_(from), to_(to), ticks_(AxisTicks(axis, least, most, kTicks)) {
    begin_ = Place(axis, least);
    end_ = Place(axis, most);
    // A logarithmic axis begins and ends at marks.
    if (axis == Axis::kLog && !ticks_.empty()) {
      begin_ = std::min(begin_, Place(axis, ticks_.front()));
      end_ = std::max(end_, Place(axis, ticks_.back()));
    }
    if (!(end_ > begin_)) end_ = begin_ + 1;
  }

  double At(double value) const {
    return from_ + (Place(axis_, value) - begin_) / (end_ - begin_) * (to_ - from_);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  const Axis axis_;
  const double from_;
  const double to_;
  double begin_;
  double end_;
  std::vector<double> ticks_;
};

struct Extent {
  double least = 0;
  double most = 0;
  bool empty = true;

  void Add(double value) {
    least = empty ? value : std::min(least, value);
    most = empty ? value : std::max(most, value);
    empty = false;
  }
};

std::string Text(double x, double y, const char* anchor, std::string_view text,
                 const char* more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, more, EscapeMarkup(text));
}

std::string Line(double x1, double y1, double x2, double y2, const char* color) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                         x1, y1, x2, y2, color);
}

std::string Open(double height, const std::string& title) {
  return absl::StrFormat(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
             "font-family=\"sans-serif\" font-size=\"13\">\n<title>%s</title>\n",
             kChartWidth, height, EscapeMarkup(title)) +
         Text(kChartWidth / 2.0, 18, "middle", title, " font-weight=\"bold\"");
}

std::string NoData(const std::string& title) {
  return Open(80, title) + Text(kChartWidth / 2.0, 52, "middle", "nothing was measured") +
         "</svg>\n";
}

// What tells the lines of a chart apart on paper without colours.
const char* Dashes(size_t index) {
  constexpr std::array<const char*, 4> kDashes = {"", "7 3", "2 3", "9 3 2 3"};
  return kDashes[index % kDashes.size()];
}

std::string SeriesLine(const LineChart& chart, size_t index, const Scale& x, const Scale& y) {
  std::string points;
  size_t count = 0;
  ChartPoint last;
  for (const ChartPoint& point : chart.series[index].points) {
    if (!Fits(chart.x_axis, point.x) || !Fits(chart.y_axis, point.y)) continue;
    absl::StrAppendFormat(&points, "%s%.1f,%.1f", count == 0 ? "" : " ", x.At(point.x),
                          y.At(point.y));
    last = point;
    ++count;
  }
  if (count == 0) return "";
  if (count == 1) {
    return absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x.At(last.x),
                           y.At(last.y), SeriesColor(index));
  }
  return absl::StrFormat(
      "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" "
      "points=\"%s\"/>\n",
      SeriesColor(index), Dashes(index), points);
}

double StepFor(double range, int wanted) {
  const double raw = range / std::max(1, wanted - 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= raw * (1 - 1e-9)) return step * power;
  }
  return 10 * power;
}

std::vector<double> LinearTicks(double least, double most, int wanted) {
  if (!(most > least)) return {least};
  const double step = StepFor(most - least, wanted);
  std::vector<double> ticks;
  const double first = std::ceil(least / step - 1e-9);
  const double last = std::floor(most / step + 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

// Powers of ten around the range, and 2 and 5 between where there is room.
std::vector<double> LogTicks(double least, double most, int wanted) {
  if (!(least > 0) || !(most >= least)) return {};
  const int first = static_cast<int>(std::floor(std::log10(least) + 1e-9));
  const int last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(most) - 1e-9)));
  const int stride = std::max(1, (last - first + wanted - 2) / std::max(1, wanted - 1));
  std::vector<double> ticks;
  for (int power = first; power <= last; power += stride) {
    ticks.push_back(std::pow(10, power));
    if (last - first > 2 || power == last) continue;
    ticks.push_back(2 * std::pow(10, power));
    ticks.push_back(5 * std::pow(10, power));
  }
  // What lies wholly outside only takes room.
  while (ticks.size() > 2 && ticks[1] <= least) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= most) ticks.pop_back();
  if (ticks.back() < most) ticks.push_back(std::pow(10, last));
  return ticks;
}

std::vector<double> PercentileTicks(double most) {
  std::vector<double> ticks;
  for (const double tick : {0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999}) {
    if (tick <= most) ticks.push_back(tick);
  }
  return ticks;
}

}  // namespace

const char* SeriesColor(size_t index) {
  constexpr std::array<const char*, 9> kColors = {"#0072b2", "#d55e00", "#009e73",
                                                  "#cc79a7", "#e69f00", "#56b4e9",
                                                  "#222222", "#8c564b", "#999933"};
  return kColors[index % kColors.size()];
}

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        // Error texts may quote any byte of a peer; what is no ASCII might be no UTF-8.
        if (c == '\n' || c == '\t' || (c >= ' ' && c <= '~')) escaped += c;
        break;
    }
  }
  return escaped;
}

std::vector<double> AxisTicks(Axis axis, double least, double most, int wanted) {
  switch (axis) {
    case Axis::kLinear:
      return LinearTicks(least, most, wanted);
    case Axis::kLog:
      return LogTicks(least, most, wanted);
    case Axis::kPercentile:
      break;
  }
  return PercentileTicks(most);
}

std::string TickText(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return absl::StrFormat("%gG", value / 1e9);
  if (size >= 1e6) return absl::StrFormat("%gM", value / 1e6);
  if (size >= 1e3) return absl::StrFormat("%gk", value / 1e3);
  if (size < 1e-9) return "0";
  return absl::StrFormat("%.7g", value);
}

std::string LineChartSvg(const LineChart& chart) {
  Extent xs;
  Extent ys;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!Fits(chart.x_axis, point.x) || !Fits(chart.y_axis, point.y)) continue;
      xs.Add(point.x);
      ys.Add(point.y);
    }
  }
  if (xs.empty) return NoData(chart.title);
  // Amounts are compared by their height over 0.
  if (chart.y_axis == Axis::kLinear) {
    ys.Add(0);
    ys.most += (ys.most - ys.least) * 0.05;
  }
  const Scale x(chart.x_axis, xs.least, xs.most, kLeft, kRight);
  const Scale y(chart.y_axis, ys.least, ys.most, kBottom, kTop);
  std::string svg = Open(kHeight, chart.title);
  for (const double tick : y.ticks()) {
    svg += Line(kLeft, y.At(tick), kRight, y.At(tick), "#dddddd");
    svg += Text(kLeft - 6, y.At(tick) + 4.5, "end", TickText(tick));
  }
  for (const double tick : x.ticks()) {
    svg += Line(x.At(tick), kBottom, x.At(tick), kBottom + 5, "#444444");
    svg += Text(x.At(tick), kBottom + 19, "middle", TickText(tick));
  }
  svg += Line(kLeft, kTop, kLeft, kBottom, "#444444");
  svg += Line(kLeft, kBottom, kRight, kBottom, "#444444");
  for (size_t i = 0; i < chart.series.size(); ++i) svg += SeriesLine(chart, i, x, y);
  svg += Text((kLeft + kRight) / 2, kBottom + 40, "middle", chart.x_title);
  svg += absl::StrFormat(
      "<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
      (kTop + kBottom) / 2, EscapeMarkup(chart.y_title));
  svg += "</svg>\n";
  return svg;
}

std::string BarChartSvg(const BarChart& chart) {
  Extent values;
  for (const ChartBar& bar : chart.bars) {
    for (const double value : {bar.value, bar.least, bar.most}) {
      if (Fits(chart.x_axis, value)) values.Add(value);
    }
  }
  if (values.empty) return NoData(chart.title);
  if (chart.x_axis == Axis::kLinear) values.Add(0);
  const double bottom = kTop + kBarStep * static_cast<double>(chart.bars.size());
  const Scale x(chart.x_axis, values.least, values.most, kBarsLeft, kRight - kValueRoom);
  std::string svg = Open(bottom + 48, chart.title);
  for (const double tick : x.ticks()) {
    svg += Line(x.At(tick), kTop, x.At(tick), bottom, "#dddddd");
    svg += Text(x.At(tick), bottom + 17, "middle", TickText(tick));
  }
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const ChartBar& bar = chart.bars[i];
    const double top = kTop + kBarStep * static_cast<double>(i) + (kBarStep - kBarHeight) / 2;
    const double middle = top + kBarHeight / 2;
    svg += Text(kBarsLeft - 6, middle + 4.5, "end", bar.name);
    double text_at = kBarsLeft;
    if (Fits(chart.x_axis, bar.value)) {
      const double end = std::max(x.At(bar.value), kBarsLeft);
      svg += absl::StrFormat(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", kBarsLeft,
          top, end - kBarsLeft, kBarHeight, SeriesColor(bar.color));
      text_at = end;
    }
    if (Fits(chart.x_axis, bar.least) && Fits(chart.x_axis, bar.most) && bar.most > bar.least) {
      svg += Line(x.At(bar.least), middle, x.At(bar.most), middle, "#444444");
      text_at = std::max(text_at, x.At(bar.most));
    }
    svg += Text(text_at + 5, middle + 4.5, "start", bar.text);
  }
  svg += Line(kBarsLeft, kTop, kBarsLeft, bottom, "#444444");
  svg += Text((kBarsLeft + kRight - kValueRoom) / 2, bottom + 38, "middle", chart.x_title);
  svg += "</svg>\n";
  return svg;
}

}  // namespace verbena::bench
