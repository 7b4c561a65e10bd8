// A raw target in a process of its own, and the connection to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/baseline/raw_endpoint.h"
#include "bench/systems/child_process.h"

namespace verbena::bench {

class RawSide {
 public:
  // Starts `verbena-bench raw-target` on the host of `server` ("ADDR:PORT"), with a region of
  // `region_size` bytes. FailedPrecondition if that host is not this one.
  static absl::StatusOr<std::unique_ptr<RawSide>> Start(const std::string& server,
                                                        uint64_t region_size,
                                                        const RawInitiatorOptions& options);
  // Ends the connection, then the process.
  ~RawSide();

  RawInitiator& initiator() { return *initiator_; }

 private:
  RawSide() = default;

  ChildProcess process_;
  std::unique_ptr<RawInitiator> initiator_;
};

}  // namespace verbena::bench
