#include "common/verbs/local_devices.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"

namespace verbena::verbs {

bool IsSoft(const VerbsApi& api) { return std::string_view(api.fabric()) == "soft"; }

absl::StatusOr<CmId> BindToDevice(CmChannel& channel, const NetAddress& address) {
  VERBENA_ASSIGN_OR_RETURN(CmId id, CmId::Create(channel));
  VERBENA_RETURN_IF_ERROR(id.Bind(address));
  // A loopback address can be bound, but has no device.
  if (!id.device().valid() && !IsSoft(channel.api())) {
    return absl::NotFoundError("the connection manager names no device");
  }
  return id;
}

std::vector<std::string> AddressesWithDevice(CmChannel& channel) {
  std::vector<std::string> found;
  for (NetAddress address : LocalAddresses()) {
    address.set_port(0);
    const absl::StatusOr<CmId> id = BindToDevice(channel, address);
    if (id.ok()) found.push_back(absl::StrCat(address.host(), " (", id->device().name(), ")"));
  }
  return found;
}

std::string AddressesWithDeviceText(CmChannel& channel) {
  const std::vector<std::string> addresses = AddressesWithDevice(channel);
  if (addresses.empty()) return "no address of this machine has one (see `rdma link`)";
  return absl::StrCat("these addresses of this machine have one: ", absl::StrJoin(addresses, ", "));
}

}  // namespace verbena::verbs
