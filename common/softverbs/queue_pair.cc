#include "common/softverbs/queue_pair.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <utility>

#include "common/softverbs/port.h"

namespace verbena::softverbs {
namespace {

std::atomic<uint64_t> g_next_serial{1};

// How long messages may stay unacknowledged before the target's service thread is asked to receive
// them, and how much longer until it is asked again.
constexpr int64_t kKickAfterNanos = 50'000;
constexpr int64_t kKickPauseNanos = 1'000'000;

constexpr int kInitMask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtrMask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
// What may be changed on the way into a state or while staying in it.
constexpr int kOptionalMask = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                              IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

bool HasAll(int mask, int required) { return (mask & required) == required; }

int CheckCapabilities(const ibv_qp_init_attr& attr) {
  const ibv_qp_cap& cap = attr.cap;
  if (attr.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  if (cap.max_send_wr > kMaxWr || cap.max_send_sge > kMaxSge || cap.max_inline_data > kMaxInline) {
    return EINVAL;
  }
  if (attr.srq == nullptr && (cap.max_recv_wr > kMaxWr || cap.max_recv_sge > kMaxSge))
    return EINVAL;
  return 0;
}

}  // namespace

QueuePair* QueuePair::Create(ProtectionDomain* pd, ibv_qp_init_attr* attr) {
  if (const int error = CheckCapabilities(*attr); error != 0) {
    errno = error;
    return nullptr;
  }
  auto* qp = new QueuePair();
  Device& device = Device::Existing();
  attr->cap.max_send_wr = std::max(attr->cap.max_send_wr, 1u);
  attr->cap.max_send_sge = std::max(attr->cap.max_send_sge, 1u);
  attr->cap.max_recv_sge = std::max(attr->cap.max_recv_sge, 1u);
  if (attr->srq != nullptr) {
    attr->cap.max_recv_wr = 0;
  } else {
    qp->rq_.Resize(attr->cap.max_recv_wr, attr->cap.max_recv_sge);
  }
  const size_t slots = std::bit_ceil(size_t{attr->cap.max_send_wr});
  qp->sq_.resize(slots);
  qp->sq_mask_ = slots - 1;
  qp->sq_sges_.resize(slots * attr->cap.max_send_sge);
  qp->sq_inline_.resize(slots * attr->cap.max_inline_data);
  qp->init_ = *attr;
  qp->regions_ = &device.regions();
  if (pd->context->device->transport_type == IBV_TRANSPORT_IWARP) {
    qp->read_sink_access_ |= IBV_ACCESS_REMOTE_WRITE;
  }
  qp->serial_ = g_next_serial.fetch_add(1);
  qp->context = pd->context;
  qp->qp_context = attr->qp_context;
  qp->pd = pd;
  qp->send_cq = attr->send_cq;
  qp->recv_cq = attr->recv_cq;
  qp->srq = attr->srq;
  qp->state = IBV_QPS_RESET;
  qp->qp_type = IBV_QPT_RC;
  if (!device.AddQp(qp, &qp->qp_num)) {
    delete qp;
    return nullptr;
  }
  qp->handle = qp->qp_num;
  const bool recv_ok = qp->rcq()->AttachQp(qp, &qp->recv_slot_);
  const bool send_ok =
      recv_ok && (qp->scq() == qp->rcq() || qp->scq()->AttachQp(qp, &qp->send_slot_));
  if (!send_ok) {
    if (recv_ok) qp->rcq()->DetachQp(qp->recv_slot_);
    device.RemoveQp(qp->qp_num);
    delete qp;
    errno = ENOMEM;
    return nullptr;
  }
  if (qp->scq() == qp->rcq()) qp->send_slot_ = qp->recv_slot_;
  pthread_mutex_init(&qp->mutex, nullptr);
  pthread_cond_init(&qp->cond, nullptr);
  qp->events_completed = 0;
  pd->users.fetch_add(1);
  if (qp->srq != nullptr) SharedReceiveQueue::From(qp->srq)->users.fetch_add(1);
  return qp;
}

int QueuePair::Destroy() {
  // The peer must not wait for us: to it, a QP that is gone looks like one in ERR.
  EnterError();
  Device::Existing().RemoveQp(qp_num);
  rcq()->DetachQp(recv_slot_);
  if (scq() != rcq()) scq()->DetachQp(send_slot_);
  if (srq != nullptr) {
    SharedReceiveQueue::From(srq)->queue().Forget(this);
    SharedReceiveQueue::From(srq)->users.fetch_sub(1);
  }
  rcq()->Clean(this);
  if (scq() != rcq()) scq()->Clean(this);
  Context::From(context)->DropAsync(static_cast<ibv_qp*>(this));
  pthread_mutex_lock(&mutex);
  while (events_completed != async_reported.load()) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
  static_cast<ProtectionDomain*>(pd)->users.fetch_sub(1);
  delete this;
  return 0;
}

int QueuePair::CheckTransition(const ibv_qp_attr& attr, int mask, ibv_qp_state* next) const {
  const ibv_qp_state now = current_state();
  *next = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : now;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != now) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > kMaxRdAtomic) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr.max_dest_rd_atomic > kMaxRdAtomic) {
    return EINVAL;
  }
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_AV) != 0 && !IsPath(attr.ah_attr)) return EINVAL;
  if ((mask & IBV_QP_RNR_RETRY) != 0 && attr.rnr_retry > 7) return EINVAL;
  if ((mask & IBV_QP_RETRY_CNT) != 0 && attr.retry_cnt > 7) return EINVAL;
  if ((mask & IBV_QP_TIMEOUT) != 0 && attr.timeout > 31) return EINVAL;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr.min_rnr_timer > 31) return EINVAL;
  if (*next == IBV_QPS_RESET || *next == IBV_QPS_ERR) return 0;
  int required = 0;
  if (now == IBV_QPS_RESET && *next == IBV_QPS_INIT) {
    required = kInitMask;
  } else if (now == IBV_QPS_INIT && *next == IBV_QPS_RTR) {
    required = kRtrMask;
  } else if (now == IBV_QPS_RTR && *next == IBV_QPS_RTS) {
    required = kRtsMask;
  } else if (now == IBV_QPS_INIT && *next == IBV_QPS_INIT) {
    required = 0;
    if ((mask & ~(IBV_QP_STATE | IBV_QP_PORT | kOptionalMask)) != 0) return EINVAL;
    return 0;
  } else if (now != *next || now != IBV_QPS_RTS) {
    return EINVAL;
  }
  if (!HasAll(mask, required)) return EINVAL;
  return (mask & ~(IBV_QP_STATE | required | kOptionalMask)) != 0 ? EINVAL : 0;
}

