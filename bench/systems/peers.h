// The systems that `compare` drives, and the processes behind them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/systems/child_process.h"
#include "bench/systems/rivals.h"
#include "bench/systems/system.h"

namespace verbena::bench {

// Move-only; ends the processes that it has started.
class Peers {
 public:
  // Starts or reaches what was asked for; `notes` says what is not there and how to get it. An
  // error only if Verbena itself cannot be reached or started.
  static absl::StatusOr<Peers> Start(const Config& config);

  // In the order of ComparedSystems().
  const std::vector<System>& systems() const { return rivals_.systems; }
  const std::vector<std::string>& notes() const { return rivals_.notes; }
  // What the rivals that were started say of themselves, by their programs' names.
  const std::map<std::string, std::string>& versions() const { return rivals_.versions; }
  // What Verbena runs on.
  const std::string& fabric() const { return fabric_; }
  const std::string& device() const { return device_; }

 private:
  absl::Status FindVerbena(const Config& config);
  void AddVerbena(const Config& config);
  void AddRaw(const Config& config);
  absl::Status AddTcpPingPong(const Config& config, const std::string& host);
  absl::StatusOr<std::string> StartVerbena(const Config& config);

  std::string server_;  // ADDR:PORT
  int64_t server_pid_ = 0;
  std::string fabric_;
  std::string device_;
  TemporaryFolder folder_;  // removed after the processes have ended
  Rivals rivals_;           // Verbena and the fabric included
};

}  // namespace verbena::bench
