// A page that stands alone: HTML with its style and its charts within, for screens of any width and
// for paper; no scripts, nothing from elsewhere. All texts are escaped. Thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/report/svg_chart.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

struct ReportTable {
  std::string title;
  std::vector<std::string> header;             // the first column names the row
  std::vector<std::vector<std::string>> rows;  // as long as the header
};

struct ReportSection {
  std::string heading;
  std::string text;              // a paragraph for each line; may be empty
  std::vector<LineChart> lines;  // with a legend if there is more than one series
  std::vector<BarChart> bars;
  std::vector<ReportTable> tables;
};

struct Report {
  std::string title;
  std::string subtitle;
  std::vector<std::string> warnings;  // partial results, wrong values: shown first
  std::vector<ReportSection> sections;
};

std::string HtmlPage(const Report& report);

// A section with the members of two JSON objects as tables: configuration and environment.
ReportSection FactsSection(const nlohmann::json& config, const nlohmann::json& environment);

// Writes as WriteWholeFile does, with its errors.
absl::Status WriteReport(const std::string& path, const Report& report);

}  // namespace verbena::bench
