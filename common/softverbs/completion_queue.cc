#include "common/softverbs/completion_queue.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "common/base/clock.h"
#include "common/softverbs/queue_pair.h"

namespace verbena::softverbs {
namespace {

// Empty polls between looks at the clock, and time between looks at outstanding messages.
constexpr uint32_t kPollsPerLook = 128;
constexpr int64_t kLookNanos = 30'000;
// The same for an owner that may be asleep: done by the service thread.
constexpr int64_t kFirstWatchNanos = 100'000;
constexpr int64_t kWatchNanos = 1'000'000;

constexpr auto kIdle = static_cast<uint32_t>(ArmState::kIdle);
constexpr auto kArmed = static_cast<uint32_t>(ArmState::kArmed);
constexpr auto kArmedSolicited = static_cast<uint32_t>(ArmState::kArmedSolicited);
constexpr auto kFired = static_cast<uint32_t>(ArmState::kFired);

}  // namespace

CompletionChannel* CompletionChannel::Create(Context* context) {
  EventCounter counter = EventCounter::CreateShared();
  if (!counter.valid()) return nullptr;
  auto* channel = new CompletionChannel();
  channel->counter_ = std::move(counter);
  channel->context = context;
  channel->fd = channel->counter_.fd();
  channel->refcnt = 0;
  channel->id_ = Device::Existing().NewChannelId();
  context->users.fetch_add(1);
  return channel;
}

int CompletionChannel::Destroy() {
  {
    const std::lock_guard lock(mutex_);
    if (!cqs_.empty()) return EBUSY;
  }
  Context::From(context)->users.fetch_sub(1);
  delete this;
  return 0;
}

void CompletionChannel::Attach(CompletionQueue* cq) {
  const std::lock_guard lock(mutex_);
  cqs_.push_back(cq);
  refcnt = static_cast<int>(cqs_.size());
}

void CompletionChannel::Detach(CompletionQueue* cq) {
  const std::lock_guard lock(mutex_);
  std::erase(cqs_, cq);
  refcnt = static_cast<int>(cqs_.size());
  if (cq->notify().control.exchange(kIdle) != kFired) return;
  (void)counter_.TryTake();
  SignalIfFired();
}

int CompletionChannel::ShareFd() {
  if ((fcntl(counter_.fd(), F_GETFL) & O_NONBLOCK) != 0) never_wait_.store(true);
  return counter_.fd();
}

int CompletionChannel::GetEvent(ibv_cq** cq, void** cq_context) {
  for (;;) {
    const bool never_wait = never_wait_.load();
    if ((never_wait ? counter_.TryTake() : counter_.Take()) != 0) return -1;
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < cqs_.size(); ++i) {
      CompletionQueue* candidate = cqs_[(next_ + i) % cqs_.size()];
      uint32_t fired = kFired;
      if (!candidate->notify().control.compare_exchange_strong(fired, kIdle)) continue;
      next_ = (next_ + i + 1) % cqs_.size();
      SignalIfFired();
      candidate->CountEvent();
      *cq = candidate;
      *cq_context = candidate->cq_context;
      return 0;
    }
    // A signal without an event: of a CQ that another signal has been taken for, left over from a
    // peer's death or a destroyed CQ, or a peer's mischief; which must not keep the caller here.
    if (never_wait) {
      errno = EAGAIN;
      return -1;
    }
  }
}

void CompletionChannel::SignalIfFired() {
  for (CompletionQueue* cq : cqs_) {
    if (cq->notify().control.load() != kFired) continue;
    counter_.Signal();
    return;
  }
}

void CompletionChannel::ResignalFired() {
  const std::lock_guard lock(mutex_);
  SignalIfFired();
}

CompletionQueue* CompletionQueue::Create(Context* context, int entries, void* cq_context,
                                         CompletionChannel* channel) {
  if (entries < 1 || entries > kMaxCqe) {
    errno = EINVAL;
    return nullptr;
  }
  auto* cq = new CompletionQueue();
  Device& device = Device::Existing();
  cq->ring_.resize(std::bit_ceil(static_cast<uint32_t>(entries)));
  cq->mask_ = static_cast<uint32_t>(cq->ring_.size()) - 1;
  cq->limit_ = static_cast<uint32_t>(entries);
  if (!device.AddCq(cq, &cq->number_)) {
    delete cq;
    return nullptr;
  }
  cq->notify_ = &device.notify().cqs[cq->number_];
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = cq->number_;
  cq->cqe = entries;
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  cq->comp_events_completed = 0;
  cq->async_events_completed = 0;
  if (channel != nullptr) channel->Attach(cq);
  context->users.fetch_add(1);
  return cq;
}

