// The log: lines of text with a level, written to stderr by a logger that is the library's own.
//
//   LogWarn("connection ", id, " is closed: ", status.message());
//
// Arguments are anything that absl::StrCat takes; they are joined only if the level is on. A
// library logs defects and what nobody else can tell; what a caller can be told is a Status.
// Thread-safe. This header keeps spdlog's formatting machinery out of the files that log.
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace verbena {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kCritical };

bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, absl::string_view text);

// Programs call this first: lines below `level` ("debug", "info", "warn", "error", "critical",
// "off") are dropped, the others go to stderr, with time stamps if wanted, coloured on a terminal.
// False if there is no such level.
bool SetUpLog(const char* program, absl::string_view level, bool time_stamps);

template <typename... Args>
void LogAt(LogLevel level, const Args&... args) {
  if (LogEnabled(level)) LogLine(level, absl::StrCat(args...));
}
template <typename... Args>
void LogDebug(const Args&... args) {
  LogAt(LogLevel::kDebug, args...);
}
template <typename... Args>
void LogInfo(const Args&... args) {
  LogAt(LogLevel::kInfo, args...);
}
template <typename... Args>
void LogWarn(const Args&... args) {
  LogAt(LogLevel::kWarn, args...);
}
template <typename... Args>
void LogError(const Args&... args) {
  LogAt(LogLevel::kError, args...);
}
template <typename... Args>
void LogCritical(const Args&... args) {
  LogAt(LogLevel::kCritical, args...);
}

}  // namespace verbena
