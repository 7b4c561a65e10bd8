// What this process logs while one of these lives, warnings and errors; they are not printed. Made
// and destroyed while no other thread logs. Not thread-safe but for what is logged.
#pragma once

#include <memory>
#include <sstream>
#include <string>

namespace spdlog {
class logger;
}

namespace verbena::testing {

class CapturedLog {
 public:
  CapturedLog();
  ~CapturedLog();
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // Lines, each with its level before it. Only while nobody logs.
  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  std::shared_ptr<spdlog::logger> old_;
};

}  // namespace verbena::testing