int CompletionQueue::Destroy() {
  if (attached_.load() != 0) return EBUSY;
  Device::Existing().RemoveCq(number_);
  if (channel != nullptr) comp_channel()->Detach(this);
  Context::From(context)->DropAsync(static_cast<ibv_cq*>(this));
  pthread_mutex_lock(&mutex);
  while (comp_events_completed != events_reported_.load() ||
         async_events_completed != async_reported.load()) {
    pthread_cond_wait(&cond, &mutex);
  }
  pthread_mutex_unlock(&mutex);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
  Context::From(context)->users.fetch_sub(1);
  delete this;
  return 0;
}

void CompletionQueue::AckEvents(unsigned count) {
  pthread_mutex_lock(&mutex);
  comp_events_completed += count;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

bool CompletionQueue::Push(const Cqe& entry, bool solicited) {
  {
    const std::lock_guard lock(lock_);
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (overrun_) return false;
    if (tail - head_.load(std::memory_order_relaxed) >= limit_) [[unlikely]] {
      overrun_ = true;
      ibv_async_event event{};
      event.element.cq = this;
      event.event_type = IBV_EVENT_CQ_ERR;
      Context::From(context)->RaiseAsync(event);
      return false;
    }
    ring_[tail & mask_] = entry;
    tail_.store(tail + 1, std::memory_order_seq_cst);
  }
  FireIfArmed(solicited || entry.wc.status != IBV_WC_SUCCESS);
  return true;
}

void CompletionQueue::FireIfArmed(bool solicited) {
  uint32_t control = notify_->control.load();
  if (control != kArmed && !(control == kArmedSolicited && solicited)) [[likely]]
    return;
  if (channel == nullptr) return;
  if (notify_->control.compare_exchange_strong(control, kFired)) comp_channel()->counter().Signal();
}

void CompletionQueue::MarkReadyHere(uint32_t slot) {
  notify_->MarkReady(slot);
  // A poller finds the bit. If the owner sleeps, or never polls, the service thread takes over.
  Device::Existing().KickService(number_);
}

bool CompletionQueue::AttachQp(QueuePair* qp, uint32_t* slot) {
  const std::lock_guard lock(progress_lock_);
  if (!free_slots_.empty()) {
    *slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[*slot] = qp;
  } else {
    if (slots_.size() >= kMaxQps) {
      errno = ENOMEM;
      return false;
    }
    *slot = static_cast<uint32_t>(slots_.size());
    slots_.push_back(qp);
    const uint32_t groups = *slot / CqNotify::kSlotsPerGroup + 1;
    groups_used_.store(groups, std::memory_order_relaxed);
  }
  attached_.fetch_add(1);
  return true;
}

void CompletionQueue::DetachQp(uint32_t slot) {
  const std::lock_guard lock(progress_lock_);
  slots_[slot] = nullptr;
  free_slots_.push_back(slot);
  attached_.fetch_sub(1);
}

void CompletionQueue::Clean(const QueuePair* qp) {
  const std::lock_guard lock(lock_);
  uint32_t kept = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  for (uint32_t i = kept; i != tail; ++i) {
    const Cqe entry = ring_[i & mask_];
    if (entry.wc.qp_num == qp->qp_num) continue;
    ring_[kept++ & mask_] = entry;
  }
  tail_.store(kept, std::memory_order_seq_cst);
}

bool CompletionQueue::AnyReady() const {
  if (notify_->groups[0].summary.load() != 0) return true;
  const uint32_t groups = groups_used_.load(std::memory_order_relaxed);
  for (uint32_t g = 1; g < groups; ++g) {
    if (notify_->groups[g].summary.load() != 0) return true;
  }
  return false;
}

void CompletionQueue::Progress() {
  const std::lock_guard lock(progress_lock_);
  for (uint32_t g = 0; g < CqNotify::kGroups && g * CqNotify::kSlotsPerGroup < slots_.size(); ++g) {
    CqNotify::Group& group = notify_->groups[g];
    if (group.summary.load() == 0) continue;
    for (uint64_t words = group.summary.exchange(0); words != 0; words &= words - 1) {
      const auto w = static_cast<uint32_t>(std::countr_zero(words));
      for (uint64_t bits = group.ready[w].exchange(0); bits != 0; bits &= bits - 1) {
        const uint32_t slot =
            g * CqNotify::kSlotsPerGroup + w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        if (slot < slots_.size() && slots_[slot] != nullptr) slots_[slot]->Progress(this);
      }
    }
  }
}

int CompletionQueue::Pop(int count, ibv_wc* wc) {
  // Empty is the common case for a poller; no lock for it. seq_cst: see the wake-up protocol.
  if (head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst)) {
    if (!overrun_.load(std::memory_order_relaxed)) [[likely]]
      return 0;
    return -1;
  }
  const std::lock_guard lock(lock_);
  uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  int n = 0;
  for (; n < count && head != tail; ++n, ++head) {
    const Cqe& entry = ring_[head & mask_];
    wc[n] = entry.wc;
    if (entry.qp != nullptr) entry.qp->FreeSlots(entry.slots_free);
  }
  head_.store(head, std::memory_order_relaxed);
  return n;
}

