#include "tests/integration/captured_log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace verbena::testing {

CapturedLog::CapturedLog() : old_(spdlog::default_logger()) {
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
  auto logger = std::make_shared<spdlog::logger>("captured", sink);
  logger->set_pattern("%l: %v");
  logger->set_level(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

CapturedLog::~CapturedLog() { spdlog::set_default_logger(old_); }

}  // namespace verbena::testing
