#include "bench/systems/verbena_connections.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/systems/backend_verbena.h"
#include "bench/systems/server_facts.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

// Whether the server can do what the workload asks for, told before anything is measured.
absl::Status CheckScans(const Config& config, Connection& connection) {
  if (config.command != Command::kRun || !config.workload.scans()) return absl::OkStatus();
  std::vector<ScanItem> items;
  absl::Status status = connection.Scan({.keys_only = true}, 1, &items);
  if (!absl::IsUnimplemented(status)) return status;
  return absl::UnimplementedError(
      absl::StrCat(config.workload.Title(), " needs scans: ", status.message()));
}

}  // namespace

std::string TimeoutText(const Config& config) {
  return absl::StrFormat("--timeout_seconds=%g",
                         std::chrono::duration<double>(config.timeout).count());
}

absl::StatusOr<VerbenaConnections> ConnectToVerbena(const Config& config, WaitNotice* notice) {
  VerbenaConnections all;
  for (uint32_t i = 0; i < config.connections; ++i) {
    notice->Begin(absl::StrCat("the server at ", config.server, " to take a connection"),
                  config.timeout, TimeoutText(config));
    VERBENA_ASSIGN_OR_RETURN(auto connection,
                             Connection::Connect(config.server, ConnectionOptions(config)));
    if (all.first == nullptr) all.first = connection.get();
    all.backends.push_back(std::make_unique<VerbenaBackend>(std::move(connection)));
  }
  notice->End();
  VERBENA_RETURN_IF_ERROR(CheckScans(config, *all.first));
  return all;
}

ServerFacts AskServer(const Config& config, Connection& connection, WaitNotice* notice) {
  if (!connection.status().ok()) return {};
  notice->Begin(absl::StrCat("what the server at ", config.server, " tells of itself"),
                config.timeout, TimeoutText(config));
  const auto info = connection.Info();
  notice->End();
  if (!info.ok()) {
    std::fprintf(stderr, "verbena-bench: the server tells nothing of itself: %s\n",
                 info.status().ToString().c_str());
    return {};
  }
  return ParseServerFacts(*info);
}

}  // namespace verbena::bench
