// Tells those who ask for it that they are in the child of a fork.
//
// A queue pair and all that belongs to it are the process's that made them. A child has copies of
// the pointers and descriptors; using them, or only destroying what they stand for, would disturb
// the parent. So a child must leave them alone, and has to be told that it is one: not by asking
// for the process's id with each operation, which is a system call, but once, by the C library
// (pthread_atfork).
#pragma once

namespace verbena::client {

class ForkObserver {
 public:
  // In the child, in its only thread. A lock that another thread held at the time of the fork stays
  // locked; memory can be had.
  virtual void OnForkInChild() = 0;

 protected:
  ~ForkObserver() = default;
};

// While it exists, `observer` is told of every fork of the process. Another thread may fork at any
// time: so the observer must be whole as long as it exists (as a member it is the last one).
// Thread-safe to make and destroy.
class ForkWatch {
 public:
  explicit ForkWatch(ForkObserver& observer);
  ~ForkWatch();
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;

 private:
  ForkObserver& observer_;
};

}  // namespace verbena::client
