// The store's own side of the baseline: GETs and PUTs through a connection, timed in the same
// manner as the fabric's READs and messages.
#pragma once

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/baseline_keys.h"
#include "bench/config.h"
#include "bench/ticks.h"
#include "verbena/connection.h"

namespace verbena::bench {

// Not thread-safe.
class ClientBaseline {
 public:
  // Connects and GETs every record once, so that the index cache is warm.
  static absl::StatusOr<std::unique_ptr<ClientBaseline>> Create(const Config& config);

  Connection& connection() { return *connection_; }

  // GETs each key, one after the other; every cache line of the value is touched. `nanos` gets one
  // time for each, less `overhead`.
  absl::Status GetOneByOne(const KeySequence& keys, double overhead, std::span<uint32_t> nanos);
  // GETs each key with up to `depth` in flight. Returns GETs per second.
  absl::StatusOr<double> GetPipelined(const KeySequence& keys, uint32_t depth);
  absl::Status PutOneByOne(const KeySequence& keys, const ValueSequence& values, double overhead,
                           std::span<uint32_t> nanos);

 private:
  explicit ClientBaseline(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  absl::Status Warm(const Config& config);
  void Consume(std::string_view value);

  std::unique_ptr<Connection> connection_;
  const TickClock clock_;
  volatile uint64_t consumed_ = 0;
};

}  // namespace verbena::bench