void QueuePair::StoreAttributes(const ibv_qp_attr& attr, int mask) {
  const auto take = [&](int bit, auto member) {
    if ((mask & bit) != 0) attr_.*member = attr.*member;
  };
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  take(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  take(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
}

// Caller holds both locks.
void QueuePair::PublishSide() {
  if (link_ == nullptr) return;
  LinkSide& side = link_->mine();
  side.access.store(attr_.qp_access_flags, std::memory_order_relaxed);
  side.max_dest_rd_atomic.store(attr_.max_dest_rd_atomic, std::memory_order_relaxed);
  side.min_rnr_timer.store(attr_.min_rnr_timer, std::memory_order_relaxed);
  side.rnr_retry.store(attr_.rnr_retry, std::memory_order_relaxed);
  side.state.store(static_cast<uint32_t>(state_.load()));
}

// The member of ibv_qp that programs may look at. Several threads may modify a queue pair at once.
void QueuePair::ShowState(ibv_qp_state value) {
  std::atomic_ref(state).store(value, std::memory_order_relaxed);
}

int QueuePair::Modify(const ibv_qp_attr& attr, int mask) {
  ibv_qp_state next;
  if (const int error = CheckTransition(attr, mask, &next); error != 0) return error;
  if (next == IBV_QPS_ERR) {
    EnterError();
    ShowState(IBV_QPS_ERR);
    return 0;
  }
  if (next == IBV_QPS_RESET) {
    Reset();
    ShowState(IBV_QPS_RESET);
    return 0;
  }
  const std::lock_guard rx(rx_lock_);
  const std::lock_guard sq(sq_lock_);
  StoreAttributes(attr, mask);
  state_.store(next);
  ShowState(next);
  PublishSide();
  return 0;
}

// Forgets everything, without completions. A connection does not survive it.
void QueuePair::Reset() {
  EnterError();
  rcq()->Clean(this);
  if (scq() != rcq()) scq()->Clean(this);
  const std::lock_guard rx(rx_lock_);
  const std::lock_guard sq(sq_lock_);
  rq_.Clear();
  attr_ = {};
  head_ = next_ = tail_ = 0;
  freed_.store(0);
  stopped_ = false;
  receiving_ = false;
  receives_flushed_ = false;
  link_.reset();
  translations_ = {};
  producer_ = {};
  consumer_ = {};
  messages_ = completed_ = wanted_answered_ = 0;
  rnr_seen_ = rnr_message_ = 0;
  state_.store(IBV_QPS_RESET);
}

void QueuePair::Query(ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  const std::lock_guard rx(rx_lock_);
  const std::lock_guard sq(sq_lock_);
  *attr = attr_;
  attr->qp_state = attr->cur_qp_state = state_.load();
  attr->cap = init_.cap;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  *init = init_;
}

void QueuePair::Establish(std::shared_ptr<Link> link, const ibv_qp_attr& attr) {
  Link* raw = link.get();
  {
    const std::lock_guard rx(rx_lock_);
    const std::lock_guard sq(sq_lock_);
    if (state_.load() != IBV_QPS_INIT) return;
    StoreAttributes(attr, kRtrMask | kRtsMask | IBV_QP_ACCESS_FLAGS);
    link_ = std::move(link);
    state_.store(IBV_QPS_RTS);
    ShowState(IBV_QPS_RTS);
    PublishSide();
  }
  // The peer may have sent already, or may be waiting for this.
  MarkReceiveReady();
  raw->NotifySender(false);
}

void QueuePair::Initialize() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  Modify(attr, IBV_QP_STATE | kInitMask);
}

void QueuePair::RaiseAsync(ibv_event_type type) {
  ibv_async_event event{};
  event.element.qp = this;
  event.event_type = type;
  Context::From(context)->RaiseAsync(event);
}

void QueuePair::EnterError() {
  {
    const std::lock_guard lock(sq_lock_);
    const ibv_qp_state now = state_.load();
    if (now == IBV_QPS_ERR || now == IBV_QPS_RESET) return;
    FailFrom(IBV_WC_WR_FLUSH_ERR);
  }
  FlushReceives();
}

void QueuePair::DropStaleTranslations() {
  std::array<Translation, 2> stale;  // unmapped without the lock
  const std::lock_guard lock(sq_lock_);
  for (size_t i = 0; i < translations_.size(); ++i) {
    Translation& known = translations_[i];
    if (known.entry == nullptr || known.entry->tag.load() == MrTag(known.rkey)) continue;
    stale[i] = std::exchange(known, {});
  }
}

void QueuePair::Progress(CompletionQueue* cq) {
  if (cq == recv_cq) ProgressReceives();
  if (cq == send_cq) ProgressSends();
}

bool QueuePair::KickTarget(int64_t now) {
  bool flush = false;
  bool outstanding = false;
  {
    const std::lock_guard lock(sq_lock_);
    if (head_ == tail_ || link_ == nullptr || state_.load() != IBV_QPS_RTS) return false;
    LaunchPending();
    flush = Complete();
    const uint64_t done = link_->out().completed.load(std::memory_order_acquire);
    outstanding = !flush && done < messages_;
    if (outstanding && done != watched_completed_) {
      watched_completed_ = done;
      watched_since_ = now;
    } else if (outstanding && now - watched_since_ >= kKickAfterNanos) {
      watched_since_ = now + kKickPauseNanos;
      link_->KickReceiver();
    }
  }
  if (flush) FlushReceives();
  return outstanding;
}

void QueuePair::Later(int64_t nanos, void (QueuePair::*action)()) {
  Device& device = Device::Existing();
  device.service().RunAt(MonotonicNanos() + nanos, [number = qp_num, serial = serial_, action] {
    Device& alive = Device::Existing();
    const std::lock_guard lock(alive.object_mutex);
    QueuePair* qp = alive.FindQp(number);
    if (qp != nullptr && qp->serial_ == serial) (qp->*action)();
  });
}

int QueuePair::PostSendVerb(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return From(qp)->PostSend(wr, bad);
}

int QueuePair::PostRecvVerb(ibv_qp* abi_qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  QueuePair* qp = From(abi_qp);
  if (qp->srq != nullptr || qp->state_.load() == IBV_QPS_RESET) {
    *bad = wr;
    return EINVAL;
  }
  const int error = qp->rq_.Post(wr, bad);
  if (qp->state_.load() == IBV_QPS_ERR) qp->FlushReceives();
  return error;
}

}  // namespace verbena::softverbs
