// The records that a run inserts, and which of them are there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <vector>

namespace verbena::bench {

// The share of one of several sources in the records that a run inserts: with `step` sources,
// source `index` inserts records + index, records + index + step and so on, so that no two insert
// the same.
struct InsertShare {
  uint64_t index = 0;
  uint64_t step = 1;
};

// Shared by all threads of a run; thread-safe. Positions number the records that this process knows
// of without gaps: first those of the load, then its own inserts.
//
// An insert counts as there when it and all before it have been acknowledged, as YCSB has it: what
// is acknowledged out of order waits.
class InsertSequence {
 public:
  // The load has left records 0 to records - 1.
  explicit InsertSequence(uint64_t records, const InsertShare& share = {})
      : records_(records), share_(share) {}

  // The record to insert next.
  uint64_t Next() { return RecordAt(records_ + next_.fetch_add(1, std::memory_order_relaxed)); }
  // The insert of `record` has ended. Also when it failed, as with YCSB: one that is never told
  // would hold up all behind it.
  void Acknowledge(uint64_t record);

  // The records at positions 0 to present() - 1 are there.
  uint64_t present() const { return records_ + acknowledged_.load(std::memory_order_acquire); }
  uint64_t RecordAt(uint64_t position) const {
    return position < records_ ? position
                               : records_ + share_.index + (position - records_) * share_.step;
  }

  // 0, 1, 2 and so on: what the distribution "sequential" deals out to the threads.
  uint64_t NextInTurn() { return turn_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const uint64_t records_;
  const InsertShare share_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> turn_{0};
  std::atomic<uint64_t> acknowledged_{0};  // written under mutex_
  std::mutex mutex_;
  // Acknowledged, but not all before them; the first on top.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> early_;
};

}  // namespace verbena::bench
