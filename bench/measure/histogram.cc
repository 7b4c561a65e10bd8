#include "bench/measure/histogram.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace verbena::bench {
namespace {

// 99.9 % of 1000 is 999, though the product of the doubles is a bit more.
constexpr double kNearlyOne = 1 - 1e-12;

}  // namespace

// calloc: what nobody has written to takes no memory. An atomic of zero bytes is a zero here.
Histogram::Cell* Histogram::NewCells() {
  static_assert(sizeof(Cell) == sizeof(uint64_t) && Cell::is_always_lock_free);
  void* const bytes = std::calloc(kCells, sizeof(Cell));
  if (bytes == nullptr) throw std::bad_alloc();
  return static_cast<Cell*>(bytes);
}

Histogram::Histogram() : storage_(NewCells()), counts_(storage_.get()) {}

Histogram::Histogram(const Histogram& other) : Histogram() { Merge(other); }

Histogram& Histogram::operator=(const Histogram& other) {
  if (this != &other) {
    Reset();
    Merge(other);
  }
  return *this;
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < kCells; ++i) {
    const uint64_t more = other.counts_[i].load(std::memory_order_relaxed);
    if (more != 0) Increase(counts_[i], more);
  }
  Increase(count_, other.count());
  Increase(sum_, other.sum_.load(std::memory_order_relaxed));
  max_.store(std::max(max(), other.max()), std::memory_order_relaxed);
}

void Histogram::Subtract(const Histogram& earlier) {
  for (size_t i = 0; i < kCells; ++i) {
    const uint64_t less = earlier.counts_[i].load(std::memory_order_relaxed);
    if (less != 0)
      Increase(counts_[i], -std::min(less, counts_[i].load(std::memory_order_relaxed)));
  }
  Increase(count_, -std::min(count(), earlier.count()));
  Increase(sum_, -std::min(sum(), earlier.sum()));
}

std::vector<Histogram::CellCount> Histogram::Cells() const {
  std::vector<CellCount> cells;
  for (size_t i = 0; i < kCells; ++i) {
    const uint64_t counted = counts_[i].load(std::memory_order_relaxed);
    if (counted != 0) cells.emplace_back(static_cast<uint32_t>(i), counted);
  }
  return cells;
}

bool Histogram::MergeParts(std::span<const CellCount> cells, uint64_t sum, uint64_t max) {
  for (const CellCount& cell : cells) {
    if (cell.first >= kCells) return false;
  }
  for (const CellCount& cell : cells) {
    Increase(counts_[cell.first], cell.second);
    Increase(count_, cell.second);
  }
  Increase(sum_, sum);
  max_.store(std::max(this->max(), max), std::memory_order_relaxed);
  return true;
}

void Histogram::Reset() {
  for (size_t i = 0; i < kCells; ++i) {
    if (counts_[i].load(std::memory_order_relaxed) != 0) {
      counts_[i].store(0, std::memory_order_relaxed);
    }
  }
  for (Cell* cell : {&count_, &sum_, &max_}) cell->store(0, std::memory_order_relaxed);
}

double Histogram::mean() const {
  const uint64_t n = count();
  return n == 0
             ? 0
             : static_cast<double>(sum_.load(std::memory_order_relaxed)) / static_cast<double>(n);
}

uint64_t Histogram::Percentile(double percent) const {
  // The total is taken from the cells, which a writer may have moved on since count_ was read.
  uint64_t total = 0;
  for (size_t i = 0; i < kCells; ++i) total += counts_[i].load(std::memory_order_relaxed);
  if (total == 0) return 0;
  const double share = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(total);
  const uint64_t target =
      std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(share * kNearlyOne)), 1, total);
  uint64_t seen = 0;
  for (size_t i = 0; i < kCells; ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    // The last cell also holds what was over kMaxValue.
    if (seen >= target)
      return i + 1 == kCells ? max() : std::min(histogram_internal::LastValueOf(i), max());
  }
  return max();
}

}  // namespace verbena::bench
