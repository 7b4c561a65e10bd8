// The server's storage in this process, without a network.
#pragma once

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/baseline/baseline_keys.h"
#include "bench/config.h"
#include "bench/measure/ticks.h"

namespace verbena::storage {
class Store;
}

namespace verbena::bench {

// Not thread-safe.
class StorageBaseline {
 public:
  // Makes a store and fills it with the records of `config`. ResourceExhausted if there is not
  // enough memory for a second copy of them.
  static absl::StatusOr<std::unique_ptr<StorageBaseline>> Create(const Config& config,
                                                                 uint64_t used_bytes);
  ~StorageBaseline();

  // Puts each value; `nanos` gets one time for each, less `overhead`.
  absl::Status Put(const KeySequence& keys, const ValueSequence& values, double overhead,
                   std::span<uint32_t> nanos);

 private:
  explicit StorageBaseline(std::unique_ptr<storage::Store> store);

  std::unique_ptr<storage::Store> store_;
  const TickClock clock_;
};

}  // namespace verbena::bench
