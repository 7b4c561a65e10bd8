// A log-linear histogram of durations, from 1 ns to 100 s with three significant digits: values
// under 2048 ns are counted exactly, and every doubling above has 1024 steps.
//
// One thread records; any thread may read or merge at the same time and sees a snapshot that may be
// off by what is being recorded. Recording neither allocates nor locks. Its 220 KiB take memory
// only where something was counted.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace verbena::bench {

namespace histogram_internal {

inline constexpr unsigned kStepBits = 10;  // 2^10 steps in each doubling
inline constexpr size_t kSteps = size_t{1} << kStepBits;

constexpr size_t IndexOf(uint64_t value) {
  const auto width = static_cast<unsigned>(std::bit_width(value));
  const unsigned shift = width > kStepBits + 1 ? width - kStepBits - 1 : 0;
  return shift * kSteps + static_cast<size_t>(value >> shift);
}

// The largest value with this index.
constexpr uint64_t LastValueOf(size_t index) {
  if (index < 2 * kSteps) return index;
  const size_t shift = index / kSteps - 1;
  return ((uint64_t{index % kSteps + kSteps} + 1) << shift) - 1;
}
static_assert(IndexOf(2047) == 2047 && IndexOf(2048) == 2048 && IndexOf(2049) == 2048);
static_assert(LastValueOf(2048) == 2049 && LastValueOf(IndexOf(1 << 20)) == (1 << 20) + 1023);

}  // namespace histogram_internal

class Histogram {
 public:
  // Larger values are counted as this one (max() still tells them).
  static constexpr uint64_t kMaxValue = 100'000'000'000;

  Histogram();
  Histogram(const Histogram& other);
  Histogram& operator=(const Histogram& other);

  void Record(uint64_t nanos) {
    Increase(counts_[histogram_internal::IndexOf(nanos < kMaxValue ? nanos : kMaxValue)], 1);
    Increase(count_, 1);
    Increase(sum_, nanos);
    if (nanos > max_.load(std::memory_order_relaxed)) {
      max_.store(nanos, std::memory_order_relaxed);
    }
  }

  // Adds all that `other` has counted.
  void Merge(const Histogram& other);
  // Takes away what an earlier snapshot of the same histogram had counted; max() stays. What was
  // counted anew since (Reset) cannot become less than nothing.
  void Subtract(const Histogram& earlier);
  void Reset();

  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  uint64_t max() const { return max_.load(std::memory_order_relaxed); }
  double mean() const;
  // The smallest value that at least `percent` % of the recorded ones do not exceed, rounded up by
  // less than 0.1 %; never more than max(). 0 if nothing was recorded.
  uint64_t Percentile(double percent) const;
  // The smallest value, rounded likewise.
  uint64_t min() const { return Percentile(0); }

  // The parts of a histogram, to be put together by another process: the numbers and counts of the
  // cells that hold something, in ascending order, and the sum of all values.
  static constexpr size_t kCells = histogram_internal::IndexOf(kMaxValue) + 1;
  using CellCount = std::pair<uint32_t, uint64_t>;
  std::vector<CellCount> Cells() const;
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }
  // Adds such parts. False, and nothing is added, if a number is none of a cell's.
  bool MergeParts(std::span<const CellCount> cells, uint64_t sum, uint64_t max);

 private:
  using Cell = std::atomic<uint64_t>;
  // There is one writer, so this need not be an atomic addition.
  static void Increase(Cell& cell, uint64_t by) {
    cell.store(cell.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  struct Free {
    void operator()(Cell* cells) const { std::free(cells); }
  };
  static Cell* NewCells();

  std::unique_ptr<Cell[], Free> storage_;
  Cell* counts_;
  Cell count_{0};
  Cell sum_{0};
  Cell max_{0};
};

}  // namespace verbena::bench
