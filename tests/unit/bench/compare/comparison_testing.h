// A comparison as if it had been measured: all eight systems at two depths.
#pragma once

#include "bench/compare/comparison.h"
#include "bench/config.h"

namespace verbena::bench {

inline Config ComparedConfig() {
  Config config;
  config.command = Command::kCompare;
  config.workload = *FindWorkload("b");
  config.records = 1000;
  config.value_size = 100;
  config.depth = 16;
  config.rounds = 3;
  config.duration = std::chrono::seconds(1);
  return config;
}

// System number i is (i + 1) times as slow as the first; the reads at depth 1 take (i + 1) us.
inline ComparisonResult SomeComparison() {
  ComparisonResult result;
  result.fabric = "soft";
  result.device = "soft0";
  result.notes = {"no <memcached> here: apt-get install memcached"};
  double factor = 1;
  for (const std::string& system : ComparedSystems()) {
    for (const uint32_t depth : {16U, 1U}) {
      LaneResult& lane = result.lanes.emplace_back();
      lane.system = system;
      lane.depth = depth;
      for (uint32_t round = 0; round < 3; ++round) {
        lane.turns.push_back({round, 1e6 / factor * (1 + 0.1 * round), factor, 3 * factor});
      }
      OpResult& reads = lane.sum.ops[Index(OpKind::kRead)];
      for (uint64_t i = 0; i < 1000; ++i) {
        reads.latency.Record(static_cast<uint64_t>(factor * 1000) + i);
      }
      reads.count = 1000;
      lane.sum.seconds = 3;
      lane.sum.server_usage = ProcessUsage{0.002, 0.0015, 0.0005, 500, 100};
      lane.sum.server_cpu_seconds = 0.002;
      lane.sum.client_usage = ProcessUsage{0.004, 0.003, 0.001, 200, 50};
      lane.wire = WireBytes{256, "computed <by hand>"};
    }
    factor += 1;
  }
  return result;
}

}  // namespace verbena::bench
