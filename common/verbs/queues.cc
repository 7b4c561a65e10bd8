#include "common/verbs/queues.h"

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/cm.h"
#include "common/verbs/errors.h"

namespace verbena::verbs {
namespace {

ibv_qp_init_attr InitAttr(const QueuePairOptions& options) {
  ibv_qp_init_attr attr{};
  attr.send_cq = options.send_cq;
  attr.recv_cq = options.recv_cq;
  attr.srq = options.srq;
  attr.cap.max_send_wr = options.max_send_wr;
  attr.cap.max_recv_wr = options.srq == nullptr ? options.max_recv_wr : 0;
  attr.cap.max_send_sge = options.max_send_sge;
  attr.cap.max_recv_sge = options.srq == nullptr ? options.max_recv_sge : 0;
  attr.cap.max_inline_data = options.max_inline_data;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = options.signal_all ? 1 : 0;
  return attr;
}

std::string Describe(const QueuePairOptions& options) {
  return absl::StrCat("RC, ", options.max_send_wr, " sends of ", options.max_send_sge, " pieces, ",
                      options.srq != nullptr ? std::string("shared receive queue")
                                             : absl::StrCat(options.max_recv_wr, " receives of ",
                                                            options.max_recv_sge, " pieces"),
                      ", ", options.max_inline_data, " bytes inline");
}

}  // namespace

absl::StatusOr<SharedReceiveQueue> SharedReceiveQueue::Create(const ProtectionDomain& pd,
                                                              uint32_t max_wr, uint32_t max_sge) {
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = max_wr;
  attr.attr.max_sge = max_sge;
  VERBENA_ASSIGN_OR_RETURN(ibv_srq* const srq,
                           FromPointer(pd.api().CreateSrq(pd.get(), &attr), "ibv_create_srq", [&] {
                             return absl::StrCat(max_wr, " receives of ", max_sge, " pieces");
                           }));
  return SharedReceiveQueue(internal::Handle<ibv_srq>(pd.api(), srq), attr.attr.max_wr);
}

absl::Status SharedReceiveQueue::ArmLimit(uint32_t limit) {
  ibv_srq_attr attr{};
  attr.srq_limit = limit;
  return FromReturn(handle_.api()->ModifySrq(handle_.get(), &attr, IBV_SRQ_LIMIT), "ibv_modify_srq",
                    [&] { return absl::StrCat("limit ", limit); });
}

absl::StatusOr<QueuePair> QueuePair::Create(const ProtectionDomain& pd,
                                            const QueuePairOptions& options) {
  ibv_qp_init_attr attr = InitAttr(options);
  VERBENA_ASSIGN_OR_RETURN(ibv_qp* const qp,
                           FromPointer(pd.api().CreateQp(pd.get(), &attr), "ibv_create_qp",
                                       [&] { return Describe(options); }));
  return QueuePair(pd.api(), qp, nullptr, attr.cap);
}

absl::StatusOr<QueuePair> QueuePair::CreateOn(const CmId& id, const ProtectionDomain& pd,
                                              const QueuePairOptions& options) {
  ibv_qp_init_attr attr = InitAttr(options);
  VERBENA_RETURN_IF_ERROR(FromMinusOne(pd.api().CmCreateQp(id.get(), pd.get(), &attr),
                                       "rdma_create_qp", [&] { return Describe(options); }));
  return QueuePair(pd.api(), id.get()->qp, id.get(), attr.cap);
}

QueuePair::QueuePair(QueuePair&& other) noexcept
    : api_(other.api_),
      qp_(std::exchange(other.qp_, nullptr)),
      id_(std::exchange(other.id_, nullptr)),
      cap_(other.cap_) {}

QueuePair& QueuePair::operator=(QueuePair&& other) noexcept {
  if (this != &other) {
    Reset();
    api_ = other.api_;
    qp_ = std::exchange(other.qp_, nullptr);
    id_ = std::exchange(other.id_, nullptr);
    cap_ = other.cap_;
  }
  return *this;
}

void QueuePair::Reset() noexcept {
  ibv_qp* const qp = std::exchange(qp_, nullptr);
  rdma_cm_id* const id = std::exchange(id_, nullptr);
  if (qp == nullptr) return;
  if (id != nullptr) {
    api_->CmDestroyQp(id);
  } else {
    internal::Handle<ibv_qp>(*api_, qp).Reset();
  }
}

absl::Status QueuePair::Modify(ibv_qp_attr attr, int mask) {
  return FromReturn(api_->ModifyQp(qp_, &attr, mask), "ibv_modify_qp",
                    [&] { return absl::StrCat("QP ", qp_->qp_num, ", mask ", mask); });
}

absl::Status QueuePair::ToError() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return Modify(attr, IBV_QP_STATE);
}

absl::Status QueuePair::SetMinRnrTimer(uint8_t code) {
  if (code > 31) {
    return absl::InvalidArgumentError(
        absl::StrCat("RNR timer code ", code, " is out of range (0 to 31)"));
  }
  ibv_qp_attr attr{};
  attr.min_rnr_timer = code;
  return Modify(attr, IBV_QP_MIN_RNR_TIMER);
}

absl::StatusOr<ibv_qp_attr> QueuePair::Query(int mask) const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  VERBENA_RETURN_IF_ERROR(FromReturn(api_->QueryQp(qp_, &attr, mask, &init), "ibv_query_qp",
                                     [&] { return absl::StrCat("QP ", qp_->qp_num); }));
  return attr;
}

absl::StatusOr<ibv_qp_state> QueuePair::QueryState() const {
  VERBENA_ASSIGN_OR_RETURN(const ibv_qp_attr attr, Query(IBV_QP_STATE));
  return attr.qp_state;
}

}  // namespace verbena::verbs
