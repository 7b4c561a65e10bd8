#include "common/verbs/capabilities.h"

#include <algorithm>

#include "common/base/macros.h"

namespace verbena::verbs {

absl::StatusOr<Capabilities> Capabilities::Of(const DeviceView& device) {
  VERBENA_ASSIGN_OR_RETURN(const ibv_device_attr limits, device.Query());
  return Capabilities(device.transport(), limits);
}

uint32_t Capabilities::read_scatter_elements() const {
  if (iwarp_) return 1;
  return static_cast<uint32_t>(std::max(1, std::min(limits_.max_sge, limits_.max_sge_rd)));
}

}  // namespace verbena::verbs
