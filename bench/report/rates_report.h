// Runs at several rates as a table, as JSON and as a page.
#pragma once

#include <string>

#include "bench/config.h"
#include "bench/load/rates.h"
#include "bench/report/html_report.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

std::string RatesTable(const Config& config, const RunContext& context, const RatesResult& rates);
nlohmann::json RatesJson(const Config& config, const RunContext& context, const RatesResult& rates);
// A page with percentiles and throughput by rate.
Report RatesReport(const Config& config, const RunContext& context, const RatesResult& rates);

}  // namespace verbena::bench
