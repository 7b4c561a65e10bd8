// A raw target in a process of its own, and the connection to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/baseline/raw_endpoint.h"
#include "bench/config.h"
#include "bench/systems/child_process.h"

namespace verbena::bench {

// The bytes of an item's block: what a GET READs.
uint64_t BlockSizeFor(const Config& config);

class RawSide {
 public:
  // Starts `verbena-bench raw-target` on the host of `server` ("ADDR:PORT"), with a region of
  // `region_size` bytes, and connects `connections` times. FailedPrecondition if that host is not
  // this one.
  static absl::StatusOr<std::unique_ptr<RawSide>> Start(const std::string& server,
                                                        uint64_t region_size,
                                                        const RawInitiatorOptions& options,
                                                        uint32_t connections = 1);
  // Ends the connection, then the process.
  ~RawSide();

  RawInitiator& initiator(size_t connection = 0) { return *initiators_[connection]; }
  int64_t pid() const { return process_.pid(); }

 private:
  RawSide() = default;

  ChildProcess process_;
  std::vector<std::unique_ptr<RawInitiator>> initiators_;
};

}  // namespace verbena::bench
