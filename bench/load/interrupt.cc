#include "bench/load/interrupt.h"

#include <signal.h>

#include <atomic>

namespace verbena::bench {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void OnSignal(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }

}  // namespace verbena::bench
