// memcached and Redis (or Valkey): started here, on a loopback port and a Unix socket in a private
// folder and without persistence, or reached where the user says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/config.h"
#include "bench/systems/child_process.h"
#include "bench/systems/system.h"

namespace verbena::bench {

// What adding rivals gives. `processes` must live as long as the systems are used.
struct Rivals {
  std::vector<System> systems;
  std::vector<ChildProcess> processes;
  std::vector<std::string> notes;               // what is not there, and how to get it
  std::map<std::string, std::string> versions;  // of the programs started, by their names
};

// Adds those systems of `config.compare` that are installed or can be reached. Programs listen on
// `host` ("127.0.0.1") and in `folder`.
void AddMemcached(const Config& config, const std::string& host, const TemporaryFolder& folder,
                  Rivals* rivals);
void AddRedis(const Config& config, const std::string& host, const TemporaryFolder& folder,
              Rivals* rivals);

// Waits until `ready` holds, at most 30 s; Unavailable with the end of `log` if `process` ends
// before, or time is over.
absl::Status WaitUntilReady(const std::string& program, ChildProcess& process,
                            const std::string& log, const std::function<bool()>& ready);

// Bytes that a store needs for the records without evicting any: generous.
uint64_t MemoryFor(const Config& config);

}  // namespace verbena::bench
