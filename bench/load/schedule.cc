#include "bench/load/schedule.h"

#include <algorithm>
#include <cmath>

namespace verbena::bench {

const char* ArrivalName(Arrival arrival) {
  switch (arrival) {
    case Arrival::kFixed:
      return "fixed";
    case Arrival::kPoisson:
      return "poisson";
    case Arrival::kTrace:
      return "trace";
  }
  return "unknown";
}

Schedule::Schedule(Arrival arrival, double rate, uint64_t seed, uint32_t index, uint32_t count)
    : arrival_(arrival),
      interval_(1e9 / rate),
      random_(seed),
      first_(interval_ * index / std::max(count, 1U)),
      due_(first_) {
  if (arrival_ == Arrival::kPoisson) {
    due_ = 0;
    Advance();
  }
}

void Schedule::Advance() {
  ++number_;
  // Fixed times are multiples, so that no error adds up. 1 - u lies in (0, 1].
  due_ = arrival_ == Arrival::kFixed ? first_ + static_cast<double>(number_) * interval_
                                     : due_ - std::log(1 - random_.NextDouble()) * interval_;
}

void Backlog::Count(int64_t now) {
  for (; !Complete() && ahead_.due() <= now; ahead_.Advance()) ++due_;
}

void Backlog::Look(int64_t now, uint64_t submitted) {
  Count(now);
  last_ = due_ - std::min(due_, submitted);
  most_ = std::max(most_, last_);
}

void Backlog::Restart(int64_t now, uint64_t submitted) {
  Count(now);
  restarted_ = true;
  due_at_restart_ = due_;
  last_ = most_ = due_ - std::min(due_, submitted);
}

}  // namespace verbena::bench
