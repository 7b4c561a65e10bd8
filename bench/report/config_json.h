// All that a run was asked for, so that it can be repeated.
#pragma once

#include "bench/config.h"
#include "nlohmann/json_fwd.hpp"

namespace verbena::bench {

nlohmann::json ConfigJson(const Config& config);

}  // namespace verbena::bench
