#include "client/src/fabric.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/src/causes.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/softverbs/softverbs.h"
#include "common/verbs/cm.h"
#include "common/verbs/device.h"
#include "common/verbs/device_files.h"
#include "common/verbs/errors.h"
#include "common/verbs/rdma_core.h"

namespace verbena::client {
namespace {

thread_local verbs::VerbsApi* scoped_fabric = nullptr;

// Asks the connection manager for the route to `address`: OK if it leads over an RDMA device.
absl::Status FindRdmaRoute(verbs::VerbsApi& api, const NetAddress& address,
                           std::chrono::milliseconds timeout) {
  VERBENA_ASSIGN_OR_RETURN(verbs::CmChannel channel, verbs::CmChannel::Create(api));
  VERBENA_ASSIGN_OR_RETURN(verbs::CmId id, verbs::CmId::Create(channel));
  const int timeout_ms = static_cast<int>(timeout.count());
  VERBENA_RETURN_IF_ERROR(id.ResolveAddress(address, timeout_ms));
  VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event, channel.WaitEvent(timeout_ms));
  if (!event.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no route over RDMA was found in ", timeout_ms, " ms"));
  }
  if (event->type() != RDMA_CM_EVENT_ADDR_RESOLVED) {
    return verbs::CmEventError(event->type(), event->status(), address.ToString());
  }
  return absl::OkStatus();
}

// What "auto" answers where it cannot tell whether an RDMA device leads to the server.
absl::Status CannotTell(const NetAddress& address, const absl::Status& status) {
  return OfConnecting(absl::Status(
      status.code(),
      absl::StrCat("fabric auto cannot tell whether an RDMA device leads to ", address.ToString(),
                   ": ", absl::StripSuffix(status.message(), "."),
                   address.IsLocal()
                       ? ". For a server on this machine's software device say --fabric=soft"
                       : "")));
}

}  // namespace

absl::StatusOr<std::string> WhyNoRdma(verbs::VerbsApi& api, const NetAddress& address,
                                      std::chrono::milliseconds timeout) {
  // rdma_cm resolves one to any device, where no server listens.
  if (address.IsLoopback()) return std::string("a loopback address is on no RDMA device");
  const absl::StatusOr<std::vector<std::string>> devices = verbs::Device::List(api);
  if (!devices.ok()) return CannotTell(address, devices.status());
  const absl::Status route = devices->empty()
                                 ? absl::UnavailableError("this machine has no RDMA device.")
                                 : FindRdmaRoute(api, address, timeout);
  if (route.ok()) return std::string();
  // Where a file may not be opened or a provider is missing the libraries hide the device, or say
  // that there is none.
  const absl::Status usable = verbs::CheckKernelDevices(api);
  if (!usable.ok()) {
    return CannotTell(
        address, absl::Status(route.code(), absl::StrCat(route.message(), " ", usable.message())));
  }
  if (!devices->empty() && !verbs::IsNoRoute(route)) return CannotTell(address, route);
  return std::string(absl::StripSuffix(route.message(), "."));
}

absl::StatusOr<FabricChoice> ChooseFabric(std::string_view fabric, const NetAddress& address,
                                          std::chrono::milliseconds timeout) {
  if (scoped_fabric != nullptr) return FabricChoice{scoped_fabric, {}};
  if (fabric == "verbs") return FabricChoice{&verbs::RdmaCoreVerbs(), {}};
  if (fabric == "soft") {
    VERBENA_RETURN_IF_ERROR(CheckSoftAfterFork());
    return FabricChoice{&softverbs::SoftVerbs(), {}};
  }
  if (fabric != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("fabric is \"", ToAbsl(fabric), "\"; it must be auto, verbs or soft"));
  }
  VERBENA_ASSIGN_OR_RETURN(std::string why, WhyNoRdma(verbs::RdmaCoreVerbs(), address, timeout));
  if (why.empty()) return FabricChoice{&verbs::RdmaCoreVerbs(), {}};
  if (address.IsLocal()) {
    VERBENA_RETURN_IF_ERROR(CheckSoftAfterFork());
    return FabricChoice{&softverbs::SoftVerbs(), std::move(why)};
  }
  return absl::UnavailableError(
      absl::StrCat("no fabric reaches ", address.ToString(), ": verbs: ", why,
                   "; soft (the software device): ", address.host(),
                   " is not an address of this machine, and the software device needs the server "
                   "on the same one"));
}

ScopedFabric::ScopedFabric(verbs::VerbsApi& api) { scoped_fabric = &api; }
ScopedFabric::~ScopedFabric() { scoped_fabric = nullptr; }

}  // namespace verbena::client
