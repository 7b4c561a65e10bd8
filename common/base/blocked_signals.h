// Starting threads that take none of the application's signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace verbena {

// While it exists, the calling thread has all signals blocked; threads that it starts meanwhile
// have them blocked for good. Signals belong to the application, which may expect them in threads
// of its own.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace verbena
