// Receive queues: a QP's own, and shared ones. Thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "common/base/spinlock.h"
#include "common/softverbs/device.h"

namespace verbena::softverbs {

class QueuePair;

// A RECV as taken from a queue.
struct Receive {
  uint64_t wr_id = 0;
  uint32_t num_sge = 0;
  std::array<ibv_sge, kMaxSge> sges;
};

class ReceiveQueue {
 public:
  // 0, or a positive errno.
  int Resize(uint32_t max_wr, uint32_t max_sge);

  // Posts a list; on an error *bad is the first one not posted. QPs that stalled for want of a
  // RECV are marked ready.
  int Post(ibv_recv_wr* wr, ibv_recv_wr** bad);
  // Takes the oldest. If there is none, remembers `qp` as stalled and returns false.
  // *left: how many remain.
  bool Take(Receive* receive, QueuePair* qp, uint32_t* left);
  // Takes the oldest for flushing.
  bool TakeForFlush(Receive* receive);
  void Forget(QueuePair* qp);
  void Clear();

  uint32_t max_wr() const { return max_wr_; }
  uint32_t max_sge() const { return max_sge_; }
  uint32_t count();

 private:
  struct Entry {
    uint64_t wr_id;
    uint32_t num_sge;
  };
  void CopyOut(Receive* receive);

  SpinLock lock_;
  uint32_t max_wr_ = 0;
  uint32_t max_sge_ = 0;
  uint32_t mask_ = 0;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  std::vector<Entry> entries_;
  std::vector<ibv_sge> sges_;
  std::vector<QueuePair*> stalled_;
};

class SharedReceiveQueue : public ibv_srq {
 public:
  // nullptr with errno.
  static SharedReceiveQueue* Create(ProtectionDomain* pd, ibv_srq_init_attr* attr);
  // EBUSY while QPs use it; waits until its async events are acknowledged.
  int Destroy();
  int Modify(const ibv_srq_attr& attr, int mask);
  void Query(ibv_srq_attr* attr);

  static SharedReceiveQueue* From(ibv_srq* srq) { return static_cast<SharedReceiveQueue*>(srq); }
  static int PostVerb(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

  // As ReceiveQueue::Take; raises SRQ_LIMIT_REACHED.
  bool Take(Receive* receive, QueuePair* qp);
  ReceiveQueue& queue() { return queue_; }
  uint32_t pd_id() const { return static_cast<ProtectionDomain*>(pd)->id; }

  std::atomic<int> users{0};  // QPs
  std::atomic<uint32_t> async_reported{0};

 private:
  SharedReceiveQueue() = default;

  ReceiveQueue queue_;
  std::atomic<uint32_t> limit_{0};
};

}  // namespace verbena::softverbs
