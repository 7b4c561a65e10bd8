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

struct Connection;

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

// Receives of one queue of the device: of the shared one, or of a connection's own. A
// ReceiveQueue's business, except for who owns it.
class ReceiveLane {
 public:
  // Of this connection; nullptr: the shared queue's.
  explicit ReceiveLane(Connection* connection) : connection_(connection) {}
  ReceiveLane(const ReceiveLane&) = delete;
  ReceiveLane& operator=(const ReceiveLane&) = delete;

  Connection* connection() const { return connection_; }

 private:
  friend class ReceiveQueue;

  Connection* const connection_;
  ibv_qp* qp_ = nullptr;  // nullptr: the shared queue
  bool open_ = true;
  uint32_t margin_ = 0;
  uint32_t target_ = 0;  // buffers to be in use
  uint32_t in_use_ = 0;  // posted, listed, or held by a request
  // To be posted.
  ibv_recv_wr* first_ = nullptr;
  ibv_recv_wr* last_ = nullptr;
  uint32_t listed_ = 0;
  bool dirty_ = false;
};

// A worker's receive buffers on one device: for a shared receive queue, or, on a device without
// them, for a queue of each connection. Connections are known by their lane; those that share a
// queue have one lane together.
//
// A buffer is in use (posted, listed to be posted, or held by a request that is being worked on) or
// in reserve. As many are in use as can be needed, which is far less than there are when few
// clients are busy: the same few buffers, and the caches that hold them, are used again. A grant
// falls only when a request is answered (credits.h), whose buffer then goes into the reserve; so a
// lane never has more in use than its grants and its margin, and the reserve never runs out.
//
// Used by one thread.
class ReceiveQueue {
 public:
  // With a shared queue, its margin is posted and the rest is in reserve. Unimplemented if the
  // device has no shared queues after all.
  static absl::StatusOr<std::unique_ptr<ReceiveQueue>> Create(const verbs::ProtectionDomain& pd,
                                                              const std::string& name,
                                                              const QueuePlan& plan);

  // For the queue pairs that receive from it; nullptr: they have receive queues of their own.
  ibv_srq* srq() const { return srq_.valid() ? srq_.get() : nullptr; }
  uint32_t depth() const { return memory_.count(); }

  // Where a new connection receives: the lane of all, or its own, which lives as long as the
  // connection. A queue pair of its own must be one that may post receives.
  ReceiveLane* Attach(ReceiveLane* own, ibv_qp* qp);
  // The connection has ended: what comes back is not posted again. (Not of the shared lane.)
  void Detach(ReceiveLane& lane);
  // The lane's queue pair is destroyed: all its buffers come back, and completions of them that are
  // still to be taken are of nothing. (Not of the shared lane.)
  void Reclaim(ReceiveLane& lane);

  // The buffer that a completion names, unless that is nonsense or of another time.
  std::optional<uint32_t> Find(verbs::SlotRef ref) const {
    if (ref.slot >= generations_.size() || generations_[ref.slot] != ref.generation) {
      return std::nullopt;
    }
    return ref.slot;
  }
  std::span<const uint8_t> Message(uint32_t index, uint32_t size) const {
    return {memory_.At(index), size};
  }

  // What clients of the lane may send at once. More is posted with the next Flush; less as buffers
  // are given back.
  void SetGranted(ReceiveLane& lane, uint32_t granted);
  // Gives back a buffer that a completion brought: to be posted again with the next Flush, or into
  // the reserve.
  void Return(uint32_t index);
  // Posts what is listed, with one call for each lane, and calls on_error(lane, status) where that
  // failed; what was not posted stays listed and is tried again. How many were posted.
  template <typename OnError>
  uint32_t Flush(OnError&& on_error);
  // Whether a Flush has left something.
  bool unposted() const { return !dirty_.empty(); }

  // Asks for one event when hardly any receives are left in the shared queue.
  absl::Status ArmAlarm();

 private:
  ReceiveQueue() = default;
  void List(ReceiveLane& lane, uint32_t index);
  void Reserve(uint32_t index);
  absl::Status Post(ReceiveLane& lane, uint32_t* posted);

  MessageMemory memory_;
  verbs::SharedReceiveQueue srq_;
  ReceiveLane shared_{nullptr};
  // One request per buffer, made once; only the links between them change, and the generation when
  // a buffer is reclaimed.
  std::vector<ibv_recv_wr> requests_;
  std::vector<ibv_sge> pieces_;
  std::vector<uint32_t> generations_;
  std::vector<ReceiveLane*> owners_;  // nullptr: in reserve
  std::vector<uint32_t> reserve_;
  std::vector<ReceiveLane*> dirty_;  // have something listed
};

template <typename OnError>
uint32_t ReceiveQueue::Flush(OnError&& on_error) {
  uint32_t posted = 0;
  // on_error may detach the lane.
  for (size_t left = dirty_.size(); left > 0; --left) {
    ReceiveLane& lane = *dirty_.front();
    dirty_.erase(dirty_.begin());
    lane.dirty_ = false;
    const absl::Status status = Post(lane, &posted);
    if (status.ok()) continue;
    lane.dirty_ = true;
    dirty_.push_back(&lane);
    on_error(lane, status);
  }
  return posted;
}

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
