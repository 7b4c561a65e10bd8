#include "common/base/wait_notice.h"

#include <cstdio>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/blocked_signals.h"
#include "common/base/text.h"
#include "common/base/threads.h"

namespace verbena {

std::string WaitNoticeText(std::string_view program, std::string_view what,
                           std::chrono::milliseconds left, std::string_view bound) {
  const std::time_t end =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + left);
  std::tm local{};
  char clock[16] = "?";
  if (localtime_r(&end, &local) != nullptr) std::strftime(clock, sizeof(clock), "%T", &local);
  return absl::StrCat(ToAbsl(program), ": waiting for ", ToAbsl(what), ", until ", clock,
                      " at the latest (", ToAbsl(bound), ")");
}

WaitNotice::~WaitNotice() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

void WaitNotice::Begin(std::string what, std::chrono::milliseconds limit, std::string bound) {
  {
    const std::lock_guard lock(mutex_);
    if (told_) return;
    const Clock::time_point now = Clock::now();
    awaited_ = {std::move(what), std::move(bound), now, now + limit};
  }
  if (watcher_.joinable()) {
    changed_.notify_one();
    return;
  }
  const BlockedSignals blocked;
  if (auto made = MakeThread("a notice", [this] { Watch(); }); made.ok()) {
    watcher_ = *std::move(made);
  }
}

// The watcher is left to sleep: it looks again when its time is up.
void WaitNotice::End() {
  const std::lock_guard lock(mutex_);
  awaited_.reset();
}

void WaitNotice::Watch() {
  std::unique_lock lock(mutex_);
  while (!leaving_ && !told_) {
    if (!awaited_.has_value()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point due = awaited_->begin + kPatience;
    const Clock::time_point now = Clock::now();
    if (now < due) {
      changed_.wait_until(lock, due);
      continue;
    }
    if (awaited_->end <= now) {
      awaited_.reset();
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(awaited_->end - now);
    const std::string line = WaitNoticeText(program_, awaited_->what, left, awaited_->bound);
    std::fprintf(stderr, "%s\n", line.c_str());
    told_ = true;
  }
}

}  // namespace verbena
