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
#include "common/verbs/errors.h"
#include "common/verbs/rdma_core.h"

namespace verbena::client {
namespace {

thread_local verbs::VerbsApi* scoped_fabric = nullptr;

// OK if the route to `address` has an RDMA device, else the reason why not.
absl::Status CheckRdmaRoute(const NetAddress& address, std::chrono::milliseconds timeout) {
  verbs::VerbsApi& api = verbs::RdmaCoreVerbs();
  VERBENA_ASSIGN_OR_RETURN(const std::vector<std::string> devices, verbs::Device::List(api));
  if (devices.empty()) return absl::UnavailableError("this machine has no RDMA device");
  // rdma_cm resolves one to any device, where no server listens.
  if (address.IsLoopback()) {
    return absl::UnavailableError("a loopback address is on no RDMA device");
  }
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

}  // namespace

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
  const absl::Status route = CheckRdmaRoute(address, timeout);
  if (route.ok()) return FabricChoice{&verbs::RdmaCoreVerbs(), {}};
  const std::string why(absl::StripSuffix(route.message(), "."));
  if (address.IsLocal()) {
    VERBENA_RETURN_IF_ERROR(CheckSoftAfterFork());
    return FabricChoice{&softverbs::SoftVerbs(), why};
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
