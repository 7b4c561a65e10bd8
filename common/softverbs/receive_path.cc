// The responder's half of QueuePair: takes messages off the ring, in the thread of whoever
// progresses the receive CQ.
#include <algorithm>
#include <cstring>

#include "common/softverbs/queue_pair.h"

namespace verbena::softverbs {

void QueuePair::ProgressReceives() {
  bool error = false;
  ibv_event_type raise = IBV_EVENT_COMM_EST;  // none
  {
    const std::lock_guard lock(rx_lock_);
    const ibv_qp_state now = state_.load(std::memory_order_acquire);
    if ((now != IBV_QPS_RTR && now != IBV_QPS_RTS) || link_ == nullptr) return;
    error = !ReceivePackets(&raise);
  }
  if (!error) return;
  if (raise != IBV_EVENT_COMM_EST) RaiseAsync(raise);
  EnterError();
}

bool QueuePair::ReceivePackets(ibv_event_type* raise) {
  Direction& in = link_->in();
  const uint64_t head_before = consumer_.head();
  const uint64_t completed_before = completed_;
  bool good = true;
  for (uint64_t word; good && (word = consumer_.Peek(in.ring)) != 0;) {
    const PacketHeader header = DecodeHeader(word);
    if (header.length > kMaxPayload) {
      good = false;  // no requester of ours writes that
      break;
    }
    if ((header.flags & kPacketFirst) != 0 && !receiving_ && !StartMessage()) break;
    const ibv_wc_status status = CopyIn(header);
    if (status != IBV_WC_SUCCESS) {
      RefuseMessage(status,
                    status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
      return false;
    }
    if ((header.flags & kPacketLast) != 0) FinishMessage(header);
    consumer_.Consume(in.ring, header.length);
  }
  if (consumer_.head() != head_before) {
    consumer_.PublishHead(in.head);
    if (in.blocked.load(std::memory_order_seq_cst) != 0 && in.blocked.exchange(0) != 0) {
      link_->NotifySender(false);
      link_->KickSender();
    }
  }
  if (completed_ != completed_before) {
    in.completed.store(completed_);  // seq_cst, as the requester's store of `wanted`
    const uint64_t wanted = in.wanted.load();
    if (wanted > wanted_answered_ && wanted <= completed_) {
      wanted_answered_ = wanted;
      ack_now_ = true;
    }
    if (ack_now_) link_->NotifySender(false);
    ack_now_ = false;
  }
  // A fault counts once everything sent before it has been received.
  const uint64_t fault = link_->mine().fault.load(std::memory_order_acquire);
  if (fault == 0 || completed_ < fault >> 8) [[likely]]
    return good;
  switch (static_cast<Fault>(fault & 0xff)) {
    case Fault::kAccessWithReceive:
      if (TakeReceive()) {
        PushReceive(current_.wr_id, IBV_WC_LOC_ACCESS_ERR, nullptr);
        receiving_ = false;
      }
      [[fallthrough]];
    case Fault::kAccess:
      *raise = IBV_EVENT_QP_ACCESS_ERR;
      break;
    default:
      *raise = IBV_EVENT_QP_REQ_ERR;
      break;
  }
  return false;
}

bool QueuePair::TakeReceive() {
  uint32_t left;
  receiving_ = srq != nullptr ? SharedReceiveQueue::From(srq)->Take(&current_, this)
                              : rq_.Take(&current_, this, &left);
  received_bytes_ = 0;
  return receiving_;
}

// Takes a RECV for a message that begins. False: there is none, the message stays where it is.
bool QueuePair::StartMessage() {
  Direction& in = link_->in();
  const uint64_t cancelled = in.cancelled.load(std::memory_order_acquire);
  if (cancelled != 0 && completed_ + 1 >= cancelled) [[unlikely]]
    return false;
  if (TakeReceive()) return true;
  in.rnr_count.fetch_add(1);
  // A requester that waits for ever need not know.
  if (link_->theirs().rnr_retry.load(std::memory_order_relaxed) != 7) {
    link_->NotifySender(false);
    link_->KickSender();
  }
  return false;
}

ibv_wc_status QueuePair::CopyIn(const PacketHeader& header) {
  if ((header.flags & kPacketWrite) != 0) return IBV_WC_SUCCESS;
  const uint32_t domain = srq != nullptr ? SharedReceiveQueue::From(srq)->pd_id() : pd_id();
  const Direction& in = link_->in();
  uint64_t skip = received_bytes_;
  uint32_t done = 0;
  for (uint32_t i = 0; i < current_.num_sge && done < header.length; ++i) {
    const ibv_sge& sge = current_.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const auto piece =
        static_cast<uint32_t>(std::min<uint64_t>(header.length - done, sge.length - skip));
    // Checked for what is written: an SGE that is longer than its MR does no harm if the data fits.
    if (!regions_->CheckLocal(sge.lkey, sge.addr + skip, piece, domain, IBV_ACCESS_LOCAL_WRITE)) {
      return IBV_WC_LOC_PROT_ERR;
    }
    consumer_.Read(in.ring, done, reinterpret_cast<uint8_t*>(sge.addr) + skip, piece);
    done += piece;
    skip = 0;
  }
  if (done < header.length) return IBV_WC_LOC_LEN_ERR;
  received_bytes_ += header.length;
  return IBV_WC_SUCCESS;
}

void QueuePair::FinishMessage(const PacketHeader& header) {
  if ((header.flags & kPacketWrite) != 0) {
    uint32_t length = 0;
    consumer_.Read(link_->in().ring, 0, &length, std::min<size_t>(header.length, sizeof(length)));
    received_bytes_ = length;
  }
  PushReceive(current_.wr_id, IBV_WC_SUCCESS, &header);
  receiving_ = false;
  ++completed_;
  if ((header.flags & kPacketAckRequest) != 0) ack_now_ = true;
}

void QueuePair::RefuseMessage(ibv_wc_status local, ibv_wc_status remote) {
  Direction& in = link_->in();
  in.completed.store(completed_);
  in.nak.store(static_cast<uint64_t>(remote) << 56 | (completed_ + 1));
  PushReceive(current_.wr_id, local, nullptr);
  receiving_ = false;
  link_->NotifySender(true);
  link_->KickSender();
}

void QueuePair::PushReceive(uint64_t wr_id, ibv_wc_status status, const PacketHeader* header) {
  Cqe cqe;
  cqe.wc = {};
  cqe.wc.wr_id = wr_id;
  cqe.wc.status = status;
  cqe.wc.opcode = IBV_WC_RECV;
  cqe.wc.qp_num = qp_num;
  cqe.qp = nullptr;
  cqe.slots_free = 0;
  bool solicited = false;
  if (header != nullptr) {
    cqe.wc.byte_len = static_cast<uint32_t>(received_bytes_);
    cqe.wc.src_qp = link_->remote().qp_num;
    solicited = (header->flags & kPacketSolicited) != 0;
    if ((header->flags & kPacketWrite) != 0) cqe.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    if ((header->flags & kPacketImmediate) != 0) {
      cqe.wc.wc_flags = IBV_WC_WITH_IMM;
      cqe.wc.imm_data = header->immediate;
    }
  }
  if (!rcq()->Push(cqe, solicited)) Overrun();
}

void QueuePair::FlushReceives() {
  bool last = false;
  {
    const std::lock_guard lock(rx_lock_);
    if (state_.load() != IBV_QPS_ERR) return;
    if (receiving_) PushReceive(current_.wr_id, IBV_WC_WR_FLUSH_ERR, nullptr);
    receiving_ = false;
    if (srq == nullptr) {
      Receive receive;
      while (rq_.TakeForFlush(&receive)) PushReceive(receive.wr_id, IBV_WC_WR_FLUSH_ERR, nullptr);
    } else {
      last = !receives_flushed_;
    }
    receives_flushed_ = true;
  }
  // The SRQ keeps its RECVs; this QP will take no more.
  if (last) RaiseAsync(IBV_EVENT_QP_LAST_WQE_REACHED);
}

}  // namespace verbena::softverbs
