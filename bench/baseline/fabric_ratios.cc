// What an RDMA fabric does alone, and the store over it, as ratios with limits: the baseline's
// rounds, judged.
#include <cstdio>
#include <string>

#include "bench/baseline/baseline.h"
#include "bench/commands.h"
#include "bench/measure/ratio.h"
#include "bench/report/report_table.h"
#include "bench/systems/backend_verbena.h"
#include "bench/systems/server_facts.h"
#include "common/base/macros.h"
#include "verbena/connection.h"

namespace verbena::bench {
namespace {

// Whether all limits are kept.
absl::StatusOr<bool> Measure(const Config& config) {
  ServerFacts facts;
  {
    VERBENA_ASSIGN_OR_RETURN(const auto connection,
                             Connection::Connect(config.server, ConnectionOptions(config)));
    VERBENA_ASSIGN_OR_RETURN(const std::string info, connection->Info());
    facts = ParseServerFacts(info);
    std::printf("fabric %s, device %s", connection->fabric().c_str(), connection->device().c_str());
  }
  std::printf(", %s\n", config.poll.count() == 0 ? "events only" : "polling");
  VERBENA_ASSIGN_OR_RETURN(const BaselineResult result, MeasureBaseline(config, facts));
  std::fputs(BaselineLines(result).c_str(), stdout);
  std::printf("\nlimits\n");
  bool met =
      PrintRatio("GET p50 / raw READ p50, depth 1", result.get_over_raw_read, Bound::kAtMost, 1.25);
  met =
      PrintRatio("GET rate / raw READ rate", result.get_rate_over_raw_read, Bound::kAtLeast, 0.8) &&
      met;
  return PrintRatio("PUT p50 / SEND ping-pong p50", result.put_over_pingpong, Bound::kAtMost,
                    1.5) &&
         met;
}

}  // namespace

int MeasureFabricRatios(const Config& config) {
  const absl::StatusOr<bool> met = Measure(config);
  if (!met.ok()) {
    std::fprintf(stderr, "verbena-bench: %s\n", met.status().ToString().c_str());
    return kExitConnection;
  }
  return *met ? kExitOk : kExitWrong;
}

}  // namespace verbena::bench
