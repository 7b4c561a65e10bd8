// Registered memory for messages: a worker's receive buffers and response buffers on one device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/shared_memory.h"
#include "common/verbs/data_path.h"
#include "common/verbs/device.h"
#include "common/verbs/queues.h"
#include "common/verbs/wr_id.h"
#include "server/net/queue_plan.h"

namespace verbena::net {

// What a completion is about; the kind in its wr_id.
enum class WorkKind : uint8_t { kReceive = 1, kSend = 2, kRead = 3 };
using WorkId = verbs::WrId<WorkKind>;

// `count` buffers of kMaxMessage bytes, registered for local access only. Move-only.
class MessageMemory {
 public:
  static absl::StatusOr<MessageMemory> Create(const verbs::ProtectionDomain& pd,
                                              const std::string& name, uint32_t count);

  MessageMemory() = default;

  uint32_t count() const { return count_; }
  uint32_t lkey() const { return region_.lkey(); }
  uint8_t* At(uint32_t index) const { return memory_.data() + size_t{index} * kMaxMessage; }
  std::span<uint8_t> Buffer(uint32_t index) const { return {At(index), kMaxMessage}; }

 private:
  SharedMemory memory_;
  verbs::MemoryRegion region_;
  uint32_t count_ = 0;
};

// A worker's receive buffers on one device: here a shared receive queue; a device without them gets
// queues for each connection behind these calls.
//
// A buffer is in use (posted, listed to be posted, or held by a request that is being worked on) or
// in reserve. As many are in use as can be needed, which is far less than the queue's depth when
// few clients are busy: the same few buffers, and the caches that hold them, are used again.
//
// Used by one thread.
class ReceiveQueue {
 public:
  // The margin is posted, the rest is in reserve.
  static absl::StatusOr<std::unique_ptr<ReceiveQueue>> Create(const verbs::ProtectionDomain& pd,
                                                              const std::string& name,
                                                              uint32_t depth);

  // For the queue pairs that receive from it.
  ibv_srq* srq() const { return srq_.get(); }
  uint32_t depth() const { return memory_.count(); }

  // The message in a buffer; `index` comes from a completion and may be anything.
  bool IsBuffer(uint32_t index) const { return index < memory_.count(); }
  std::span<const uint8_t> Message(uint32_t index, uint32_t size) const {
    return {memory_.At(index), size};
  }

  // What clients may send at once, at most QueuePlan::credits(). More is posted with the next
  // Flush; less as buffers are given back.
  void SetGranted(uint32_t granted);
  // Gives back a buffer that a completion brought: to be posted again with the next Flush, or into
  // the reserve.
  void Return(uint32_t index);
  // Posts what is listed, with one call. How many that were.
  absl::StatusOr<uint32_t> Flush();

  // Asks for one event when hardly any receives are left.
  absl::Status ArmAlarm() { return srq_.ArmLimit(kReceiveMargin / 2); }

 private:
  ReceiveQueue() = default;
  void List(uint32_t index);

  MessageMemory memory_;
  verbs::SharedReceiveQueue srq_;
  // One request per buffer, made once; only the links between them change.
  std::vector<ibv_recv_wr> requests_;
  std::vector<ibv_sge> pieces_;
  std::vector<uint32_t> reserve_;
  uint32_t target_ = 0;  // buffers to be in use
  uint32_t in_use_ = 0;
  ibv_recv_wr* first_ = nullptr;
  ibv_recv_wr* last_ = nullptr;
  uint32_t listed_ = 0;
};

// Response buffers, last one back first out, so that few stay warm. Used by one thread.
class ResponsePool {
 public:
  static absl::StatusOr<ResponsePool> Create(const verbs::ProtectionDomain& pd,
                                             const std::string& name, uint32_t count);

  ResponsePool() = default;

  uint32_t lkey() const { return memory_.lkey(); }
  std::span<uint8_t> Buffer(uint32_t index) const { return memory_.Buffer(index); }
  std::optional<uint32_t> Acquire() {
    if (free_.empty()) return std::nullopt;
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void Release(uint32_t index) { free_.push_back(index); }
  bool empty() const { return free_.empty(); }

 private:
  MessageMemory memory_;
  std::vector<uint32_t> free_;
};

}  // namespace verbena::net
