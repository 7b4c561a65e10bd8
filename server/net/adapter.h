// One RDMA device that the server uses: its protection domain, the registration of the slice, and
// each worker's queues and memory on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/cm.h"
#include "common/verbs/completion.h"
#include "common/verbs/device.h"
#include "server/net/counters.h"
#include "server/net/credits.h"
#include "server/net/handler.h"
#include "server/net/message_memory.h"
#include "server/net/queue_plan.h"
#include "server/net/staging.h"

namespace verbena::net {

class Adapter;
struct Connection;

// A completion queue and whether an event has been asked for and not come.
struct ArmedQueue {
  verbs::CompletionQueue cq;
  bool armed = false;  // the worker's
};

// A send CQ, shared by up to QueuePlan::connections_per_cq connections.
struct SendQueue {
  ArmedQueue queue;
  uint32_t connections = 0;  // the acceptor's: QPs that use it
  bool adopted = false;      // the worker's: it polls the queue
};

// Whether a device tells that a queue pair in ERR takes no more from its shared receive queue
// (IBV_EVENT_QP_LAST_WQE_REACHED). No query says so: adapters do, some software devices do not.
enum class LastReceive : uint8_t { kUnknown, kTold, kNever };

// What one worker has on one adapter. The worker's from its start, or WorkerMail::kAddQueues, until
// it has ended, or given the queues up (kDropQueues); except for the last members, which are the
// acceptor's.
struct QueueSet {
  Adapter* adapter = nullptr;
  int worker = 0;

  verbs::CompletionChannel channel;
  ArmedQueue receive_cq;
  std::unique_ptr<ReceiveQueue> receives;
  ResponsePool responses;
  StagingPool staging;  // empty where READs land in the slice
  CreditPool credits{0};
  std::vector<SendQueue*> polled;  // send queues that have connections
  uint32_t adopted = 0;            // connections, until their QPs are destroyed
  absl::flat_hash_map<uint32_t, Connection*> by_qp;
  Connection* last = nullptr;  // found in by_qp by the last look
  LastReceive last_receive = LastReceive::kUnknown;

  std::vector<std::unique_ptr<SendQueue>> send_queues;
  uint32_t connections = 0;
  bool dropping = false;  // the worker has been asked to give them up
  bool dropped = false;   // and has
};

class Adapter {
 public:
  // `anchor` is bound to an address of the device: while it lives, the connection manager keeps the
  // device open. The slice is registered for local writes and remote reads, and for nothing else.
  static absl::StatusOr<std::unique_ptr<Adapter>> Create(verbs::CmId anchor,
                                                         const QueueOptions& options,
                                                         const Slice& slice);

  const verbs::DeviceView& device() const { return device_; }
  std::string name() const { return device_.name(); }
  const QueuePlan& plan() const { return plan_; }
  const ibv_device_attr& attributes() const { return attributes_; }
  verbs::Capabilities capabilities() const { return {device_.transport(), attributes_}; }
  const verbs::ProtectionDomain& pd() const { return pd_; }
  const verbs::MemoryRegion& slice() const { return slice_; }
  QueueSet& queues(int worker) { return *queue_sets_[static_cast<size_t>(worker)]; }

  // The acceptor's: a send queue of a worker with room for one more connection (counted at once).
  absl::StatusOr<SendQueue*> ReserveSendQueue(QueueSet& queues);

  // The device is being removed: no new connections. The acceptor's.
  bool leaving() const { return leaving_; }
  void SetLeaving() { leaving_ = true; }
  // It really is, rather than has failed: its files are to be closed. The acceptor's.
  bool removed() const { return removed_; }
  void SetRemoved() { removed_ = true; }
  // To be destroyed after the adapter.
  verbs::CmId TakeAnchor() { return std::move(anchor_); }

  // By the acceptor's thread.
  struct Counters {
    Counter connections;  // now, until their QPs are destroyed
    Counter srq_limit_events;
    Counter async_events;
  };
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }

 private:
  Adapter() = default;
  absl::Status RegisterSlice(const Slice& slice);
  absl::Status ExplainRegistration(const absl::Status& status, const Slice& slice) const;
  absl::Status MakeQueues(const QueueOptions& options);
  absl::StatusOr<std::unique_ptr<QueueSet>> MakeQueueSet(int worker);
  // The interrupt of a worker's completion queues: each has another, as far as there are enough.
  int CompletionVector(int worker) const { return worker % device_.completion_vectors(); }

  verbs::CmId anchor_;          // destroyed last
  uint64_t pinned_before_ = 0;  // bytes that this process had locked for other devices
  verbs::DeviceView device_;
  bool leaving_ = false;
  bool removed_ = false;
  ibv_device_attr attributes_{};
  QueuePlan plan_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion slice_;
  std::vector<std::unique_ptr<QueueSet>> queue_sets_;
  Counters counters_;
};

}  // namespace verbena::net
