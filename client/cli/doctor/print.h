// The doctor's report as text for people and as JSON for programs.
#pragma once

#include <cstddef>
#include <string>

#include "client/cli/doctor/report.h"

namespace verbena::cli::doctor {

struct TextStyle {
  size_t width = 100;  // columns; at least 60 are used
  bool colour = false;
};

// The style for standard output: colour and the window's width on a terminal (NO_COLOR is obeyed).
TextStyle StyleOfStandardOutput();

// Each check with its finding and remedy, wrapped and aligned, and a line that counts them.
std::string ReportText(const Report& report, const TextStyle& style);

// One JSON object, in one line:
//   {"checks": [{"id", "subject", "status": "OK"|"WARN"|"FAIL", "finding", "remedy",
//                "figures": {name: number}}],
//    "counts": {"ok", "warn", "fail"}, "exit_status"}
// subject, remedy and figures are left out where there are none.
std::string ReportJson(const Report& report);

}  // namespace verbena::cli::doctor
