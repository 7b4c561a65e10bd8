// Tells those who ask for it that they are in the child of a fork.
//
// A queue pair and all that belongs to it are the process's that made them. A child has copies of
// the pointers and descriptors; using them, or only destroying what they stand for, would disturb
// the parent. So a child must leave them alone, and has to be told that it is one: not by asking
// for the process's id with each operation, which is a system call, but once, by the C library
// (pthread_atfork).
#pragma once

namespace verbena::client {

// Told of every fork of the process while it exists. Registers itself; thread-safe to make and
// destroy.
class ForkObserver {
 public:
  ForkObserver(const ForkObserver&) = delete;
  ForkObserver& operator=(const ForkObserver&) = delete;

  // In the child, in its only thread. A lock that another thread held at the time of the fork stays
  // locked; memory can be had.
  virtual void OnForkInChild() = 0;

 protected:
  ForkObserver();
  virtual ~ForkObserver();
};

}  // namespace verbena::client
