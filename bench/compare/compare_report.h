// A comparison as a page.
#pragma once

#include "bench/compare/comparison.h"
#include "bench/config.h"
#include "bench/report/html_report.h"

namespace verbena::bench {

Report CompareReport(const Config& config, const ComparisonResult& result);

// The number of a system in ComparedSystems(): its colour in every chart.
size_t ColorOf(const std::string& system);

}  // namespace verbena::bench
