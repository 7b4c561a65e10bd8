// Verbs objects for measuring a fabric with no store around it. Two ends in two processes: the
// target registers a region that can be READ and answers each message with a message; the
// initiator READs random blocks and plays ping-pong.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/measure/ticks.h"
#include "common/base/net_address.h"
#include "common/base/shared_memory.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/owners.h"

namespace verbena::bench {

// The table of "soft" or "verbs"; nullptr for other names. Thread-safe.
verbs::VerbsApi* VerbsTable(std::string_view fabric);

// What the target is to offer.
struct RawTargetOptions {
  std::string fabric;
  NetAddress listen;           // with port 0
  uint64_t region_size = 0;    // bytes
  uint32_t request_size = 0;   // bytes of a ping
  uint32_t response_size = 0;  // bytes of a pong, at most: the first four bytes of a ping, if they
                               // are not 0, ask for fewer (in this machine's order)
  uint32_t connections = 1;    // accepted before anything is answered
  int64_t poll_ns = 50'000;    // polls in vain for so long before it sleeps, as a server worker
};

// The whole life of the target: listens, prints "PORT n", accepts its connections, prints "REGION
// address rkey", answers until the first of them ends. Runs in a process of its own.
absl::Status ServeRawTarget(const RawTargetOptions& options);

// What the initiator connects to.
struct RawPeer {
  NetAddress address;
  uint64_t region_address = 0;
  uint64_t region_size = 0;
  uint32_t region_rkey = 0;
};

struct RawInitiatorOptions {
  std::string fabric;
  uint32_t depth = 1;       // READs in flight at once, at most
  uint32_t block_size = 0;  // bytes of a READ
  uint32_t request_size = 0;
  uint32_t response_size = 0;
  uint32_t short_response_size = 0;  // bytes of the other kind of pong
  int64_t poll_ns = INT64_MAX;       // waits for a pong for so long before it sleeps
  int64_t target_poll_ns = 50'000;
};

// Something that RawInitiator::Poll found finished.
struct RawCompletion {
  bool is_read = false;
  uint32_t slot = 0;   // of a READ
  uint32_t bytes = 0;  // that landed
};

// Not thread-safe.
class RawInitiator {
 public:
  static absl::StatusOr<std::unique_ptr<RawInitiator>> Connect(const NetAddress& target,
                                                               const RawInitiatorOptions& options);
  // To be called before the first READ.
  void SetRegion(uint64_t address, uint32_t rkey);

  // READs that the device allows in flight, at most the depth asked for.
  uint32_t depth() const { return depth_; }

  // READs one block at each offset, each after the one before has completed and every cache line
  // that landed was touched. `nanos` gets one time for each, less `overhead`.
  absl::Status ReadOneByOne(std::span<const uint64_t> offsets, double overhead,
                            std::span<uint32_t> nanos);
  // READs one block at each offset with up to depth() in flight, posted as lists with one doorbell,
  // consumed as above. Returns READs per second.
  absl::StatusOr<double> ReadPipelined(std::span<const uint64_t> offsets);
  // Sends a request and waits for the response, once for each of `nanos`.
  absl::Status PingPong(double overhead, std::span<uint32_t> nanos);

  // The same without waiting, for whoever keeps several in flight: at most depth() READs, each with
  // a slot of its own, and at most kMostRequests requests, which are answered in their order.
  static constexpr uint32_t kMostRequests = 16;
  // Posts one READ for each of `slots`, with one doorbell.
  absl::Status PostReads(std::span<const uint32_t> slots, std::span<const uint64_t> offsets);
  // Sends `size` bytes (at most request_size); the answer has response_size bytes, or
  // short_response_size.
  absl::Status PostRequest(uint32_t size, bool short_answer);
  // What has finished; every cache line that landed was touched. Returns how many.
  absl::StatusOr<size_t> Poll(std::span<RawCompletion> completions);
  // To sleep: Arm, Poll once more, and if that finds nothing, Sleep (at most that long; it may
  // return for nothing).
  absl::Status Arm() { return cq_.Arm(); }
  absl::Status Sleep(int timeout_ms);

 private:
  explicit RawInitiator(const RawInitiatorOptions& options) : options_(options) {}
  absl::Status Prepare(verbs::VerbsApi& api, const NetAddress& target);
  absl::Status MakeQueues();
  absl::Status PostReceive(uint32_t index);
  absl::Status Await(uint64_t* completed);
  absl::Status Send(uint64_t from, uint32_t size);
  void Consume(const uint8_t* bytes, uint64_t size);
  uint8_t* Sink(uint32_t slot) const { return memory_.data() + slot * sink_stride_; }

  const RawInitiatorOptions options_;
  const TickClock clock_;
  uint32_t depth_ = 1;
  uint64_t region_address_ = 0;
  uint32_t region_rkey_ = 0;
  uint64_t sink_stride_ = 0;
  uint64_t request_at_ = 0;  // in memory_; behind it the request for a short response
  uint64_t request_stride_ = 0;
  uint64_t responses_at_ = 0;  // in memory_
  uint64_t response_stride_ = 0;
  uint32_t sends_since_signal_ = 0;
  uint32_t sends_unpolled_ = 0;  // signalled SENDs whose completion has not been taken
  unsigned send_flags_ = 0;
  volatile uint64_t consumed_ = 0;  // keeps the compiler from leaving out the touching

  std::vector<ibv_send_wr> requests_;  // of PostReads
  std::vector<ibv_sge> pieces_;
  SharedMemory memory_;
  verbs::ConnectOptions connect_options_;
  verbs::CmChannel channel_;
  verbs::CmId id_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion mr_;
  verbs::CompletionChannel cq_channel_;
  verbs::CompletionQueue cq_;
  verbs::QueuePair qp_;
};

}  // namespace verbena::bench
