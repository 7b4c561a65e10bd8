// The stores that `compare` drives: started here, on Unix sockets or the software device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/config.h"
#include "bench/systems/backend.h"
#include "bench/systems/child_process.h"

namespace verbena::bench {

// A store that runs, under the name that reports use. Several systems may be one server seen in
// different ways.
struct System {
  std::string name;
  int64_t server_pid = 0;   // 0: not on this host
  bool loads_data = false;  // whether the records have to be loaded through this system
  std::function<absl::StatusOr<std::unique_ptr<Backend>>(uint32_t depth)> connect;
};

// The systems and the processes behind them. Move-only; ends the processes.
class Peers {
 public:
  // Starts what is installed; `notes` says what is not and how to get it. An error only if Verbena
  // itself cannot be reached or started.
  static absl::StatusOr<Peers> Start(const Config& config);

  const std::vector<System>& systems() const { return systems_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  absl::Status AddVerbena(const Config& config);
  void AddRedis(const Config& config);
  void AddMemcached(const Config& config);
  absl::StatusOr<std::string> StartVerbena(const Config& config);
  // Starts `program` and waits until `socket` takes connections; returns its pid.
  absl::StatusOr<int64_t> StartOnSocket(const std::string& program,
                                        const std::vector<std::string>& args,
                                        const std::string& socket);

  std::vector<System> systems_;
  std::vector<std::string> notes_;
  TemporaryFolder folder_;  // removed after the processes have ended
  std::vector<ChildProcess> processes_;
};

}  // namespace verbena::bench
