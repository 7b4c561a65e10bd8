// Which device table carries a connection. Thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/verbs/verbs_api.h"

namespace verbena::client {

struct FabricChoice {
  verbs::VerbsApi* api = nullptr;
  std::string why_not_verbs;  // where "auto" has taken the software device
};

// Why the route to `address` has no RDMA device of `api`'s (rdma-core's table, or a test's): empty
// if it has one. An error where that cannot be told (no permission for the device files, no more
// descriptors or memory, time is up): a device that cannot be used is not one that is not there.
absl::StatusOr<std::string> WhyNoRdma(verbs::VerbsApi& api, const NetAddress& address,
                                      std::chrono::milliseconds timeout);

// The table for `fabric` ("verbs", "soft" or "auto"; InvalidArgument for anything else) and a
// server at `address`. "auto" asks the connection manager for the route, which may take up to
// `timeout`: verbs if it leads over an RDMA device, WhyNoRdma's error if that cannot be told, else
// soft if the address is this machine's, else Unavailable with the reasons against both.
absl::StatusOr<FabricChoice> ChooseFabric(std::string_view fabric, const NetAddress& address,
                                          std::chrono::milliseconds timeout);

// While one exists, ChooseFabric answers `api` to the thread that made it: the seam for tables that
// fail calls or lower limits (fault_verbs.h, limited_verbs.h). They do not nest.
class ScopedFabric {
 public:
  explicit ScopedFabric(verbs::VerbsApi& api);
  ~ScopedFabric();
  ScopedFabric(const ScopedFabric&) = delete;
  ScopedFabric& operator=(const ScopedFabric&) = delete;
};

}  // namespace verbena::client
