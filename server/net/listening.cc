#include "server/net/listening.h"

#include <cerrno>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"
#include "common/verbs/device_files.h"
#include "common/verbs/errors.h"

namespace verbena::net {

bool IsSoft(const verbs::VerbsApi& api) { return std::string_view(api.fabric()) == "soft"; }

bool MeansNoDevice(const absl::Status& status) {
  if (verbs::IsNoDevice(status) || absl::IsNotFound(status)) return true;
  return verbs::ErrnoOf(status).value_or(0) == EADDRNOTAVAIL;
}

std::vector<NetAddress> AddressesToListenOn(const verbs::VerbsApi& api, const NetAddress& address) {
  if (!address.IsWildcard() || IsSoft(api)) return {address};
  std::vector<NetAddress> addresses;
  for (NetAddress own : LocalAddresses()) {
    if (own.family() != address.family() && address.family() != AF_INET6) continue;
    own.set_port(address.port());
    addresses.push_back(own);
  }
  return addresses;
}

absl::StatusOr<verbs::CmId> BindToDevice(verbs::CmChannel& channel, const NetAddress& address) {
  VERBENA_ASSIGN_OR_RETURN(verbs::CmId id, verbs::CmId::Create(channel));
  VERBENA_RETURN_IF_ERROR(id.Bind(address));
  // A loopback address can be bound, but has no device.
  if (!id.device().valid() && !IsSoft(channel.api())) {
    return absl::NotFoundError("the connection manager names no device");
  }
  return id;
}

std::vector<std::string> AddressesWithDevice(verbs::CmChannel& channel) {
  std::vector<std::string> found;
  for (NetAddress address : LocalAddresses()) {
    address.set_port(0);
    const absl::StatusOr<verbs::CmId> id = BindToDevice(channel, address);
    if (id.ok()) found.push_back(absl::StrCat(address.host(), " (", id->device().name(), ")"));
  }
  return found;
}

absl::Status NoDeviceFor(const verbs::VerbsApi& api, verbs::CmChannel& channel,
                         const NetAddress& address, const std::vector<std::string>& reasons) {
  if (!IsSoft(api)) VERBENA_RETURN_IF_ERROR(verbs::CheckDeviceFiles());
  const std::vector<std::string> others =
      channel.valid() ? AddressesWithDevice(channel) : std::vector<std::string>();
  std::string text =
      absl::StrCat("fabric ", api.fabric(), ": no RDMA device has the address ", address.host());
  if (!reasons.empty()) absl::StrAppend(&text, " (", absl::StrJoin(reasons, "; "), ")");
  if (others.empty()) {
    absl::StrAppend(&text, "; no address of this machine has one (see `rdma link`)");
  } else {
    absl::StrAppend(&text, "; these have one: ", absl::StrJoin(others, ", "));
  }
  return absl::NotFoundError(text);
}

}  // namespace verbena::net