int CompletionQueue::PollVerb(ibv_cq* abi_cq, int count, ibv_wc* wc) {
  CompletionQueue* cq = From(abi_cq);
  if (cq->AnyReady()) cq->Progress();
  if (count <= 0) return 0;
  const int n = cq->Pop(count, wc);
  if (n == 0) cq->IdlePoll();
  return n;
}

void CompletionQueue::IdlePoll() {
  const uint32_t polls = idle_polls_.load(std::memory_order_relaxed) + 1;
  idle_polls_.store(polls, std::memory_order_relaxed);
  if (polls % kPollsPerLook != 0) [[likely]]
    return;
  const int64_t now = MonotonicNanos();
  if (now < next_look_.load(std::memory_order_relaxed)) return;
  next_look_.store(now + kLookNanos, std::memory_order_relaxed);
  KickTargets(now);
}

// Whether any QP that completes its sends here has messages outstanding.
bool CompletionQueue::KickTargets(int64_t now) {
  bool outstanding = false;
  const std::lock_guard lock(progress_lock_);
  for (uint32_t w = 0; w * 64 < slots_.size(); ++w) {
    if (outstanding_[w].load(std::memory_order_relaxed) == 0) continue;
    // Cleared first: a message that is sent meanwhile sets its bit again.
    for (uint64_t bits = outstanding_[w].exchange(0); bits != 0; bits &= bits - 1) {
      const uint32_t slot = w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      if (slot >= slots_.size() || slots_[slot] == nullptr || !slots_[slot]->KickTarget(now)) {
        continue;
      }
      MarkOutstanding(slot);
      outstanding = true;
    }
  }
  return outstanding;
}

// The owner may go to sleep with messages outstanding whose target does not poll. Checked with a
// delay, by the service thread: mostly they are gone by then, and arming stays cheap.
void CompletionQueue::WatchOutstanding() {
  if (!KickTargets(MonotonicNanos()) || watched_.exchange(true)) return;
  Device::Existing().WatchCq(number_, MonotonicNanos() + kFirstWatchNanos);
}

void CompletionQueue::OnWatchTimer() {
  watched_.store(false);
  const int64_t now = MonotonicNanos();
  if (!KickTargets(now) || watched_.exchange(true)) return;
  Device::Existing().WatchCq(number_, now + kWatchNanos);
}

int CompletionQueue::ReqNotifyVerb(ibv_cq* abi_cq, int solicited_only) {
  CompletionQueue* cq = From(abi_cq);
  // Arming twice keeps the wider request. A fired event stays fired until it is collected: the
  // owner will hear of it and arm again.
  uint32_t control = cq->notify_->control.load();
  for (;;) {
    if (control == kFired) {
      // Not yet collected: the coming get_cq_event returns at once, which is a legal event.
      break;
    }
    const uint32_t wanted = solicited_only != 0 && control != kArmed ? kArmedSolicited : kArmed;
    if (cq->notify_->control.compare_exchange_strong(control, wanted)) break;
  }
  cq->WatchOutstanding();
  return 0;
}

}  // namespace verbena::softverbs
