#include "common/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "common/base/logger.h"

namespace verbena {
namespace {

std::shared_ptr<spdlog::logger> ToStandardError(const char* name, const std::string& pattern) {
  auto logger = std::make_shared<spdlog::logger>(
      name, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern(pattern);
  return logger;
}

// spdlog's default logger is the application's own, and writes to standard output: what the library
// has to say goes by a logger that spdlog's registry does not know. Lives as long as the process.
std::shared_ptr<spdlog::logger>& Logger() {
  static auto* const logger =
      new std::shared_ptr<spdlog::logger>(ToStandardError("verbena", "verbena: %^%l%$: %v"));
  return *logger;
}

// Made here, before there are threads.
[[maybe_unused]] const spdlog::logger* const kMadeBeforeThreads = Logger().get();

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kCritical:
      break;
  }
  return spdlog::level::critical;
}

}  // namespace

bool LogEnabled(LogLevel level) { return Logger()->should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, absl::string_view text) {
  Logger()->log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

bool SetUpLog(const char* program, absl::string_view level, bool time_stamps) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return false;  // from_str's "unknown"
  ReplaceLogger(ToStandardError(
      program, time_stamps ? "%Y-%m-%dT%H:%M:%S.%e %^%-5l%$ %v" : std::string(program) + ": %v"));
  Logger()->set_level(parsed);
  return true;
}

std::shared_ptr<spdlog::logger> ReplaceLogger(std::shared_ptr<spdlog::logger> logger) {
  return std::exchange(Logger(), std::move(logger));
}

}  // namespace verbena
