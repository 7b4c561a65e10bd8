#include "bench/report/html_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/whole_file.h"

namespace verbena::bench {
namespace {

// One column on a phone, two charts side by side where there is room. Numbers are not broken to
// make room for the last column of a table, which may hold anything. On narrow screens each row of
// a table becomes a block whose cells name their columns, so nothing is wider than the screen.
constexpr char kStyle[] = R"(
*{box-sizing:border-box}
body{margin:0 auto;padding:12px;max-width:1100px;background:#fff;color:#222;
font:16px/1.45 sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5em;margin:.3em 0}h2{font-size:1.2em;margin:1.4em 0 .4em;border-bottom:1px solid #ccc}
h3{font-size:1em;margin:1em 0 .3em}
.warning{border:2px solid #b00020;padding:6px 10px;margin:8px 0}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:12px}
figure{margin:0;border:1px solid #ddd;padding:6px;min-width:0}
svg{display:block;width:100%;height:auto}
figcaption{font-size:.85em;display:flex;flex-wrap:wrap;gap:2px 14px}
figcaption svg{display:inline-block;width:26px;height:10px;margin-right:4px}
table{border-collapse:collapse;width:100%;font-size:.9em}
th,td{text-align:right;padding:3px 8px;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}
th:not(:last-child),td:not(:last-child){overflow-wrap:break-word}
@media screen and (max-width:700px){
table,tbody,tr,td{display:block;width:100%}thead{display:none}
tr{border-bottom:2px solid #999;padding:4px 0}
td,td:first-child{display:flex;justify-content:space-between;gap:10px;border:0;text-align:right}
td::before{content:attr(data-label);color:#555;text-align:left}}
@media print{body{max-width:none;padding:0;font-size:10pt}
figure,tr,.warning{break-inside:avoid}h2,h3{break-after:avoid}
.charts{grid-template-columns:1fr 1fr}}
)";

std::string Paragraphs(const std::string& text) {
  std::string html;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&html, "<p>", EscapeMarkup(std::string(line)), "</p>\n");
  }
  return html;
}

std::string Legend(const LineChart& chart) {
  if (chart.series.size() < 2) return "";
  std::string html = "<figcaption>";
  for (size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.series[i].points.empty()) continue;
    absl::StrAppend(
        &html,
        "<span><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><rect y=\"2\" width=\"26\" "
        "height=\"6\" fill=\"",
        SeriesColor(i), "\"/></svg>", EscapeMarkup(chart.series[i].name), "</span>");
  }
  return html + "</figcaption>";
}

std::string TableHtml(const ReportTable& table) {
  std::string html;
  if (!table.title.empty()) absl::StrAppend(&html, "<h3>", EscapeMarkup(table.title), "</h3>\n");
  html += "<table><thead><tr>";
  for (const std::string& name : table.header) {
    absl::StrAppend(&html, "<th scope=\"col\">", EscapeMarkup(name), "</th>");
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string label = i < table.header.size() ? table.header[i] : "";
      absl::StrAppend(&html, "<td data-label=\"", EscapeMarkup(label), "\">", EscapeMarkup(row[i]),
                      "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string SectionHtml(const ReportSection& section) {
  std::string html = absl::StrCat("<section>\n<h2>", EscapeMarkup(section.heading), "</h2>\n",
                                  Paragraphs(section.text));
  if (!section.lines.empty() || !section.bars.empty()) {
    html += "<div class=\"charts\">\n";
    for (const BarChart& chart : section.bars) {
      absl::StrAppend(&html, "<figure>\n", BarChartSvg(chart), "</figure>\n");
    }
    for (const LineChart& chart : section.lines) {
      absl::StrAppend(&html, "<figure>\n", LineChartSvg(chart), Legend(chart), "</figure>\n");
    }
    html += "</div>\n";
  }
  for (const ReportTable& table : section.tables) html += TableHtml(table);
  return html + "</section>\n";
}

ReportTable FactsTable(const char* title, const nlohmann::json& object) {
  ReportTable table{title, {"what", "value"}, {}};
  for (const auto& [name, value] : object.items()) {
    // Bytes that are no UTF-8 must not end the report.
    table.rows.push_back(
        {name, value.is_string()
                   ? value.get<std::string>()
                   : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
  }
  return table;
}

}  // namespace

std::string HtmlPage(const Report& report) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      EscapeMarkup(report.title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>",
      EscapeMarkup(report.title), "</h1>\n", Paragraphs(report.subtitle));
  for (const std::string& warning : report.warnings) {
    absl::StrAppend(&html, "<p class=\"warning\">", EscapeMarkup(warning), "</p>\n");
  }
  for (const ReportSection& section : report.sections) html += SectionHtml(section);
  return html + "</body>\n</html>\n";
}

ReportSection FactsSection(const nlohmann::json& config, const nlohmann::json& environment) {
  ReportSection section;
  section.heading = "Configuration and environment";
  section.tables.push_back(FactsTable("What was asked for", config));
  section.tables.push_back(FactsTable("Where it was measured", environment));
  return section;
}

absl::Status WriteReport(const std::string& path, const Report& report) {
  return WriteWholeFile(path, HtmlPage(report));
}

}  // namespace verbena::bench
