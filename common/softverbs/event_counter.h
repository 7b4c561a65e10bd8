// An eventfd that counts: the descriptor behind completion channels, async_fd and CM channels.
// Readable (poll, epoll) while something is waiting; obeys O_NONBLOCK as set by its user.
// Thread-safe.
#pragma once

#include "common/base/unique_fd.h"

namespace verbena::softverbs {

class EventCounter {
 public:
  // errno says why if !valid().
  static EventCounter Create();

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

  void Signal() const { SignalFd(fd_.get()); }
  // Takes one count; waits for it unless the descriptor is O_NONBLOCK. 0, or -1 with errno.
  int Take() const;
  // Takes one count if there is one, never waits.
  void Discard() const;

  // Never waits: a counter that is full is signalled enough.
  static void SignalFd(int fd);
  // Whether a descriptor that a peer has passed is an event counter. Writing to anything else, a
  // full pipe for one, could block for ever.
  static bool IsEventCounter(int fd);

 private:
  UniqueFd fd_;
};

}  // namespace verbena::softverbs
