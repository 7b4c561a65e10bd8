// A word to whoever sits before a program that waits and says nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace verbena {

// "verbena-cli: waiting for WHAT, until 14:03:07 at the latest (BOUND)". The time of day is local.
std::string WaitNoticeText(std::string_view program, std::string_view what,
                           std::chrono::milliseconds left, std::string_view bound);

// For programs that wait: a line on standard error, once in the life of the object, when something
// has been waited for longer than kPatience; never on standard output. Where no thread can be had
// the line is missing, and nothing else.
//
// Begin and End are called by one thread.
class WaitNotice {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};

  // `program` begins the line.
  explicit WaitNotice(std::string program) : program_(std::move(program)) {}
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

  // `what` is waited for from now on (instead of anything before), for `limit` at most; `bound`
  // names what sets that limit: "--timeout=5s". Nothing is told where the limit ends the waiting
  // before anybody would ask.
  void Begin(std::string what, std::chrono::milliseconds limit, std::string bound);
  // It has come, or is given up.
  void End();

 private:
  using Clock = std::chrono::steady_clock;
  struct Awaited {
    std::string what;
    std::string bound;
    Clock::time_point begin;
    Clock::time_point end;
  };

  void Watch();

  const std::string program_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Awaited> awaited_;
  bool told_ = false;
  bool leaving_ = false;
  std::thread watcher_;  // made when first needed
};

}  // namespace verbena
