#include "common/softverbs/receive_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>

#include "common/softverbs/queue_pair.h"

namespace verbena::softverbs {

int ReceiveQueue::Resize(uint32_t max_wr, uint32_t max_sge) {
  if (max_wr > kMaxWr || max_sge > kMaxSge) return EINVAL;
  const std::lock_guard lock(lock_);
  max_wr_ = max_wr;
  max_sge_ = max_sge;
  const uint32_t size = std::bit_ceil(std::max(max_wr, 1u));
  mask_ = size - 1;
  entries_.resize(size);
  sges_.resize(size_t{size} * max_sge);
  return 0;
}

int ReceiveQueue::Post(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const std::lock_guard lock(lock_);
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > max_sge_) {
      error = EINVAL;
    } else if (tail_ - head_ >= max_wr_) {
      error = ENOMEM;
    }
    if (error != 0) {
      *bad = wr;
      break;
    }
    const uint32_t at = tail_++ & mask_;
    entries_[at] = {wr->wr_id, static_cast<uint32_t>(wr->num_sge)};
    std::copy_n(wr->sg_list, wr->num_sge, sges_.data() + size_t{at} * max_sge_);
  }
  if (!stalled_.empty() && head_ != tail_) [[unlikely]] {
    for (QueuePair* qp : stalled_) qp->MarkReceiveReady();
    stalled_.clear();
  }
  return error;
}

void ReceiveQueue::CopyOut(Receive* receive) {
  const uint32_t at = head_++ & mask_;
  receive->wr_id = entries_[at].wr_id;
  receive->num_sge = entries_[at].num_sge;
  std::copy_n(sges_.data() + size_t{at} * max_sge_, receive->num_sge, receive->sges.data());
}

bool ReceiveQueue::Take(Receive* receive, QueuePair* qp, uint32_t* left) {
  const std::lock_guard lock(lock_);
  if (head_ == tail_) {
    if (std::find(stalled_.begin(), stalled_.end(), qp) == stalled_.end()) stalled_.push_back(qp);
    return false;
  }
  CopyOut(receive);
  *left = tail_ - head_;
  return true;
}

bool ReceiveQueue::TakeForFlush(Receive* receive) {
  const std::lock_guard lock(lock_);
  if (head_ == tail_) return false;
  CopyOut(receive);
  return true;
}

void ReceiveQueue::Forget(QueuePair* qp) {
  const std::lock_guard lock(lock_);
  std::erase(stalled_, qp);
}

void ReceiveQueue::Clear() {
  const std::lock_guard lock(lock_);
  head_ = tail_;
}

uint32_t ReceiveQueue::count() {
  const std::lock_guard lock(lock_);
  return tail_ - head_;
}

SharedReceiveQueue* SharedReceiveQueue::Create(ProtectionDomain* pd, ibv_srq_init_attr* attr) {
  auto* srq = new SharedReceiveQueue();
  const uint32_t max_sge = std::max(attr->attr.max_sge, 1u);
  const int error =
      attr->attr.max_wr == 0 ? EINVAL : srq->queue_.Resize(attr->attr.max_wr, max_sge);
  if (error != 0) {
    delete srq;
    errno = error;
    return nullptr;
  }
  attr->attr.max_sge = max_sge;
  srq->context = pd->context;
  srq->srq_context = attr->srq_context;
  srq->pd = pd;
  srq->handle = 0;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  srq->events_completed = 0;
  pd->users.fetch_add(1);
  return srq;
}

int SharedReceiveQueue::Destroy() {
  if (users.load() != 0) return EBUSY;
  Context::From(context)->DropAsync(static_cast<ibv_srq*>(this));
  pthread_mutex_lock(&mutex);
  while (events_completed != async_reported.load()) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
  static_cast<ProtectionDomain*>(pd)->users.fetch_sub(1);
  delete this;
  return 0;
}

int SharedReceiveQueue::Modify(const ibv_srq_attr& attr, int mask) {
  if ((mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR)) != 0 || (mask & IBV_SRQ_MAX_WR) != 0) {
    return (mask & IBV_SRQ_MAX_WR) != 0 ? EOPNOTSUPP : EINVAL;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (attr.srq_limit > queue_.max_wr()) return EINVAL;
    // As rxe: nothing is raised until the next RECV is taken.
    limit_.store(attr.srq_limit, std::memory_order_relaxed);
  }
  return 0;
}

void SharedReceiveQueue::Query(ibv_srq_attr* attr) {
  attr->max_wr = queue_.max_wr();
  attr->max_sge = queue_.max_sge();
  attr->srq_limit = limit_.load(std::memory_order_relaxed);
}

int SharedReceiveQueue::PostVerb(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return From(srq)->queue_.Post(wr, bad);
}

bool SharedReceiveQueue::Take(Receive* receive, QueuePair* qp) {
  uint32_t left = 0;
  if (!queue_.Take(receive, qp, &left)) return false;
  uint32_t limit = limit_.load(std::memory_order_relaxed);
  // One shot: whoever resets the limit raises the event.
  if (limit != 0 && left < limit && limit_.compare_exchange_strong(limit, 0)) [[unlikely]] {
    ibv_async_event event{};
    event.element.srq = this;
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    Context::From(context)->RaiseAsync(event);
  }
  return true;
}

}  // namespace verbena::softverbs
