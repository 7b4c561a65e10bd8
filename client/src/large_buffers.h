// Registered memory for values that do not fit the connection's fixed buffers: the targets of large
// READs, and large values that the server READs from here.
//
// Buffers are powers of two from 64 KiB to 4 MiB and multiples of 4 MiB, made when first needed and
// kept for the next time. All together stay under a limit, but one buffer of any size can always be
// had. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "common/base/shared_memory.h"
#include "common/verbs/device.h"

namespace verbena::client {

class LargeBuffers {
 public:
  struct Buffer {
    SharedMemory memory;
    verbs::MemoryRegion region;  // destroyed before the memory

    std::span<uint8_t> bytes() const { return memory.bytes(); }
  };
  static constexpr uint64_t kSmallest = 64 * 1024;

  // `endpoint` is borrowed. Buffers can be read by the peer.
  LargeBuffers(const Endpoint& endpoint, uint64_t limit) : endpoint_(&endpoint), limit_(limit) {}

  // A buffer of at least `bytes`, or nullptr if the limit is reached: try again after a Release.
  // ResourceExhausted if memory cannot be had or registered, or the device does not register so
  // much in one piece.
  absl::StatusOr<Buffer*> Acquire(uint64_t bytes);
  void Release(Buffer* buffer);
  // Frees all; none may be in use.
  void Clear();
  // The endpoint's device is to be let go: those in use keep their memory, but no device knows it;
  // the others are freed. Until Register only Release may be called.
  void Unregister();
  // Goes on with another endpoint, with which those in use are registered. On an error none is.
  absl::Status Register(const Endpoint& endpoint);
  // In the child after a fork, where the buffers are the parent's: none is freed from now on.
  void Abandon();

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t idle_bytes() const { return idle_bytes_; }

 private:
  absl::StatusOr<std::unique_ptr<Buffer>> Make(uint64_t bytes);

  const Endpoint* endpoint_;
  bool registered_ = true;
  uint64_t limit_;
  uint64_t used_bytes_ = 0;
  uint64_t idle_bytes_ = 0;
  std::vector<std::unique_ptr<Buffer>> used_;
  std::vector<std::unique_ptr<Buffer>> idle_;
};

}  // namespace verbena::client
