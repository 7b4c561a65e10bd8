// A process in which no thread can be made.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace verbena::testing {

// While it exists, threads with default attributes (as std::thread has) ask for a stack that is
// larger than the address space, so that there are none to be had: for privileged users too, whom
// RLIMIT_NPROC does not stop.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, size_t{1} << 62);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace verbena::testing
