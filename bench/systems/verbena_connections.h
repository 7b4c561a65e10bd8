// The connections of a run to a Verbena server.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/systems/backend.h"
#include "common/base/wait_notice.h"
#include "verbena/connection.h"

namespace verbena::bench {

struct VerbenaConnections {
  std::vector<std::unique_ptr<Backend>> backends;
  Connection* first = nullptr;  // one of them
};

// config.connections many. Unimplemented if the workload scans and the server keeps no order.
// `notice` tells of long waits.
absl::StatusOr<VerbenaConnections> ConnectToVerbena(const Config& config, WaitNotice* notice);

// What the server says now; nothing, with the reason on standard error, if it does not answer.
ServerFacts AskServer(const Config& config, Connection& connection, WaitNotice* notice);

// What bounds the waiting, for people: "--timeout_seconds=5".
std::string TimeoutText(const Config& config);

}  // namespace verbena::bench
