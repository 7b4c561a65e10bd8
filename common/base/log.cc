#include "common/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <string>

namespace verbena {
namespace {

// The library makes its logger at the first use. That is here, before there are threads.
[[maybe_unused]] const spdlog::logger* const kMadeBeforeThreads = spdlog::default_logger_raw();

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

bool LogEnabled(LogLevel level) {
  return spdlog::default_logger_raw()->should_log(ToSpdlog(level));
}

void LogLine(LogLevel level, absl::string_view text) {
  spdlog::default_logger_raw()->log(ToSpdlog(level),
                                    spdlog::string_view_t(text.data(), text.size()));
}

bool SetUpLog(const char* program, absl::string_view level, bool time_stamps) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return false;  // from_str's "unknown"
  spdlog::set_default_logger(spdlog::stderr_color_mt(program));
  spdlog::set_pattern(time_stamps ? "%Y-%m-%dT%H:%M:%S.%e %^%-5l%$ %v"
                                  : std::string(program) + ": %v");
  spdlog::set_level(parsed);
  return true;
}

}  // namespace verbena
