// Starts tools/peer.cc's program and connects to it.
#pragma once

#include <sys/types.h>

#include <memory>

#include "common/base/unique_fd.h"
#include "tests/conformance/endpoint.h"

namespace verbena::conformance {

class PeerProgram {
 public:
  // `mode` as in tools/peer.cc.
  explicit PeerProgram(const char* mode, size_t buffer = 1 << 20);
  ~PeerProgram();
  PeerProgram(const PeerProgram&) = delete;
  PeerProgram& operator=(const PeerProgram&) = delete;

  // An established connection; nullptr on failure. `address` and `rkey`: the peer's memory.
  std::unique_ptr<Endpoint> Connect(rdma_event_channel* events, const Options& options,
                                    uint64_t* address, uint32_t* rkey);
  void Kill(int signal);

  pid_t pid = -1;
  uint16_t port = 0;

 private:
  UniqueFd input_;
};

}  // namespace verbena::conformance
