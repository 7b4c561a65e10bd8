// Completion queues and completion channels.
//
// Wake-up protocol. A sender in another process publishes a message, sets the QP's ready bit in
// the target's CqNotify, and then, if the CQ is armed, changes `control` to fired and signals the
// channel. A consumer arms first and then looks at the ready bits. All these accesses are seq_cst,
// so either the sender sees the CQ armed or the consumer sees the bit: no wake-up is lost. The CQE
// itself is made by whoever progresses the CQ: a caller of ibv_poll_cq, or the service thread.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/spinlock.h"
#include "common/softverbs/device.h"
#include "common/softverbs/event_counter.h"
#include "common/softverbs/shared_segments.h"

namespace verbena::softverbs {

class CompletionQueue;
class QueuePair;

// Peers signal the channel's descriptor and can misuse it (see EventCounter): the truth about
// events is in the CQs' `control` words, a signal only says that it is worth looking. Whoever takes
// the signals and finds more fired CQs than it hands out signals again.
class CompletionChannel : public ibv_comp_channel {
 public:
  static CompletionChannel* Create(Context* context);
  // EBUSY while CQs use it.
  int Destroy();

  static CompletionChannel* From(ibv_comp_channel* channel) {
    return static_cast<CompletionChannel*>(channel);
  }

  uint64_t id() const { return id_; }
  const EventCounter& counter() const { return counter_; }
  // The descriptor for a peer. From then on O_NONBLOCK, if the owner has set it, holds even if a
  // peer clears it.
  int ShareFd();

  int GetEvent(ibv_cq** cq, void** cq_context);
  void Attach(CompletionQueue* cq);
  // Forgets the CQ and an event of its that nobody has collected.
  void Detach(CompletionQueue* cq);
  // After the death of a peer: it may have fired a CQ and not lived to signal.
  void ResignalFired();

 private:
  CompletionChannel() = default;
  void SignalIfFired();  // caller holds mutex_

  uint64_t id_ = 0;
  EventCounter counter_;
  std::atomic<bool> never_wait_{false};
  std::mutex mutex_;
  std::vector<CompletionQueue*> cqs_;
  size_t next_ = 0;  // where the next search starts, so that every CQ has its turn
};

// A CQE and, for the send side, which SQ slots its polling frees.
struct Cqe {
  ibv_wc wc;
  QueuePair* qp;        // nullptr: a receive, or the QP is gone
  uint64_t slots_free;  // the SQ's head after this
};

class CompletionQueue : public ibv_cq {
 public:
  // nullptr with errno.
  static CompletionQueue* Create(Context* context, int entries, void* cq_context,
                                 CompletionChannel* channel);
  // EBUSY while QPs use it; waits until all its events are acknowledged.
  int Destroy();

  static CompletionQueue* From(ibv_cq* cq) { return static_cast<CompletionQueue*>(cq); }

  static int PollVerb(ibv_cq* cq, int count, ibv_wc* wc);
  static int ReqNotifyVerb(ibv_cq* cq, int solicited_only);

  uint32_t number() const { return number_; }
  CqNotify& notify() { return *notify_; }
  CompletionChannel* comp_channel() { return static_cast<CompletionChannel*>(channel); }

  // Adds a CQE and raises the event that the owner armed. False if the CQ is full: it is dead from
  // then on and CQ_ERR is raised.
  bool Push(const Cqe& entry, bool solicited);
  // Deals with every QP whose ready bit is set.
  void Progress();
  // Removes the CQEs of a QP that is being destroyed.
  void Clean(const QueuePair* qp);

  // Gives the QP a slot in this CQ's ready bits. False with errno ENOMEM if none is left.
  bool AttachQp(QueuePair* qp, uint32_t* slot);
  void DetachQp(uint32_t slot);

  // Says that the QP in `slot`, which completes its sends here, has messages on their way.
  void MarkOutstanding(uint32_t slot) {
    std::atomic<uint64_t>& word = outstanding_[slot / 64];
    const uint64_t bit = uint64_t{1} << (slot % 64);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit);
  }

  // Raises the event if armed for such a completion.
  void FireIfArmed(bool solicited);
  // Marks a QP of this CQ ready from within this process and sees to it that somebody looks.
  void MarkReadyHere(uint32_t slot);

  void AckEvents(unsigned count);
  // Called by the channel when it hands out an event.
  void CountEvent() { events_reported_.fetch_add(1); }
  // On the service thread, while the owner may be asleep with messages outstanding.
  void OnWatchTimer();

  std::atomic<uint32_t> async_reported{0};

 private:
  CompletionQueue() = default;
  int Pop(int count, ibv_wc* wc);
  bool AnyReady() const;
  void IdlePoll();
  bool KickTargets(int64_t now);
  void WatchOutstanding();

  CqNotify* notify_ = nullptr;
  uint32_t number_ = 0;
  std::atomic<uint32_t> groups_used_{1};

  SpinLock lock_;  // CompletionQueue::lock
  std::vector<Cqe> ring_;
  uint32_t mask_ = 0;
  uint32_t limit_ = 0;
  std::atomic<uint32_t> head_{0};  // next to poll
  std::atomic<uint32_t> tail_{0};  // next to add
  std::atomic<bool> overrun_{false};

  SpinLock progress_lock_;
  std::vector<QueuePair*> slots_;
  std::vector<uint32_t> free_slots_;
  std::atomic<uint32_t> attached_{0};
  // Slots whose QPs may have unacknowledged messages; cleared by KickTargets when they have none.
  std::array<std::atomic<uint64_t>, kMaxQps / 64> outstanding_{};

  std::atomic<uint32_t> idle_polls_{0};
  std::atomic<int64_t> next_look_{0};
  std::atomic<bool> watched_{false};
  std::atomic<uint32_t> events_reported_{0};
};

}  // namespace verbena::softverbs
