// The data-path verbs: thin inline calls through ibv_context::ops, with no allocation and no
// Status. The return values are those of the C functions: 0 or a positive errno (Poll: see there).
//
// Thread-safety: as libibverbs (posting to and polling a queue may be done by several threads).
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::verbs {

// Posts a list of send requests (linked by `next`). On an error `*bad` is the first request that
// was not posted; those before it are. ENOMEM: the queue is full.
inline int PostSend(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
  return ibv_post_send(qp, list, bad);
}

// Posts one request that is the only one in its list.
inline int PostSend(ibv_qp* qp, ibv_send_wr* request) {
  ibv_send_wr* bad;  // is of no interest
  return ibv_post_send(qp, request, &bad);
}

// Posts a list of receive buffers to a queue pair without a shared receive queue.
inline int PostRecv(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return ibv_post_recv(qp, list, bad);
}

// Posts a list of receive buffers to a shared receive queue.
inline int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return ibv_post_srq_recv(srq, list, bad);
}

// Takes up to `out.size()` completions: how many, or a negative value if the queue itself failed
// (an overrun), after which it is dead.
inline int Poll(ibv_cq* cq, std::span<ibv_wc> out) {
  return ibv_poll_cq(cq, static_cast<int>(out.size()), out.data());
}

// Arms the queue: one event for a completion that is added after this call.
inline int RequestNotify(ibv_cq* cq, bool solicited_only) {
  return ibv_req_notify_cq(cq, solicited_only ? 1 : 0);
}

inline uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

inline ibv_sge MakeSge(const void* address, uint32_t length, uint32_t lkey) {
  return ibv_sge{AddressOf(address), length, lkey};
}

// A READ of remote memory into `*sge`, which must live until the request is posted. Signalled.
inline ibv_send_wr MakeRead(uint64_t wr_id, ibv_sge* sge, uint64_t remote_address, uint32_t rkey) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.sg_list = sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote_address;
  request.wr.rdma.rkey = rkey;
  return request;
}

// A SEND of `*sge`. `flags`: IBV_SEND_SIGNALED, IBV_SEND_INLINE, IBV_SEND_SOLICITED,
// IBV_SEND_FENCE.
inline ibv_send_wr MakeSend(uint64_t wr_id, ibv_sge* sge, unsigned flags) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.sg_list = sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = flags;
  return request;
}

// A receive buffer.
inline ibv_recv_wr MakeRecv(uint64_t wr_id, ibv_sge* sge) {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = sge;
  request.num_sge = 1;
  return request;
}

}  // namespace verbena::verbs
