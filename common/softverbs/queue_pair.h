// Reliable connected queue pairs.
//
//   queue_pair.cc    life and states
//   send_path.cc     the requester: posting, launching, completing in order, failing
//   one_sided.cc     READ, WRITE, atomics
//   receive_path.cc  the responder: taking messages off the ring
//
// Thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/spinlock.h"
#include "common/softverbs/completion_queue.h"
#include "common/softverbs/device.h"
#include "common/softverbs/link.h"
#include "common/softverbs/memory_regions.h"
#include "common/softverbs/receive_queue.h"
#include "common/softverbs/ring.h"

namespace verbena::softverbs {

// A work request in the send queue.
struct SendWqe {
  enum class State : uint8_t {
    kPosted,    // not begun, or a message of which some packets are in the ring
    kLaunched,  // a message, in the ring as a whole, not yet acknowledged
    kDone,      // executed
    kFailed,    // refused with `status`
  };
  uint64_t wr_id;
  uint64_t remote_addr;
  uint64_t compare_add;
  uint64_t swap;
  uint64_t message;  // its number among the messages of this direction (from 1); 0: not one
  uint32_t rkey;
  uint32_t immediate;
  uint32_t length;  // sum of the SGEs
  uint32_t sent;    // bytes in the ring (messages)
  uint16_t num_sge;
  uint8_t opcode;  // ibv_wr_opcode
  State state;
  ibv_wc_status status;
  bool signalled;
  bool solicited;
  bool is_inline;
};

class QueuePair : public ibv_qp {
 public:
  // nullptr with errno. attr->cap is set to what is granted.
  static QueuePair* Create(ProtectionDomain* pd, ibv_qp_init_attr* attr);
  // Waits until its async events are acknowledged. The connection manager has let go of it before.
  int Destroy();
  int Modify(const ibv_qp_attr& attr, int mask);
  void Query(ibv_qp_attr* attr, ibv_qp_init_attr* init);

