#include "server/net/listening.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/macros.h"
#include "common/verbs/device.h"
#include "common/verbs/device_files.h"
#include "common/verbs/errors.h"
#include "common/verbs/kernel_cm.h"
#include "common/verbs/local_devices.h"

namespace verbena::net {
namespace {

// OK: it is not for want of a file or a provider that no device has the address.
absl::Status WhyUnusable(verbs::VerbsApi& api, const NetAddress& address) {
  // A loopback address is on no device, whatever this process may use.
  if (verbs::IsSoft(api) || address.IsLoopback()) return absl::OkStatus();
  VERBENA_RETURN_IF_ERROR(verbs::CheckDeviceFiles());
  VERBENA_ASSIGN_OR_RETURN(const std::vector<std::string> listed, verbs::Device::List(api));
  const absl::Status providers = verbs::CheckProviders(listed);
  if (providers.ok() || address.IsWildcard()) return providers;
  // The kernel knows devices that the library hides.
  const auto devices = verbs::DevicesOfAddresses({address});
  return devices.ok() && devices->front().empty() ? absl::OkStatus() : providers;
}

}  // namespace

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

absl::Status NoDeviceFor(verbs::VerbsApi& api, verbs::CmChannel& channel, const NetAddress& address,
                         const std::vector<std::string>& reasons) {
  if (const absl::Status unusable = WhyUnusable(api, address); !unusable.ok()) {
    // Not NotFound: the kernel has a device.
    return absl::IsNotFound(unusable) ? absl::FailedPreconditionError(unusable.message())
                                      : unusable;
  }
  std::string text =
      absl::StrCat("fabric ", api.fabric(), ": no RDMA device has the address ", address.host());
  if (!reasons.empty()) absl::StrAppend(&text, " (", absl::StrJoin(reasons, "; "), ")");
  absl::StrAppend(&text, "; ",
                  channel.valid() ? verbs::AddressesWithDeviceText(channel)
                                  : std::string("no address of this machine has one"));
  return absl::NotFoundError(text);
}

}  // namespace verbena::net
