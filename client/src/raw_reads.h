// Plain RDMA READs on a connection's own QP, with nothing of the store around them: what its GETs
// are measured against.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/access.h"
#include "client/src/connection_impl.h"
#include "common/base/shared_memory.h"
#include "common/verbs/owners.h"
#include "verbena/connection.h"

namespace verbena::client {

// While it is used the connection must have nothing in flight, and the connection must outlive it.
// Waits as the connection's own calls do: polls for Options::poll_time, then sleeps. Not
// thread-safe.
class RawReads {
 public:
  // For READs of `block_size` bytes, at most as many at once as `depth`, the device and the server
  // allow; they land in memory of its own.
  static absl::StatusOr<std::unique_ptr<RawReads>> Create(Connection& connection, uint32_t depth,
                                                          uint32_t block_size);

  uint32_t depth() const { return depth_; }
  // Bytes of the server's slice: offset + block size may not exceed it.
  uint64_t slice_size() const { return impl_.slice_size(); }
  // What the READ that was posted for a place has brought.
  const uint8_t* block(uint32_t place) const { return memory_.data() + uint64_t{place} * stride_; }

  // Posts one READ for each of `places` (each below depth() and without a READ in flight) with one
  // doorbell, from the offsets beside them.
  absl::Status Post(std::span<const uint32_t> places, std::span<const uint64_t> offsets);
  // Waits until at least one READ has completed, by `deadline` (MonotonicNanos()). `completed` has
  // room for depth() places. Returns their number.
  absl::StatusOr<uint32_t> Await(std::span<uint32_t> completed, int64_t deadline);

 private:
  RawReads(Connection::Impl& impl, uint32_t depth, uint32_t block_size);
  absl::StatusOr<uint32_t> Poll(std::span<uint32_t> completed);

  Connection::Impl& impl_;
  const uint32_t depth_;
  const uint32_t block_size_;
  uint64_t stride_ = 0;
  SharedMemory memory_;
  verbs::MemoryRegion region_;
  std::unique_ptr<ibv_send_wr[]> requests_;
  std::unique_ptr<ibv_sge[]> pieces_;
};

}  // namespace verbena::client