  static QueuePair* From(ibv_qp* qp) { return static_cast<QueuePair*>(qp); }
  static int PostSendVerb(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  static int PostRecvVerb(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);

  uint32_t pd_id() const { return static_cast<ProtectionDomain*>(pd)->id; }
  CompletionQueue* scq() { return static_cast<CompletionQueue*>(send_cq); }
  CompletionQueue* rcq() { return static_cast<CompletionQueue*>(recv_cq); }
  uint32_t send_slot() const { return send_slot_; }
  uint32_t recv_slot() const { return recv_slot_; }
  uint64_t serial() const { return serial_; }
  ibv_qp_state current_state() const { return state_.load(std::memory_order_acquire); }

  // Connects the QP (in INIT) and takes it to RTS. For the connection manager.
  void Establish(std::shared_ptr<Link> link, const ibv_qp_attr& attr);
  // RESET to INIT, as rdma_create_qp does.
  void Initialize();
  // To ERR: everything outstanding is flushed. Idempotent.
  void EnterError();
  // Lets go of the peer's memory that the translations of invalid keys hold.
  void DropStaleTranslations();

  // Deals with whatever peers did. Caller holds the progress lock of `cq`.
  void Progress(CompletionQueue* cq);
  // SQ slots below `head` may be used again.
  void FreeSlots(uint64_t head) { freed_.store(head, std::memory_order_release); }
  // Asks the target's service thread to receive messages that it has not acknowledged although it
  // had time to. True while some are outstanding. Caller holds the progress lock of the send CQ.
  bool KickTarget(int64_t now);
  // A RECV has been posted for which this QP had stalled.
  void MarkReceiveReady() { rcq()->MarkReadyHere(recv_slot_); }

  std::atomic<uint32_t> async_reported{0};

 private:
  // A remote range as this process reaches it; the last one used is kept.
  struct Translation {
    uint32_t rkey = 0;
    const MrEntry* entry = nullptr;
    uint64_t begin = 0;
    uint64_t length = 0;
    uint32_t access = 0;
    uint8_t* base = nullptr;  // nullptr: by the kernel
    // Keeps `base` mapped, whatever the peer withdraws or closes: it may do so while its key looks
    // valid, and another link of the peer's may have brought the memory.
    std::shared_ptr<PeerMemory> memory;
  };
  enum class Launch { kDone, kBlocked, kFailed };

  QueuePair() = default;

  // queue_pair.cc
  int CheckTransition(const ibv_qp_attr& attr, int mask, ibv_qp_state* next) const;
  void StoreAttributes(const ibv_qp_attr& attr, int mask);
  void PublishSide();
  void ShowState(ibv_qp_state value);
  void Reset();
  void RaiseAsync(ibv_event_type type);
  // A CQ of this QP is full, hence dead: the QP follows, from the service thread.
  void Overrun() { Later(0, &QueuePair::EnterError); }

  // send_path.cc; the caller holds sq_lock_ unless said otherwise.
  int PostSend(ibv_send_wr* wr, ibv_send_wr** bad);  // without lock
  int CheckSend(const ibv_send_wr& wr) const;
  SendWqe& Enqueue(const ibv_send_wr& wr);
  bool FastRead(const ibv_send_wr& wr);
  void PrefetchReads(const ibv_send_wr* wr) const;
  void LaunchPending();
  Launch LaunchOne(SendWqe* wqe);
  Launch LaunchMessage(SendWqe* wqe);
  Launch Fail(SendWqe* wqe, ibv_wc_status status);
  bool WaitForAcks();
  ibv_wc_status Read(const ibv_sge* sges, uint32_t num_sge, uint32_t length, uint64_t address,
                     uint32_t rkey);
  ibv_wc_status Write(SendWqe* wqe);
  ibv_wc_status Atomic(SendWqe* wqe);
  ibv_wc_status RemoteRefusal(ibv_wc_status status, Fault fault);
  bool CheckSges(const ibv_sge* sges, uint32_t num_sge, uint32_t need) const;
  ibv_wc_status Translate(uint32_t rkey, uint64_t address, uint64_t length, uint32_t need,
                          Translation* cache, uint8_t** data);
  ibv_wc_status TranslateSlow(uint32_t rkey, uint64_t address, uint64_t length, uint32_t need,
                              Translation* cache);
  // True if the QP went to ERR: the caller calls FlushReceives without the lock.
  bool Complete();
  bool CompleteSlow();
  bool CheckRnr(const SendWqe& head);
  void PushSend(const SendWqe& wqe, ibv_wc_status status);
  void FailFrom(ibv_wc_status first);
  bool PeerReady() const;
  void ArmRetryTimer();
  void OnRetryTimer();   // without lock
  void OnRnrTimer();     // without lock
  void ProgressSends();  // without lock
  const ibv_sge* Sges(const SendWqe& wqe) const;
  uint8_t* InlineData(uint64_t index);
  SendWqe& Wqe(uint64_t index) { return sq_[index & sq_mask_]; }
  void Later(int64_t nanos, void (QueuePair::*action)());

  // receive_path.cc
  void ProgressReceives();                     // without lock
  bool ReceivePackets(ibv_event_type* raise);  // holds rx_lock_; false: go to ERR
  bool StartMessage();
  bool TakeReceive();
  ibv_wc_status CopyIn(const PacketHeader& header);
  void FinishMessage(const PacketHeader& header);
  void RefuseMessage(ibv_wc_status local, ibv_wc_status remote);
  void PushReceive(uint64_t wr_id, ibv_wc_status status, const PacketHeader* header);
  void FlushReceives();  // without lock

  uint64_t serial_ = 0;
  ibv_qp_init_attr init_{};
  ibv_qp_attr attr_{};
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  uint32_t send_slot_ = 0;
  uint32_t recv_slot_ = 0;
  const MemoryRegions* regions_ = nullptr;
  uint32_t read_sink_access_ = IBV_ACCESS_LOCAL_WRITE;  // that sinks of READs must have
  std::shared_ptr<Link> link_;  // set once, under both locks; read under either

  // Requester.
  mutable SpinLock sq_lock_;
  std::vector<SendWqe> sq_;
  std::vector<ibv_sge> sq_sges_;
  std::vector<uint8_t> sq_inline_;
  uint64_t sq_mask_ = 0;
  uint64_t head_ = 0;  // oldest not completed
  uint64_t next_ = 0;  // oldest not launched
  uint64_t tail_ = 0;  // next to post
  std::atomic<uint64_t> freed_{0};
  bool stopped_ = false;  // a WQE has failed, nothing behind it is launched
  uint64_t busy_ = 0;
  RingProducer producer_;
  uint64_t messages_ = 0;   // begun so far
  bool published_ = false;  // packets in the ring of which the receiver has not been told
  bool published_solicited_ = false;
  std::array<Translation, 2> translations_;    // for reading, for writing
  uint64_t watched_completed_ = ~uint64_t{0};  // what the target had acknowledged ...
  int64_t watched_since_ = 0;                  // ... when we looked at this time
  bool retry_timer_ = false;
  bool rnr_timer_ = false;
  uint64_t rnr_seen_ = 0;
  uint64_t rnr_message_ = 0;
  uint32_t rnr_retries_ = 0;

  // Responder.
  mutable SpinLock rx_lock_;
  ReceiveQueue rq_;
  RingConsumer consumer_;
  bool receiving_ = false;  // `current_` holds the RECV of a message that has begun
  Receive current_;
  uint64_t received_bytes_ = 0;
  uint64_t completed_ = 0;
  uint64_t wanted_answered_ = 0;
  bool ack_now_ = false;
  bool receives_flushed_ = false;
};

}  // namespace verbena::softverbs
