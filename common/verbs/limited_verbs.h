// Test support: a table of control verbs for a device that can do less. It lowers what the queries
// answer and refuses what goes beyond, with the errors of a real device: too many objects are
// ENOMEM, too large ones EINVAL. Everything else goes on to another table.
//
// Posts are not in the table: what a queue pair was made for (pieces, inline bytes, depths) is
// enforced by the device underneath.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#include "common/verbs/forwarding_verbs.h"

namespace verbena::verbs {

// Limits by their names in ibv_device_attr; those of the device underneath hold beside them.
struct LoweredLimits {
  int max_qp = INT_MAX;
  int max_qp_wr = INT_MAX;
  int max_sge = INT_MAX;
  int max_cq = INT_MAX;
  int max_cqe = INT_MAX;
  int max_srq = INT_MAX;
  int max_srq_wr = INT_MAX;
  int max_srq_sge = INT_MAX;
  int max_mr = INT_MAX;
  uint64_t max_mr_size = UINT64_MAX;  // bytes
  int max_pd = INT_MAX;
  int max_qp_rd_atom = INT_MAX;
  int max_qp_init_rd_atom = INT_MAX;
  uint32_t max_inline_data = UINT32_MAX;  // bytes; no query tells it
  // Shared receive queues are named in the limits, but making one is EOPNOTSUPP.
  bool srq_unsupported = false;
};

class LimitedVerbs : public ForwardingVerbs {
 public:
  LimitedVerbs(VerbsApi& base, const LoweredLimits& limits)
      : ForwardingVerbs(base), limits_(limits) {}

  // Calls that were refused for a limit.
  uint64_t refused() const { return refused_.load(); }

  int QueryDevice(ibv_context* context, ibv_device_attr* attr) override;
  ibv_pd* AllocPd(ibv_context* context) override;
  int DeallocPd(ibv_pd* pd) override;
  ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) override;
  int DeregMr(ibv_mr* mr) override;
  ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                   int comp_vector) override;
  int DestroyCq(ibv_cq* cq) override;
  ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) override;
  int DestroySrq(ibv_srq* srq) override;
  ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) override;
  int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override;
  int DestroyQp(ibv_qp* qp) override;
  int CmConnect(rdma_cm_id* id, rdma_conn_param* param) override;
  int CmAccept(rdma_cm_id* id, rdma_conn_param* param) override;
  int CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override;
  void CmDestroyQp(rdma_cm_id* id) override;

 private:
  // Objects of a kind.
  struct Count {
    std::atomic<int> alive{0};
  };
  // Makes an object if there may be one more: nullptr and ENOMEM if not.
  template <typename Make>
  auto Counted(Count& count, int limit, Make&& make) -> decltype(make());
  template <typename Run>
  int Released(Count& count, Run&& run);
  // An errno that says that a limit was exceeded, counted.
  int Refuse(int error);
  int CheckQueuePair(const ibv_qp_init_attr& attr);
  int CheckReads(const rdma_conn_param* param);

  const LoweredLimits limits_;
  Count pds_, mrs_, cqs_, srqs_, qps_;
  std::atomic<uint64_t> refused_{0};
};

}  // namespace verbena::verbs
