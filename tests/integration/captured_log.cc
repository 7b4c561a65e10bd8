#include "tests/integration/captured_log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "common/base/logger.h"

namespace verbena::testing {

CapturedLog::CapturedLog() {
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
  auto logger = std::make_shared<spdlog::logger>("captured", sink);
  logger->set_pattern("%l: %v");
  logger->set_level(spdlog::level::warn);
  old_ = ReplaceLogger(std::move(logger));
}

CapturedLog::~CapturedLog() { ReplaceLogger(std::move(old_)); }

}  // namespace verbena::testing
