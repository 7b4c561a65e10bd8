#include "common/verbs/limited_verbs.h"

#include <algorithm>
#include <cerrno>

namespace verbena::verbs {
namespace {

// "As many as the device can" in a connection's parameters.
constexpr uint8_t kMostReads = 0xff;

bool Beyond(uint32_t value, int limit) { return int64_t{value} > limit; }

}  // namespace

int LimitedVerbs::Refuse(int error) {
  refused_.fetch_add(1);
  return error;
}

template <typename Make>
auto LimitedVerbs::Counted(Count& count, int limit, Make&& make) -> decltype(make()) {
  if (count.alive.fetch_add(1) >= limit) {
    count.alive.fetch_sub(1);
    errno = Refuse(ENOMEM);
    return nullptr;
  }
  auto* const made = make();
  if (made == nullptr) count.alive.fetch_sub(1);
  return made;
}

template <typename Run>
int LimitedVerbs::Released(Count& count, Run&& run) {
  const int returned = run();
  if (returned == 0) count.alive.fetch_sub(1);
  return returned;
}

int LimitedVerbs::QueryDevice(ibv_context* context, ibv_device_attr* attr) {
  const int returned = base().QueryDevice(context, attr);
  if (returned != 0) return returned;
  const auto lower = [](int& value, int limit) { value = std::min(value, limit); };
  lower(attr->max_qp, limits_.max_qp);
  lower(attr->max_qp_wr, limits_.max_qp_wr);
  lower(attr->max_sge, limits_.max_sge);
  lower(attr->max_sge_rd, limits_.max_sge);
  lower(attr->max_cq, limits_.max_cq);
  lower(attr->max_cqe, limits_.max_cqe);
  lower(attr->max_srq, limits_.max_srq);
  lower(attr->max_srq_wr, limits_.max_srq_wr);
  lower(attr->max_srq_sge, limits_.max_srq_sge);
  lower(attr->max_mr, limits_.max_mr);
  attr->max_mr_size = std::min(attr->max_mr_size, limits_.max_mr_size);
  lower(attr->max_pd, limits_.max_pd);
  lower(attr->max_qp_rd_atom, limits_.max_qp_rd_atom);
  lower(attr->max_qp_init_rd_atom, limits_.max_qp_init_rd_atom);
  return 0;
}

ibv_pd* LimitedVerbs::AllocPd(ibv_context* context) {
  return Counted(pds_, limits_.max_pd, [&] { return base().AllocPd(context); });
}
int LimitedVerbs::DeallocPd(ibv_pd* pd) {
  return Released(pds_, [&] { return base().DeallocPd(pd); });
}

ibv_mr* LimitedVerbs::RegMr(ibv_pd* pd, void* address, size_t length, int access) {
  if (length > limits_.max_mr_size) {
    errno = Refuse(EINVAL);
    return nullptr;
  }
  return Counted(mrs_, limits_.max_mr, [&] { return base().RegMr(pd, address, length, access); });
}
int LimitedVerbs::DeregMr(ibv_mr* mr) {
  return Released(mrs_, [&] { return base().DeregMr(mr); });
}

ibv_cq* LimitedVerbs::CreateCq(ibv_context* context, int cqe, void* cq_context,
                               ibv_comp_channel* channel, int comp_vector) {
  if (cqe > limits_.max_cqe) {
    errno = Refuse(EINVAL);
    return nullptr;
  }
  return Counted(cqs_, limits_.max_cq,
                 [&] { return base().CreateCq(context, cqe, cq_context, channel, comp_vector); });
}
int LimitedVerbs::DestroyCq(ibv_cq* cq) {
  return Released(cqs_, [&] { return base().DestroyCq(cq); });
}

ibv_srq* LimitedVerbs::CreateSrq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (limits_.srq_unsupported || limits_.max_srq == 0) {
    errno = Refuse(EOPNOTSUPP);
    return nullptr;
  }
  if (Beyond(attr->attr.max_wr, limits_.max_srq_wr) ||
      Beyond(attr->attr.max_sge, limits_.max_srq_sge)) {
    errno = Refuse(EINVAL);
    return nullptr;
  }
  return Counted(srqs_, limits_.max_srq, [&] { return base().CreateSrq(pd, attr); });
}
int LimitedVerbs::DestroySrq(ibv_srq* srq) {
  return Released(srqs_, [&] { return base().DestroySrq(srq); });
}

int LimitedVerbs::CheckQueuePair(const ibv_qp_init_attr& attr) {
  const ibv_qp_cap& cap = attr.cap;
  const bool own_receives = attr.srq == nullptr;
  if (Beyond(cap.max_send_wr, limits_.max_qp_wr) || Beyond(cap.max_send_sge, limits_.max_sge) ||
      cap.max_inline_data > limits_.max_inline_data ||
      (own_receives &&
       (Beyond(cap.max_recv_wr, limits_.max_qp_wr) || Beyond(cap.max_recv_sge, limits_.max_sge)))) {
    return Refuse(EINVAL);
  }
  return 0;
}

ibv_qp* LimitedVerbs::CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (const int error = CheckQueuePair(*attr); error != 0) {
    errno = error;
    return nullptr;
  }
  return Counted(qps_, limits_.max_qp, [&] { return base().CreateQp(pd, attr); });
}
int LimitedVerbs::ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 &&
       attr->max_rd_atomic > limits_.max_qp_init_rd_atom) ||
      ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 &&
       attr->max_dest_rd_atomic > limits_.max_qp_rd_atom)) {
    return Refuse(EINVAL);
  }
  return base().ModifyQp(qp, attr, mask);
}
int LimitedVerbs::DestroyQp(ibv_qp* qp) {
  return Released(qps_, [&] { return base().DestroyQp(qp); });
}

int LimitedVerbs::CmCreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (const int error = CheckQueuePair(*attr); error != 0) {
    errno = error;
    return -1;
  }
  const auto make = [&] { return base().CmCreateQp(id, pd, attr) == 0 ? id->qp : nullptr; };
  return Counted(qps_, limits_.max_qp, make) != nullptr ? 0 : -1;
}
void LimitedVerbs::CmDestroyQp(rdma_cm_id* id) {
  base().CmDestroyQp(id);
  qps_.alive.fetch_sub(1);
}

int LimitedVerbs::CheckReads(const rdma_conn_param* param) {
  if (param == nullptr) return 0;
  const auto beyond = [](uint8_t value, int limit) { return value != kMostReads && value > limit; };
  if (beyond(param->initiator_depth, limits_.max_qp_init_rd_atom) ||
      beyond(param->responder_resources, limits_.max_qp_rd_atom)) {
    errno = Refuse(EINVAL);
    return -1;
  }
  return 0;
}
int LimitedVerbs::CmConnect(rdma_cm_id* id, rdma_conn_param* param) {
  return CheckReads(param) != 0 ? -1 : base().CmConnect(id, param);
}
int LimitedVerbs::CmAccept(rdma_cm_id* id, rdma_conn_param* param) {
  return CheckReads(param) != 0 ? -1 : base().CmAccept(id, param);
}

}  // namespace verbena::verbs
