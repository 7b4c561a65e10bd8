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

}  // namespace verbena::verbs
