#include "common/verbs/accept.h"

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/errors.h"

namespace verbena::verbs {
namespace {

// Bits that the kernel's answer to rdma_init_qp_attr may have set and ibv_modify_qp does not know.
constexpr int kForeignMask = 0xe00000;

// The attributes with which the connection manager would move the queue pair to `state`, and their
// mask.
absl::Status InitAttributes(CmId& id, ibv_qp_state state, ibv_qp_attr* attr, int* mask) {
  *attr = {};
  attr->qp_state = state;
  VERBENA_RETURN_IF_ERROR(FromMinusOne(id.api().CmInitQpAttr(id.get(), attr, mask),
                                       "rdma_init_qp_attr", [&] { return absl::StrCat(state); }));
  *mask &= ~kForeignMask;
  return absl::OkStatus();
}

absl::Status MoveToReady(CmId& id, QueuePair& qp, const ConnectOptions& options, unsigned access) {
  ibv_qp_attr attr;
  int mask = 0;
  // The port and the key's index were not known when the queue pair was made.
  VERBENA_RETURN_IF_ERROR(InitAttributes(id, IBV_QPS_INIT, &attr, &mask));
  attr.qp_access_flags = access;
  VERBENA_RETURN_IF_ERROR(qp.Modify(attr, mask));
  VERBENA_RETURN_IF_ERROR(InitAttributes(id, IBV_QPS_RTR, &attr, &mask));
  attr.max_dest_rd_atomic = options.responder_resources;
  attr.min_rnr_timer = options.min_rnr_timer;
  if (options.tos.has_value() && attr.ah_attr.is_global != 0) {
    attr.ah_attr.grh.traffic_class = *options.tos;
  }
  VERBENA_RETURN_IF_ERROR(qp.Modify(attr, mask | IBV_QP_MIN_RNR_TIMER));
  VERBENA_RETURN_IF_ERROR(InitAttributes(id, IBV_QPS_RTS, &attr, &mask));
  attr.max_rd_atomic = options.initiator_depth;
  attr.retry_cnt = options.retry_count;
  attr.timeout = options.ack_timeout;
  return qp.Modify(attr, mask);
}

bool NotOffered(const absl::Status& status) {
  const int error = ErrnoOf(status).value_or(0);
  return error == ENOSYS || error == EOPNOTSUPP;
}

}  // namespace

absl::Status Accept(CmId& id, QueuePair& qp, const ConnectOptions& options, unsigned access,
                    std::span<const uint8_t> private_data) {
  rdma_conn_param param = MakeConnParam(options, private_data);
  // iWARP moves the queue pair itself.
  const bool by_hand = HasRnrTimer(id.device().transport());
  const absl::Status moved =
      by_hand ? MoveToReady(id, qp, options, access) : absl::UnimplementedError("iWARP");
  if (moved.ok()) {
    // An id that knows of no queue pair leaves its state alone and takes the number from here.
    param.qp_num = qp.number();
    param.srq = qp.get()->srq != nullptr ? 1 : 0;
    ibv_qp* const kept = std::exchange(id.get()->qp, nullptr);
    const absl::Cleanup restore = [&] { id.get()->qp = kept; };
    return id.Accept(param);
  }
  if (by_hand && !NotOffered(moved)) return moved;
  VERBENA_RETURN_IF_ERROR(id.Accept(param));
  const auto tell = [&](const absl::Status& status) {
    if (!status.ok()) LogDebug("accepted ", id.peer_address().ToString(), ": ", status.message());
  };
  tell(ApplyAfterConnect(id, qp, options));
  ibv_qp_attr rights{};
  rights.qp_access_flags = access;
  tell(qp.Modify(rights, IBV_QP_ACCESS_FLAGS));
  return absl::OkStatus();
}

}  // namespace verbena::verbs
