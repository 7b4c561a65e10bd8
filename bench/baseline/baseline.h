// What the fabric and the storage do on their own, measured in turns with the store: RDMA READs of
// random blocks on the client's own queue pair with nothing around them, a SEND ping-pong, and PUTs
// in the storage in-process.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/load/result.h"
#include "bench/measure/statistics.h"

namespace verbena::bench {

// Latencies in ns, each the p50 of a round, with what reading the clock costs taken off; rates per
// second. Everything is measured once in each round; ratios are taken within a round.
struct BaselineResult {
  uint32_t rounds = 0;
  uint32_t depth = 0;
  uint64_t block_size = 0;     // bytes of each raw READ: the size class of the items
  uint64_t region_size = 0;    // bytes that the raw READs are spread over
  uint64_t request_size = 0;   // bytes of the ping: a PUT request
  uint64_t response_size = 0;  // bytes of the pong: its response
  double clock_ns = 0;         // cost of reading the clock twice, already taken off
  std::string clock;           // "rdtsc" or "clock_gettime"

  Spread raw_read_ns;    // depth 1
  Spread get_ns;         // depth 1
  Spread raw_read_rate;  // at `depth`
  Spread get_rate;       // at `depth`
  Spread pingpong_ns;
  Spread put_ns;  // depth 1
  Spread storage_put_ns;

  Spread get_over_raw_read;       // get_ns / raw_read_ns
  Spread get_rate_over_raw_read;  // get_rate / raw_read_rate
  Spread put_over_pingpong;       // put_ns / pingpong_ns
  Spread put_over_storage;        // (put_ns - pingpong_ns) / storage_put_ns
};

// Needs the records of `config` in the server at config.server, which must be on this host.
// `facts` tells how much memory the server uses.
absl::StatusOr<BaselineResult> MeasureBaseline(const Config& config, const ServerFacts& facts);

}  // namespace verbena::bench
