// READ, WRITE and atomics of QueuePair: in the initiator's thread, on the target's memory. The
// caller holds sq_lock_ and a BusyGuard.
#include <cstring>
#include <utility>

#include "common/softverbs/queue_pair.h"
#include "common/softverbs/read_copy.h"

namespace verbena::softverbs {

bool QueuePair::CheckSges(const ibv_sge* sges, uint32_t num_sge, uint32_t need) const {
  for (uint32_t i = 0; i < num_sge; ++i) {
    if (sges[i].length != 0 &&
        !regions_->CheckLocal(sges[i].lkey, sges[i].addr, sges[i].length, pd_id(), need)) {
      return false;
    }
  }
  return true;
}

ibv_wc_status QueuePair::RemoteRefusal(ibv_wc_status status, Fault fault) {
  link_->RaiseFault(fault, messages_);
  return status;
}

ibv_wc_status QueuePair::Translate(uint32_t rkey, uint64_t address, uint64_t length, uint32_t need,
                                   Translation* cache, uint8_t** data) {
  if (cache->rkey != rkey || cache->entry == nullptr ||
      cache->entry->tag.load(std::memory_order_acquire) != MrTag(rkey) || address < cache->begin ||
      address - cache->begin > cache->length || length > cache->length - (address - cache->begin) ||
      (cache->access & need) == 0) {
    const ibv_wc_status status = TranslateSlow(rkey, address, length, need, cache);
    if (status != IBV_WC_SUCCESS) return status;
  }
  *data = cache->base == nullptr ? nullptr : cache->base + (address - cache->begin);
  return IBV_WC_SUCCESS;
}

ibv_wc_status QueuePair::TranslateSlow(uint32_t rkey, uint64_t address, uint64_t length,
                                       uint32_t need, Translation* cache) {
  *cache = {};
  PeerProcess& peer = link_->peer();
  if (MrIndex(rkey) >= kMaxMrs) return IBV_WC_REM_ACCESS_ERR;
  const MrEntry& entry = peer.table().entries[MrIndex(rkey)];
  if (entry.tag.load(std::memory_order_acquire) != MrTag(rkey)) return IBV_WC_REM_ACCESS_ERR;
  Translation found;
  found.rkey = rkey;
  found.entry = &entry;
  found.begin = entry.address.load(std::memory_order_relaxed);
  found.length = entry.length.load(std::memory_order_relaxed);
  found.access = entry.access.load(std::memory_order_relaxed);
  const uint32_t domain = entry.pd.load(std::memory_order_relaxed);
  const uint64_t memory = entry.memory.load(std::memory_order_relaxed);
  const uint64_t offset = entry.offset.load(std::memory_order_acquire);
  // The entry may have been given to another registration meanwhile.
  if (entry.tag.load(std::memory_order_acquire) != MrTag(rkey)) return IBV_WC_REM_ACCESS_ERR;
  if (domain != link_->remote().pd || (found.access & need) == 0 || address < found.begin ||
      address - found.begin > found.length || length > found.length - (address - found.begin)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  if (peer.is_self()) {
    found.base = reinterpret_cast<uint8_t*>(found.begin);
  } else if (memory != 0) {
    const bool writable = need != IBV_ACCESS_REMOTE_READ;
    found.memory = peer.FindMemory(memory);
    if (found.memory == nullptr) {
      link_->DrainAnnouncements();
      found.memory = peer.FindMemory(memory);
    }
    const PeerMemory* at = found.memory.get();
    if (at != nullptr && found.length <= at->size() && offset <= at->size() - found.length) {
      uint8_t* mapped = found.memory->Map(writable);
      if (mapped != nullptr) found.base = mapped + offset;
    }
  }
  *cache = std::move(found);
  return IBV_WC_SUCCESS;
}

ibv_wc_status QueuePair::Read(const ibv_sge* sges, uint32_t num_sge, uint32_t length,
                              uint64_t address, uint32_t rkey) {
  const LinkSide& theirs = link_->theirs();
  if ((theirs.access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_READ) == 0 ||
      theirs.max_dest_rd_atomic.load(std::memory_order_relaxed) == 0) {
    return RemoteRefusal(IBV_WC_REM_INV_REQ_ERR, Fault::kInvalidRequest);
  }
  if (attr_.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
  if (length == 0) return IBV_WC_SUCCESS;
  // With both keys bad the remote error wins, as on the wire: the request is out before the local
  // buffer is needed.
  uint8_t* data;
  const ibv_wc_status status =
      Translate(rkey, address, length, IBV_ACCESS_REMOTE_READ, &translations_[0], &data);
  if (status != IBV_WC_SUCCESS) return RemoteRefusal(status, Fault::kAccess);
  if (!CheckSges(sges, num_sge, read_sink_access_)) return IBV_WC_LOC_PROT_ERR;
  for (uint32_t i = 0; i < num_sge; ++i) {
    auto* local = reinterpret_cast<void*>(sges[i].addr);
    if (data != nullptr) {
      ReadCopy(local, data, sges[i].length);
      data += sges[i].length;
    } else if (!link_->peer().CopyByKernel(local, address, sges[i].length, false)) {
      return RemoteRefusal(IBV_WC_REM_OP_ERR, Fault::kInvalidRequest);
    }
    address += sges[i].length;
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status QueuePair::Write(SendWqe* wqe) {
  const ibv_sge* sges = Sges(*wqe);
  if (!wqe->is_inline && !CheckSges(sges, wqe->num_sge, 0)) return IBV_WC_LOC_PROT_ERR;
  if ((link_->theirs().access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_WRITE) == 0) {
    return RemoteRefusal(IBV_WC_REM_INV_REQ_ERR, Fault::kInvalidRequest);
  }
  if (wqe->length == 0) return IBV_WC_SUCCESS;
  uint8_t* data;
  const ibv_wc_status status = Translate(wqe->rkey, wqe->remote_addr, wqe->length,
                                         IBV_ACCESS_REMOTE_WRITE, &translations_[1], &data);
  if (status != IBV_WC_SUCCESS) {
    return RemoteRefusal(
        status, wqe->opcode == IBV_WR_RDMA_WRITE ? Fault::kAccess : Fault::kAccessWithReceive);
  }
  uint64_t address = wqe->remote_addr;
  for (uint32_t i = 0; i < wqe->num_sge; ++i) {
    auto* local = reinterpret_cast<void*>(sges[i].addr);
    if (data != nullptr) {
      WriteCopy(data, local, sges[i].length);
      data += sges[i].length;
    } else if (!link_->peer().CopyByKernel(local, address, sges[i].length, true)) {
      return RemoteRefusal(IBV_WC_REM_OP_ERR, Fault::kInvalidRequest);
    }
    address += sges[i].length;
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status QueuePair::Atomic(SendWqe* wqe) {
  const LinkSide& theirs = link_->theirs();
  if ((theirs.access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_ATOMIC) == 0 ||
      theirs.max_dest_rd_atomic.load(std::memory_order_relaxed) == 0 || wqe->remote_addr % 8 != 0) {
    return RemoteRefusal(IBV_WC_REM_INV_REQ_ERR, Fault::kInvalidRequest);
  }
  if (wqe->length != 8) return IBV_WC_LOC_LEN_ERR;
  uint8_t* data;
  const ibv_wc_status status =
      Translate(wqe->rkey, wqe->remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC, &translations_[1], &data);
  if (status != IBV_WC_SUCCESS) return RemoteRefusal(status, Fault::kAccess);
  if (!CheckSges(Sges(*wqe), wqe->num_sge, IBV_ACCESS_LOCAL_WRITE)) return IBV_WC_LOC_PROT_ERR;
  if (data == nullptr) return RemoteRefusal(IBV_WC_REM_OP_ERR, Fault::kInvalidRequest);
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(data));
  uint64_t old = wqe->compare_add;
  if (wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    old = word.fetch_add(wqe->compare_add);
  } else {
    word.compare_exchange_strong(old, wqe->swap);
  }
  // The eight bytes may be scattered.
  const ibv_sge* sges = Sges(*wqe);
  const auto* from = reinterpret_cast<const uint8_t*>(&old);
  for (uint32_t i = 0; i < wqe->num_sge; ++i) {
    std::memcpy(reinterpret_cast<void*>(sges[i].addr), from, sges[i].length);
    from += sges[i].length;
  }
  return IBV_WC_SUCCESS;
}

}  // namespace verbena::softverbs
