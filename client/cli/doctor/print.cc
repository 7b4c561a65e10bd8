#include "client/cli/doctor/print.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/output.h"

namespace verbena::cli::doctor {
namespace {

using Json = nlohmann::ordered_json;

const char* Colour(Status status) {
  switch (status) {
    case Status::kOk:
      return "\033[32m";
    case Status::kWarn:
      return "\033[33m";
    case Status::kFail:
      return "\033[31m";
  }
  return "";
}

// Where a check was made: "mtu mlx5_0/1".
std::string Title(const Check& check) {
  return check.subject.empty() ? check.id : absl::StrCat(check.id, " ", check.subject);
}

// Appends `text`, whose first line begins in column `indent`, in lines of at most `width` columns.
// A word that is longer than a line gets one of its own.
void AppendWrapped(const std::string& text, size_t indent, size_t width, std::string* out) {
  size_t column = indent;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > indent && column + 1 + word.size() > width) {
      absl::StrAppend(out, "\n", std::string(indent, ' '));
      column = indent;
    } else if (column > indent) {
      out->push_back(' ');
      ++column;
    }
    absl::StrAppend(out, word);
    column += word.size();
  }
  out->push_back('\n');
}

Json CheckJson(const Check& check) {
  // What comes from files and peers need not be text.
  const auto text = [](const std::string& bytes) {
    return IsUtf8(bytes) ? bytes : absl::CHexEscape(bytes);
  };
  Json json = {{"id", check.id}};
  if (!check.subject.empty()) json["subject"] = text(check.subject);
  json["status"] = StatusName(check.status);
  json["finding"] = text(check.finding);
  if (!check.remedy.empty()) json["remedy"] = text(check.remedy);
  for (const auto& [name, value] : check.figures) {
    // Counts without a fraction, as far as a double has them.
    if (value == std::floor(value) && std::abs(value) < 9e15) {
      json["figures"][name] = static_cast<int64_t>(value);
    } else {
      json["figures"][name] = value;
    }
  }
  return json;
}

}  // namespace

TextStyle StyleOfStandardOutput() {
  TextStyle style;
  if (isatty(STDOUT_FILENO) != 1) return style;
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    style.width = window.ws_col;
  }
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  style.colour = (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
                 std::string_view(terminal) != "dumb";
  return style;
}

std::string ReportText(const Report& report, const TextStyle& style) {
  constexpr size_t kStatusColumns = 6;
  constexpr std::string_view kReset = "\033[0m";
  const size_t width = std::max<size_t>(style.width, 60);
  size_t title_columns = 0;
  for (const Check& check : report.checks()) {
    title_columns = std::max(title_columns, Title(check).size());
  }
  const size_t indent = kStatusColumns + std::min(title_columns, width / 3) + 2;

  std::string out;
  for (const Check& check : report.checks()) {
    const std::string status = StatusName(check.status);
    if (style.colour) out += Colour(check.status);
    out += status;
    if (style.colour) out += kReset;
    out += std::string(kStatusColumns - status.size(), ' ');
    const std::string title = Title(check);
    out += title;
    if (kStatusColumns + title.size() + 2 <= indent) {
      out += std::string(indent - kStatusColumns - title.size(), ' ');
    } else {
      absl::StrAppend(&out, "\n", std::string(indent, ' '));
    }
    AppendWrapped(check.finding, indent, width, &out);
    if (check.remedy.empty()) continue;
    absl::StrAppend(&out, std::string(indent, ' '), "-> ");
    AppendWrapped(check.remedy, indent + 3, width, &out);
  }
  const size_t warnings = report.Count(Status::kWarn);
  const size_t failures = report.Count(Status::kFail);
  absl::StrAppend(&out, "\n", report.checks().size(), " checks: ", report.Count(Status::kOk),
                  " OK, ", warnings, warnings == 1 ? " warning, " : " warnings, ", failures,
                  failures == 1 ? " failure\n" : " failures\n");
  return out;
}

std::string ReportJson(const Report& report) {
  Json checks = Json::array();
  for (const Check& check : report.checks()) checks.push_back(CheckJson(check));
  const Json json = {{"checks", std::move(checks)},
                     {"counts",
                      {{"ok", report.Count(Status::kOk)},
                       {"warn", report.Count(Status::kWarn)},
                       {"fail", report.Count(Status::kFail)}}},
                     {"exit_status", report.ExitStatus()}};
  return json.dump();
}

}  // namespace verbena::cli::doctor
