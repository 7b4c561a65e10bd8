#include "common/verbs/conn_param.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/errors.h"

namespace verbena::verbs {

std::string ConnectRange::ToString() const {
  return absl::StrCat(least, " to ", most, " (", meaning, ")");
}

absl::StatusOr<uint8_t> ConnectRange::Check(uint64_t value) const {
  if (value >= least && value <= most) return static_cast<uint8_t>(value);
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be ", ToString()));
}

absl::Status ApplyBeforeConnect(CmId& id, const ConnectOptions& options) {
  if (options.tos.has_value()) VERBENA_RETURN_IF_ERROR(id.SetTypeOfService(*options.tos));
  const absl::Status status = id.SetAckTimeout(options.ack_timeout);
  const int error = ErrnoOf(status).value_or(0);
  return error == ENOSYS || error == EOPNOTSUPP ? absl::OkStatus() : status;
}

absl::Status ApplyAfterConnect(const CmId& id, QueuePair& qp, const ConnectOptions& options) {
  if (!HasRnrTimer(id.device().transport())) return absl::OkStatus();
  return qp.SetMinRnrTimer(options.min_rnr_timer);
}

std::string DescribeConnection(const CmId& id, const QueuePair& qp) {
  std::string text = absl::StrCat("QP ", qp.number(), ": ");
  if (!HasRnrTimer(id.device().transport())) return text + "iWARP, TCP repeats";
  const absl::StatusOr<ibv_qp_attr> attr =
      qp.Query(IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_MIN_RNR_TIMER |
               IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC);
  if (!attr.ok()) return absl::StrCat(text, attr.status().message());
  // Packets that are addressed by LID alone have no field for the type of service.
  const ibv_ah_attr& path = attr->ah_attr;
  absl::StrAppend(&text, "tos ",
                  path.is_global != 0 ? absl::StrCat(path.grh.traffic_class) : "none (no GRH)",
                  ", ack_timeout ", attr->timeout, ", retry_count ", attr->retry_cnt,
                  ", rnr_timer ", attr->min_rnr_timer, ", READs ", attr->max_rd_atomic, " out, ",
                  attr->max_dest_rd_atomic, " in");
  if (path.is_global != 0) absl::StrAppend(&text, ", GID index ", path.grh.sgid_index);
  return text;
}

}  // namespace verbena::verbs
