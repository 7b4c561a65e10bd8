// What the log's lines are written by, for tests that look at them; see log.h.
#pragma once

#include <memory>

namespace spdlog {
class logger;
}

namespace verbena {

// Returns the one before. No other thread may log meanwhile.
std::shared_ptr<spdlog::logger> ReplaceLogger(std::shared_ptr<spdlog::logger> logger);

}  // namespace verbena
