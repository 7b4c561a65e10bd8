#include "bench/workload/insert_sequence.h"

namespace verbena::bench {

void InsertSequence::Acknowledge(uint64_t record) {
  const uint64_t insert = (record - records_ - share_.index) / share_.step;
  std::lock_guard lock(mutex_);
  uint64_t acknowledged = acknowledged_.load(std::memory_order_relaxed);
  if (insert != acknowledged) {
    early_.push(insert);
    return;
  }
  ++acknowledged;
  for (; !early_.empty() && early_.top() == acknowledged; early_.pop()) ++acknowledged;
  acknowledged_.store(acknowledged, std::memory_order_release);
}

}  // namespace verbena::bench
