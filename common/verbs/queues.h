// Shared receive queues and queue pairs. See owners.h for ownership and threads.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/verbs/device.h"
#include "common/verbs/handle.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

class CmId;

// Owner of a shared receive queue. It outlives the queue pairs attached to it.
class SharedReceiveQueue {
 public:
  // Room for at least `max_wr` receives of up to `max_sge` pieces each.
  static absl::StatusOr<SharedReceiveQueue> Create(const ProtectionDomain& pd, uint32_t max_wr,
                                                   uint32_t max_sge = 1);

  SharedReceiveQueue() = default;

  bool valid() const { return bool{handle_}; }
  ibv_srq* get() const { return handle_.get(); }
  // Receives that the device granted, at least those asked for.
  uint32_t capacity() const { return capacity_; }

  // Asks for one IBV_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left. One shot:
  // to be armed again after a refill. A hint only: some drivers look only at the next receive.
  absl::Status ArmLimit(uint32_t limit);

 private:
  SharedReceiveQueue(internal::Handle<ibv_srq> handle, uint32_t capacity)
      : handle_(std::move(handle)), capacity_(capacity) {}
  internal::Handle<ibv_srq> handle_;
  uint32_t capacity_ = 0;
};

// What a reliable-connected queue pair is made of. The objects are borrowed and must outlive it.
struct QueuePairOptions {
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_srq* srq = nullptr;      // nullptr: the queue pair has a receive queue of its own
  uint32_t max_send_wr = 128;  // requests outstanding, signalled or not
  uint32_t max_recv_wr = 0;    // ignored with an SRQ
  uint32_t max_send_sge = 1;
  uint32_t max_recv_sge = 1;     // ignored with an SRQ
  uint32_t max_inline_data = 0;  // bytes
  bool signal_all = false;
};

// Owner of a queue pair, made by hand (ibv_create_qp) or on a CM id (rdma_create_qp).
class QueuePair {
 public:
  // In state RESET; the user moves it on. For tests and peers without a connection manager.
  static absl::StatusOr<QueuePair> Create(const ProtectionDomain& pd,
                                          const QueuePairOptions& options);
  // On `id`, which must have a device (after address resolution or a connection request) and
  // outlive the queue pair; the connection manager moves its states.
  static absl::StatusOr<QueuePair> CreateOn(const CmId& id, const ProtectionDomain& pd,
                                            const QueuePairOptions& options);

  QueuePair() = default;
  QueuePair(QueuePair&& other) noexcept;
  QueuePair& operator=(QueuePair&& other) noexcept;
  ~QueuePair() { Reset(); }

  bool valid() const { return qp_ != nullptr; }
  ibv_qp* get() const { return qp_; }
  uint32_t number() const { return qp_->qp_num; }
  // What the device granted; each at least what was asked for (max_inline_data may be more).
  const ibv_qp_cap& cap() const { return cap_; }

  // Changes attributes by hand (see ibv_modify_qp).
  absl::Status Modify(ibv_qp_attr attr, int mask);
  // Moves to ERR: everything outstanding is flushed. Allowed in any state.
  absl::Status ToError();
  // How long a sender waits before it tries again when this side has no receive posted: a 5-bit
  // code (12: 0.64 ms, 14: 1.28 ms, 0: 655 ms). Allowed once connected.
  absl::Status SetMinRnrTimer(uint8_t code);
  // What the device says of the attributes in `mask` (see ibv_query_qp).
  absl::StatusOr<ibv_qp_attr> Query(int mask) const;
  absl::StatusOr<ibv_qp_state> QueryState() const;

 private:
  QueuePair(VerbsApi& api, ibv_qp* qp, rdma_cm_id* id, const ibv_qp_cap& cap)
      : api_(&api), qp_(qp), id_(id), cap_(cap) {}
  void Reset() noexcept;

  VerbsApi* api_ = nullptr;
  ibv_qp* qp_ = nullptr;
  rdma_cm_id* id_ = nullptr;  // where it was made by rdma_create_qp
  ibv_qp_cap cap_{};
};

}  // namespace verbena::verbs
