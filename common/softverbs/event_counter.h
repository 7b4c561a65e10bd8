// An eventfd: the descriptor behind completion channels, async_fd, CM channels and the device's
// kick. Readable (poll, epoll) while something is waiting; obeys O_NONBLOCK as set by its user.
// Thread-safe.
//
// Peers hold some of these descriptors, and with them the count and the flags: they can write any
// count, take it away, and set or clear O_NONBLOCK. Those counters are made by CreateShared: one
// read takes the whole count, so that it costs no more to be rid of 2^64 signals than of one.
#pragma once

#include "common/base/unique_fd.h"

namespace verbena::softverbs {

class EventCounter {
 public:
  // One signal per take. Not for descriptors that peers get. errno says why if !valid().
  static EventCounter Create();
  // All signals per take: what has happened is to be looked up elsewhere.
  static EventCounter CreateShared();

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

  void Signal() const { SignalFd(fd_.get()); }
  // Takes a signal (CreateShared: all); waits for it unless the descriptor is O_NONBLOCK. 0, or -1
  // with errno.
  int Take() const;
  // The same without ever waiting, whatever the flags say. 0, or -1 with errno EAGAIN.
  int TryTake() const;

  // Never waits: a counter that is full is signalled enough.
  static void SignalFd(int fd);
  // Whether a descriptor that a peer has passed is an event counter. Writing to anything else, a
  // full pipe for one, could block for ever.
  static bool IsEventCounter(int fd);

 private:
  UniqueFd fd_;
};

}  // namespace verbena::softverbs
