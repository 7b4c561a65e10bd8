// Runs at several rates as a table and as JSON.
#pragma once

#include <string>

#include "bench/config.h"
#include "bench/load/rates.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

std::string RatesTable(const Config& config, const RunContext& context, const RatesResult& rates);
nlohmann::json RatesJson(const Config& config, const RunContext& context, const RatesResult& rates);

}  // namespace verbena::bench
