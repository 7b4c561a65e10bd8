#include "common/verbs/local_devices.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"
#include "common/verbs/kernel_cm.h"

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
  std::vector<NetAddress> addresses = LocalAddresses();
  for (NetAddress& address : addresses) address.set_port(0);
  std::vector<std::string> found;
  const auto add = [&](const NetAddress& address, const std::string& device) {
    found.push_back(absl::StrCat(address.host(), " (", device, ")"));
  };
  if (IsSoft(channel.api())) {
    for (const NetAddress& address : addresses) {
      const absl::StatusOr<CmId> id = BindToDevice(channel, address);
      if (id.ok()) add(address, id->device().name());
    }
    return found;
  }
  const absl::StatusOr<std::vector<std::string>> devices = DevicesOfAddresses(addresses);
  if (!devices.ok()) return found;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!(*devices)[i].empty()) add(addresses[i], (*devices)[i]);
  }
  return found;
}

std::string AddressesWithDeviceText(CmChannel& channel) {
  const std::vector<std::string> addresses = AddressesWithDevice(channel);
  if (addresses.empty()) return "no address of this machine has one (see `rdma link`)";
  return absl::StrCat("these addresses of this machine have one: ", absl::StrJoin(addresses, ", "));
}

}  // namespace verbena::verbs
