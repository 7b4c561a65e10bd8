#include "server/admin/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/threads.h"

namespace verbena::admin {
namespace {

// Two signals this close are one wish, sent twice.
constexpr int64_t kSameSignal = 200'000'000;

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

absl::StatusOr<StopSignals*> StopSignals::Start() {
  static auto* const signals = new StopSignals;
  static const absl::Status started = [] {
    absl::StatusOr<std::thread> thread = MakeThread("signals", [] { signals->Run(); });
    if (thread.ok()) thread->detach();
    return thread.status();
  }();
  VERBENA_RETURN_IF_ERROR(started);
  return signals;
}

void StopSignals::SetServing() {
  const std::lock_guard lock(mutex_);
  serving_ = true;
}

int StopSignals::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return signal_ != 0; });
  return signal_;
}

void StopSignals::Run() {
  const sigset_t set = StopSet();
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    const std::lock_guard lock(mutex_);
    if (!serving_) {
      LogInfo(strsignal(signal), " while starting: nothing to finish");
      _exit(0);
    }
    if (signal_ != 0) {
      // Shells and supervisors often signal both the process and its group.
      if (MonotonicNanos() - first_ < kSameSignal) continue;
      LogWarn("a second signal (", strsignal(signal), "): ending at once");
      _exit(1);
    }
    signal_ = signal;
    first_ = MonotonicNanos();
    changed_.notify_all();
  }
}

}  // namespace verbena::admin
