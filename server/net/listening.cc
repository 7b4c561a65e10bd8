#include "server/net/listening.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"
#include "common/verbs/device_files.h"
#include "common/verbs/errors.h"
#include "common/verbs/local_devices.h"

namespace verbena::net {

bool MeansNoDevice(const absl::Status& status) {
  if (verbs::IsNoDevice(status) || absl::IsNotFound(status)) return true;
  return verbs::ErrnoOf(status).value_or(0) == EADDRNOTAVAIL;
}

std::vector<NetAddress> AddressesToListenOn(const verbs::VerbsApi& api, const NetAddress& address) {
  if (!address.IsWildcard() || verbs::IsSoft(api)) return {address};
  std::vector<NetAddress> addresses;
  for (NetAddress own : LocalAddresses()) {
    if (own.family() != address.family() && address.family() != AF_INET6) continue;
    own.set_port(address.port());
    addresses.push_back(own);
  }
  return addresses;
}

HeldDevices HoldDevices(verbs::VerbsApi& api, const NetAddress& address) {
  HeldDevices devices;
  if (verbs::IsSoft(api)) return devices;
  absl::StatusOr<verbs::CmChannel> channel = verbs::CmChannel::Create(api);
  // Whoever binds to listen says why that fails; nothing is open then.
  if (!channel.ok()) return devices;
  devices.channel = *std::move(channel);
  for (NetAddress& each : AddressesToListenOn(api, address)) {
    each.set_port(0);
    absl::StatusOr<verbs::CmId> id = verbs::BindToDevice(devices.channel, each);
    if (id.ok()) devices.held.push_back({each, *std::move(id)});
  }
  return devices;
}

absl::Status NoDeviceFor(const verbs::VerbsApi& api, verbs::CmChannel& channel,
                         const NetAddress& address, const std::vector<std::string>& reasons) {
  const absl::Status files = verbs::IsSoft(api) ? absl::OkStatus() : verbs::CheckDeviceFiles();
  // A loopback address is on no device, whatever this process may open.
  if (!files.ok() && !address.IsLoopback()) {
    // Not NotFound: the kernel has a device.
    return absl::IsNotFound(files) ? absl::FailedPreconditionError(files.message()) : files;
  }
  std::string text =
      absl::StrCat("fabric ", api.fabric(), ": no RDMA device has the address ", address.host());
  if (!reasons.empty()) absl::StrAppend(&text, " (", absl::StrJoin(reasons, "; "), ")");
  absl::StrAppend(&text, "; ",
                  !files.ok()       ? std::string(files.message())
                  : channel.valid() ? verbs::AddressesWithDeviceText(channel)
                                    : std::string("no address of this machine has one"));
  return absl::NotFoundError(text);
}

}  // namespace verbena::net
