// How a client connects and behaves. Plain values; copy freely.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace verbena {

struct Options {
  // "verbs" (an RDMA adapter), "soft" (the software device, server on this host) or "auto": verbs
  // if the route to the server has an RDMA device, else soft if the server's address is this
  // host's, else an error that names both reasons. What was taken is in Connection::fabric().
  std::string fabric = "auto";

  // For the whole of connecting, name resolution excepted.
  std::chrono::milliseconds connect_timeout{5000};
  // For each operation, from submission to callback, whatever the transport retries. When it passes
  // the connection is given up, since an answer may still be under way (see Connection).
  std::chrono::milliseconds operation_timeout{5000};

  // Operations in flight at once (1 to 1024); one more is refused with ResourceExhausted.
  uint32_t depth = 64;

  // Memory for copies of the server's index; with the whole index in it nearly every GET is one
  // READ. 0 turns the cache off (so does less than the 36 KiB of a segment): then every GET READs
  // the bucket first.
  uint64_t cache_bytes = uint64_t{64} << 20;

  // False: GETs are SENT to the server and answered by its CPU. For comparison and diagnosis.
  bool one_sided_reads = true;

  // How long waiting calls poll before they sleep on the completion channel. Polling is fastest and
  // costs a core while it lasts; 0 sleeps at once.
  std::chrono::microseconds poll_time{100};
};

}  // namespace verbena
