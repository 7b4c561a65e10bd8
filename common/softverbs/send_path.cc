// The requester's half of QueuePair.
//
// A WQE goes through three indices: tail_ (posted), next_ (launched), head_ (completed). READs,
// WRITEs and atomics execute when they are launched. Messages are in the target's hands from then
// on. Completions come in posting order: a READ that is done waits for the messages before it.
// WRITEs and atomics are not launched before all earlier messages are acknowledged, because their
// effect could be seen before that of the messages.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/clock.h"
#include "common/softverbs/queue_pair.h"
#include "common/softverbs/read_copy.h"

namespace verbena::softverbs {
namespace {

// What RETRY_EXC_ERR takes at most, whatever timeout and retry count say.
constexpr int64_t kMaxRetryNanos = 2'000'000'000;
// READs of a list whose target lines are prefetched before the first is executed, and lines each.
constexpr int kPrefetchReads = 16;
constexpr uint64_t kPrefetchBytes = 256;

// The delays that the five-bit codes of the RNR NAK timer stand for, in units of 10 us.
constexpr std::array<uint32_t, 32> kRnrTimer10us = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

ibv_wc_opcode CompletionOpcode(uint8_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

bool IsMessage(uint8_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Marks this end as possibly touching the other's memory. A deregistering owner clears the key,
// makes that visible with membarrier(2), and waits while the word stays odd; so a compiler fence
// is all that is needed here.
class BusyGuard {
 public:
  BusyGuard(Link* link, uint64_t* count) : link_(link), count_(count) {
    if (link_ == nullptr) return;
    link_->mine().busy.store(++*count_, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~BusyGuard() {
    if (link_ != nullptr) link_->mine().busy.store(++*count_, std::memory_order_release);
  }
  BusyGuard(const BusyGuard&) = delete;
  BusyGuard& operator=(const BusyGuard&) = delete;

 private:
  Link* link_;
  uint64_t* count_;
};

}  // namespace

const ibv_sge* QueuePair::Sges(const SendWqe& wqe) const {
  const auto index = static_cast<size_t>(&wqe - sq_.data());
  return sq_sges_.data() + index * init_.cap.max_send_sge;
}

uint8_t* QueuePair::InlineData(uint64_t index) {
  return sq_inline_.data() + (index & sq_mask_) * init_.cap.max_inline_data;
}

int QueuePair::CheckSend(const ibv_send_wr& wr) const {
  if (tail_ - freed_.load(std::memory_order_acquire) >= init_.cap.max_send_wr) return ENOMEM;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > init_.cap.max_send_sge) return EINVAL;
  switch (wr.opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return (wr.send_flags & IBV_SEND_INLINE) != 0 ? EINVAL : 0;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      break;
    default:
      return EINVAL;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return 0;
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  return length > init_.cap.max_inline_data ? EINVAL : 0;
}

SendWqe& QueuePair::Enqueue(const ibv_send_wr& wr) {
  const uint64_t index = tail_++;
  SendWqe& wqe = Wqe(index);
  wqe = SendWqe{};
  wqe.wr_id = wr.wr_id;
  wqe.opcode = static_cast<uint8_t>(wr.opcode);
  wqe.immediate = wr.imm_data;
  wqe.num_sge = static_cast<uint16_t>(wr.num_sge);
  wqe.signalled = init_.sq_sig_all != 0 || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  wqe.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  wqe.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wqe.remote_addr = wr.wr.atomic.remote_addr;
    wqe.rkey = wr.wr.atomic.rkey;
    wqe.compare_add = wr.wr.atomic.compare_add;
    wqe.swap = wr.wr.atomic.swap;
  } else if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) {
    wqe.remote_addr = wr.wr.rdma.remote_addr;
    wqe.rkey = wr.wr.rdma.rkey;
  }
  ibv_sge* sges = sq_sges_.data() + (index & sq_mask_) * init_.cap.max_send_sge;
  uint64_t length = 0;
  if (wqe.is_inline) {
    uint8_t* data = InlineData(index);
    for (int i = 0; i < wr.num_sge; ++i) {
      const ibv_sge& sge = wr.sg_list[i];
      std::memcpy(data + length, reinterpret_cast<const void*>(sge.addr), sge.length);
      length += sge.length;
    }
    sges[0] = {reinterpret_cast<uint64_t>(data), static_cast<uint32_t>(length), 0};
    wqe.num_sge = 1;
  } else {
    for (int i = 0; i < wr.num_sge; ++i) {
      sges[i] = wr.sg_list[i];
      length += wr.sg_list[i].length;
    }
  }
  // A sum beyond the longest message fails when the WQE is launched.
  wqe.length = static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX));
  return wqe;
}

int QueuePair::PostSend(ibv_send_wr* wr, ibv_send_wr** bad) {
  int error = 0;
  bool flush = false;
  {
    const std::lock_guard lock(sq_lock_);
    const ibv_qp_state now = state_.load(std::memory_order_relaxed);
    if (now != IBV_QPS_RTS && now != IBV_QPS_ERR) [[unlikely]] {
      *bad = wr;
      return EINVAL;
    }
    if (wr != nullptr && wr->next != nullptr) PrefetchReads(wr);
    {
      const BusyGuard guard(link_.get(), &busy_);
      for (; wr != nullptr; wr = wr->next) {
        error = CheckSend(*wr);
        if (error != 0) [[unlikely]] {
          *bad = wr;
          break;
        }
        if (wr->opcode == IBV_WR_RDMA_READ && FastRead(*wr)) continue;
        SendWqe& wqe = Enqueue(*wr);
        if (now == IBV_QPS_ERR) {
          PushSend(wqe, IBV_WC_WR_FLUSH_ERR);
          head_ = next_ = tail_;
        }
      }
    }
    if (next_ != tail_) LaunchPending();
    if (head_ != tail_) flush = Complete();
  }
  if (flush) FlushReceives();
  return error;
}

void QueuePair::PrefetchReads(const ibv_send_wr* wr) const {
  const Translation& known = translations_[0];
  if (known.base == nullptr) return;
  int count = 0;
  for (; wr != nullptr && count < kPrefetchReads; wr = wr->next, ++count) {
    if (wr->opcode != IBV_WR_RDMA_READ || wr->wr.rdma.rkey != known.rkey) continue;
    const uint64_t at = wr->wr.rdma.remote_addr - known.begin;
    if (wr->num_sge < 1 || at >= known.length) continue;
    const uint64_t size =
        std::min({uint64_t{wr->sg_list[0].length}, kPrefetchBytes, known.length - at});
    for (uint64_t line = at & ~(kCacheLine - 1); line < at + size; line += kCacheLine) {
      __builtin_prefetch(known.base + line);
    }
  }
}

// A READ with nothing unlaunched before it, without the detour through a WQE. False: take the
// general path (which repeats the checks, if they failed, and deals with the consequences).
bool QueuePair::FastRead(const ibv_send_wr& wr) {
  if (next_ != tail_ || head_ != tail_ || stopped_) return false;
  if (state_.load(std::memory_order_relaxed) != IBV_QPS_RTS || !PeerReady()) return false;
  const LinkSide& theirs = link_->theirs();
  if ((theirs.access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_READ) == 0 ||
      theirs.max_dest_rd_atomic.load(std::memory_order_relaxed) == 0 || attr_.max_rd_atomic == 0 ||
      wr.num_sge != 1) {
    return false;
  }
  const ibv_sge& sge = wr.sg_list[0];
  if (sge.length == 0 || sge.length > kMaxMessage) return false;
  uint8_t* data;
  Translation& known = translations_[0];
  const uint64_t at = wr.wr.rdma.remote_addr - known.begin;
  if (known.base == nullptr || wr.wr.rdma.rkey != known.rkey ||
      known.entry->tag.load(std::memory_order_acquire) != MrTag(known.rkey) || at > known.length ||
      sge.length > known.length - at) {
    return false;
  }
  data = known.base + at;
  if (!regions_->CheckLocal(sge.lkey, sge.addr, sge.length, pd_id(), read_sink_access_)) {
    return false;
  }
  ReadCopy(reinterpret_cast<void*>(sge.addr), data, sge.length);
  head_ = next_ = ++tail_;
  if (init_.sq_sig_all != 0 || (wr.send_flags & IBV_SEND_SIGNALED) != 0) {
    Cqe cqe;
    cqe.wc = {};
    cqe.wc.wr_id = wr.wr_id;
    cqe.wc.status = IBV_WC_SUCCESS;
    cqe.wc.opcode = IBV_WC_RDMA_READ;
    cqe.wc.byte_len = sge.length;
    cqe.wc.qp_num = qp_num;
    cqe.qp = this;
    cqe.slots_free = tail_;
    if (!scq()->Push(cqe, false)) Overrun();
  }
  return true;
}

bool QueuePair::PeerReady() const {
  if (link_ == nullptr) return false;
  const uint32_t theirs = link_->theirs().state.load(std::memory_order_acquire);
  return theirs == IBV_QPS_RTR || theirs == IBV_QPS_RTS;
}

// --- Launching. ---

void QueuePair::LaunchPending() {
  const BusyGuard guard(link_.get(), &busy_);
  while (next_ != tail_ && !stopped_) {
    if (!PeerReady()) {
      ArmRetryTimer();
      break;
    }
    if (LaunchOne(&Wqe(next_)) == Launch::kBlocked) break;
    ++next_;
  }
  if (published_) {
    link_->NotifyReceiver(published_solicited_);
    published_ = published_solicited_ = false;
  }
}

QueuePair::Launch QueuePair::Fail(SendWqe* wqe, ibv_wc_status status) {
  wqe->state = SendWqe::State::kFailed;
  wqe->status = status;
  stopped_ = true;
  return Launch::kFailed;
}

// Whether all messages are acknowledged; if not, we are told when they are.
bool QueuePair::WaitForAcks() {
  Direction& out = link_->out();
  if (out.completed.load(std::memory_order_acquire) >= messages_) return true;
  out.wanted.store(messages_);
  return out.completed.load() >= messages_;
}

QueuePair::Launch QueuePair::LaunchOne(SendWqe* wqe) {
  if (wqe->length > kMaxMessage) return Fail(wqe, IBV_WC_LOC_LEN_ERR);
  if (IsMessage(wqe->opcode)) return LaunchMessage(wqe);
  ibv_wc_status status;
  if (wqe->opcode == IBV_WR_RDMA_READ) {
    status = Read(Sges(*wqe), wqe->num_sge, wqe->length, wqe->remote_addr, wqe->rkey);
  } else {
    if (!WaitForAcks()) return Launch::kBlocked;
    status = wqe->opcode == IBV_WR_RDMA_WRITE ? Write(wqe) : Atomic(wqe);
  }
  if (status != IBV_WC_SUCCESS) return Fail(wqe, status);
  wqe->state = SendWqe::State::kDone;
  return Launch::kDone;
}

QueuePair::Launch QueuePair::LaunchMessage(SendWqe* wqe) {
  const bool write = wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  Direction& out = link_->out();
  if (wqe->message == 0) {
    if (write) {
      if (!WaitForAcks()) return Launch::kBlocked;
      if (const ibv_wc_status status = Write(wqe); status != IBV_WC_SUCCESS)
        return Fail(wqe, status);
    } else if (!wqe->is_inline && !CheckSges(Sges(*wqe), wqe->num_sge, 0)) {
      return Fail(wqe, IBV_WC_LOC_PROT_ERR);
    }
    wqe->message = ++messages_;
    scq()->MarkOutstanding(send_slot_);
  }
  const uint32_t total = write ? uint32_t{sizeof(uint32_t)} : wqe->length;
  // Where in the gather list the next byte lies.
  const ibv_sge* sge = Sges(*wqe);
  uint32_t skip = wqe->sent;
  while (!write && skip > 0 && skip >= sge->length) skip -= sge++->length;
  do {
    const uint32_t payload = std::min<uint32_t>(total - wqe->sent, kMaxPayload);
    if (!producer_.HasSpace(out.head, payload)) {
      // The responder looks at `blocked` after moving head (seq_cst on both sides).
      out.blocked.store(1);
      if (!producer_.HasSpace(out.head, payload)) return Launch::kBlocked;
    }
    PacketHeader header;
    header.length = payload;
    if (wqe->sent == 0) header.flags |= kPacketFirst;
    if (write) {
      producer_.Write(out.ring, 0, &wqe->length, sizeof(wqe->length));
      header.flags |= kPacketWrite;
    } else {
      for (uint32_t done = 0; done < payload;) {
        const uint32_t piece = std::min(payload - done, sge->length - skip);
        producer_.Write(out.ring, done, reinterpret_cast<const uint8_t*>(sge->addr) + skip, piece);
        done += piece;
        skip += piece;
        if (skip == sge->length) {
          ++sge;
          skip = 0;
        }
      }
    }
    wqe->sent += payload;
    if (wqe->sent == total) {
      header.flags |= kPacketLast;
      if (wqe->solicited) header.flags |= kPacketSolicited;
      if (wqe->signalled) header.flags |= kPacketAckRequest;
      if (wqe->opcode != IBV_WR_SEND) {
        header.flags |= kPacketImmediate;
        header.immediate = wqe->immediate;
      }
      published_solicited_ = published_solicited_ || wqe->solicited;
    }
    producer_.Publish(out.ring, header);
    published_ = true;
  } while (wqe->sent < total);
  wqe->state = SendWqe::State::kLaunched;
  return Launch::kDone;
}

// --- Completing. ---

void QueuePair::PushSend(const SendWqe& wqe, ibv_wc_status status) {
  Cqe cqe;
  cqe.wc = {};
  cqe.wc.wr_id = wqe.wr_id;
  cqe.wc.status = status;
  cqe.wc.opcode = CompletionOpcode(wqe.opcode);
  cqe.wc.byte_len = wqe.length;
  cqe.wc.qp_num = qp_num;
  cqe.qp = this;
  const auto slot = static_cast<uint64_t>(&wqe - sq_.data());
  // The WQE's index, recovered from its slot: it lies in [head_, tail_).
  cqe.slots_free = head_ + ((slot - head_) & sq_mask_) + 1;
  if (!scq()->Push(cqe, false)) Overrun();
}

bool QueuePair::Complete() {
  if (head_ == tail_ || state_.load(std::memory_order_relaxed) != IBV_QPS_RTS) return false;
  const uint64_t acknowledged =
      link_ == nullptr ? 0 : link_->out().completed.load(std::memory_order_acquire);
  while (head_ != tail_) {
    const SendWqe& wqe = Wqe(head_);
    const bool done = wqe.state == SendWqe::State::kDone ||
                      (wqe.state == SendWqe::State::kLaunched && wqe.message <= acknowledged);
    if (!done) return CompleteSlow();
    if (wqe.signalled) PushSend(wqe, IBV_WC_SUCCESS);
    ++head_;
  }
  return false;
}

// The oldest WQE is not done: has it failed, is it being refused, does anybody wait behind it?
bool QueuePair::CompleteSlow() {
  const SendWqe& wqe = Wqe(head_);
  if (wqe.state == SendWqe::State::kFailed) {
    FailFrom(wqe.status);
    return true;
  }
  if (wqe.message == 0 || link_ == nullptr) return false;
  Direction& out = link_->out();
  const uint64_t nak = out.nak.load(std::memory_order_acquire);
  if (nak != 0 && (nak & 0xffffffffffffff) == wqe.message) {
    FailFrom(static_cast<ibv_wc_status>(nak >> 56));
    return true;
  }
  if (CheckRnr(wqe)) return true;
  if (!PeerReady()) ArmRetryTimer();
  // Something behind it is done, failed, or waits for it; we want to hear of its completion even
  // if its own sender did not ask.
  if (next_ != head_ + 1 || tail_ != next_) {
    const uint64_t acknowledged = out.completed.load(std::memory_order_acquire);
    if (out.wanted.load(std::memory_order_relaxed) <= acknowledged) {
      out.wanted.store(wqe.message);
      if (out.completed.load() >= wqe.message) return Complete();
    }
  }
  return false;
}

// Counts the responder's RNR NAKs; true if they were too many.
bool QueuePair::CheckRnr(const SendWqe& head) {
  const uint64_t count = link_->out().rnr_count.load(std::memory_order_acquire);
  if (attr_.rnr_retry == 7 || count == rnr_seen_) return false;
  rnr_seen_ = count;
  // While the timer runs, further sightings belong to the same NAK.
  if (rnr_timer_) return false;
  if (rnr_message_ != head.message) {
    rnr_message_ = head.message;
    rnr_retries_ = 0;
  }
  if (rnr_retries_ >= attr_.rnr_retry) {
    FailFrom(IBV_WC_RNR_RETRY_EXC_ERR);
    return true;
  }
  ++rnr_retries_;
  rnr_timer_ = true;
  const uint32_t code = link_->theirs().min_rnr_timer.load(std::memory_order_relaxed) & 31;
  Later(int64_t{kRnrTimer10us[code]} * 10'000, &QueuePair::OnRnrTimer);
  return false;
}

void QueuePair::OnRnrTimer() {
  const std::lock_guard lock(sq_lock_);
  rnr_timer_ = false;
  if (state_.load() != IBV_QPS_RTS || link_ == nullptr) return;
  // Send again: the responder looks for a RECV once more.
  rnr_seen_ = link_->out().rnr_count.load(std::memory_order_acquire);
  link_->NotifyReceiver(false);
  link_->KickReceiver();
}

// The QP goes to ERR: the oldest WQE gets `first`, the others are flushed. The caller calls
// FlushReceives after it has released the lock.
void QueuePair::FailFrom(ibv_wc_status first) {
  state_.store(IBV_QPS_ERR);
  if (link_ != nullptr && first != IBV_WC_WR_FLUSH_ERR && head_ != tail_ &&
      Wqe(head_).message != 0) {
    link_->out().cancelled.store(Wqe(head_).message);
  }
  for (ibv_wc_status status = first; head_ != tail_; ++head_) {
    PushSend(Wqe(head_), status);
    status = IBV_WC_WR_FLUSH_ERR;
  }
  next_ = tail_;
  stopped_ = false;
  if (link_ == nullptr) return;
  link_->mine().state.store(IBV_QPS_ERR);
  // Its operations towards us will fail; its service thread sets the timers.
  link_->NotifySender(false);
  link_->KickSender();
}

void QueuePair::ArmRetryTimer() {
  if (retry_timer_) return;
  retry_timer_ = true;
  int64_t wait = kMaxRetryNanos;
  if (attr_.timeout > 0 && attr_.timeout < 20) {
    wait = std::min(wait, (int64_t{4096} << attr_.timeout) * (attr_.retry_cnt + 1));
  }
  Later(wait, &QueuePair::OnRetryTimer);
}

void QueuePair::OnRetryTimer() {
  {
    const std::lock_guard lock(sq_lock_);
    retry_timer_ = false;
    if (state_.load() != IBV_QPS_RTS) return;
    LaunchPending();
    if (!Complete()) {
      if (head_ == tail_ || PeerReady()) return;
      FailFrom(IBV_WC_RETRY_EXC_ERR);
    }
  }
  FlushReceives();
}

void QueuePair::ProgressSends() {
  bool flush;
  {
    const std::lock_guard lock(sq_lock_);
    if (state_.load(std::memory_order_relaxed) != IBV_QPS_RTS) return;
    flush = Complete();
    if (!flush && next_ != tail_) {
      LaunchPending();
      flush = Complete();
    }
  }
  if (flush) FlushReceives();
}

}  // namespace verbena::softverbs
