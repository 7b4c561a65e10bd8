// The side that does its share of a run for a coordinator.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/line_socket.h"
#include "bench/load/result.h"
#include "bench/load/runner.h"

namespace verbena::bench {

// What an agent works with; in tests, something else than a server.
struct AgentBackends {
  std::vector<std::unique_ptr<Backend>> backends;
  RunContext context;
  // Tells anew what the server says of itself; may be empty.
  std::function<ServerFacts()> facts;
  int64_t server_pid = 0;
};
using ConnectBackends = std::function<absl::StatusOr<AgentBackends>(const Config&)>;

// Whether an agent was started with nothing that its coordinator decides: what that does not give
// has its default. InvalidArgument names the flag or says that there are properties.
absl::Status CheckAgentCommandLine(const Properties& properties);

// Serves one coordinator until it closes the connection. The flags are left as they were.
absl::Status ServeCoordinator(LineSocket& socket, const ConnectBackends& connect);

}  // namespace verbena::bench
