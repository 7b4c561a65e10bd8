// The runs of large values that are being put: prepared, and not published. They stay where they
// are, and nothing that is evicted or moved makes room there. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace verbena::storage {

class PreparedRuns {
 public:
  void Add(uint64_t offset) {
    const std::lock_guard lock(lock_);
    offsets_.insert(offset);
  }
  void Remove(uint64_t offset) {
    const std::lock_guard lock(lock_);
    offsets_.erase(offset);
  }
  void AppendTo(std::vector<uint64_t>& offsets) const {
    const std::lock_guard lock(lock_);
    offsets.insert(offsets.end(), offsets_.begin(), offsets_.end());
  }

 private:
  mutable std::mutex lock_;
  std::unordered_set<uint64_t> offsets_;
};

}  // namespace verbena::storage
