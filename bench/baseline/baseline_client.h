// The store's own side of the baseline, GETs and PUTs through a connection, and what the fabric
// does alone on the same queue pair: READs with nothing around them. Timed in the same manner.
#pragma once

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/baseline/baseline_keys.h"
#include "bench/config.h"
#include "bench/measure/ticks.h"
#include "client/src/raw_reads.h"
#include "verbena/connection.h"

namespace verbena::bench {

// Not thread-safe.
class ClientBaseline {
 public:
  // Connects and GETs every record once, so that the index cache is warm.
  static absl::StatusOr<std::unique_ptr<ClientBaseline>> Create(const Config& config);

  Connection& connection() { return *connection_; }

  // Before the first plain READ: READs of `block_size` bytes, at most `depth` at once.
  absl::Status PrepareReads(uint32_t depth, uint32_t block_size);
  // READs in flight at once that were allowed.
  uint32_t read_depth() const { return reads_->depth(); }
  uint64_t slice_size() const { return reads_->slice_size(); }
  // READs one block at each offset of the server's slice, each after the one before has completed
  // and every cache line that landed was touched. `nanos` gets one time for each, less `overhead`.
  absl::Status ReadOneByOne(std::span<const uint64_t> offsets, double overhead,
                            std::span<uint32_t> nanos);
  // READs one block at each offset with up to read_depth() in flight, posted as lists with one
  // doorbell, consumed as above. Returns READs per second.
  absl::StatusOr<double> ReadPipelined(std::span<const uint64_t> offsets);

  // GETs each key, one after the other; every cache line of the value is touched. `nanos` gets one
  // time for each, less `overhead`.
  absl::Status GetOneByOne(const KeySequence& keys, double overhead, std::span<uint32_t> nanos);
  // GETs each key with up to `depth` in flight. Returns GETs per second.
  absl::StatusOr<double> GetPipelined(const KeySequence& keys, uint32_t depth);
  absl::Status PutOneByOne(const KeySequence& keys, const ValueSequence& values, double overhead,
                           std::span<uint32_t> nanos);

 private:
  ClientBaseline(std::unique_ptr<Connection> connection, bool sleeps)
      : connection_(std::move(connection)), sleeps_(sleeps) {}
  absl::Status Warm(const Config& config);
  void Turn();
  void ConsumeBlock(uint32_t place);
  void Consume(std::string_view value);

  std::unique_ptr<Connection> connection_;
  const bool sleeps_;  // whoever waits sleeps at once
  std::unique_ptr<client::RawReads> reads_;
  uint32_t block_size_ = 0;
  const TickClock clock_;
  volatile uint64_t consumed_ = 0;
};

}  // namespace verbena::bench
