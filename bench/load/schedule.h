// When the operations of an open loop are due.
#pragma once

#include <cstdint>

#include "bench/workload/random.h"

namespace verbena::bench {

enum class Arrival { kFixed, kPoisson, kTrace };
// "fixed", "poisson" or, of a trace's timestamps, "trace".
const char* ArrivalName(Arrival arrival);

// An endless row of times, in nanoseconds since the start, of one thread's operations: in equal
// intervals, or as a Poisson process (the intervals independent and exponentially distributed, so
// that several threads together are a Poisson process again). Two schedules that are made alike go
// through the same times. Not thread-safe.
class Schedule {
 public:
  // `rate` is in operations a second, above 0. Of `count` threads, the one with number `index` has
  // its fixed intervals shifted by index/count of one, so that together they are due in equal
  // intervals too.
  Schedule(Arrival arrival, double rate, uint64_t seed, uint32_t index = 0, uint32_t count = 1);

  // The time of the next operation, and on to the one behind it.
  int64_t due() const { return static_cast<int64_t>(due_); }
  void Advance();

 private:
  const Arrival arrival_;
  const double interval_;  // ns, in the mean
  Random random_;
  uint64_t number_ = 0;
  double first_;
  double due_;
};

// How many operations are due and wait: counted by running through the same schedule ahead of what
// was submitted, so that the memory does not grow with the backlog. Not thread-safe.
class Backlog {
 public:
  // `limit`: how many operations there will be after Restart; 0: no limit.
  Backlog(const Schedule& schedule, uint64_t limit) : limit_(limit), ahead_(schedule) {}

  // Counts what is due at `now`, and notes the backlog beside the `submitted` ones so far.
  void Look(int64_t now, uint64_t submitted);
  // Counts anew: operations due before `now` belong to the warm-up.
  void Restart(int64_t now, uint64_t submitted);

  uint64_t due() const { return due_ - due_at_restart_; }
  uint64_t most() const { return most_; }
  uint64_t last() const { return last_; }

 private:
  void Count(int64_t now);
  bool Complete() const { return restarted_ && limit_ != 0 && due() >= limit_; }

  const uint64_t limit_;
  Schedule ahead_;
  bool restarted_ = false;
  uint64_t due_ = 0;
  uint64_t due_at_restart_ = 0;
  uint64_t most_ = 0;
  uint64_t last_ = 0;
};

}  // namespace verbena::bench
