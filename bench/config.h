// What a user asked for, checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/load/load_options.h"
#include "bench/workload/key_names.h"
#include "bench/workload/workload.h"
#include "common/verbs/conn_param.h"

namespace verbena::bench {

enum class Command { kLoad, kRun, kCompare };
const char* CommandName(Command command);

struct Config {
  Command command = Command::kRun;
  std::string server;  // ADDR:PORT; may be empty for kCompare
  std::string fabric = "auto";
  verbs::ConnectOptions connect;
  Workload workload;
  Distribution distribution = Distribution::kZipfian;
  uint64_t records = 0;
  uint64_t operations = 0;               // 0: no limit
  std::chrono::nanoseconds duration{0};  // 0: no limit; not both
  std::chrono::nanoseconds warmup{0};
  LoadOptions load;        // rates, outputs, other processes
  uint32_t processes = 1;  // that do this run together, with as many threads each,
  uint32_t process = 0;    // and the number of this one
  uint32_t threads = 1;
  uint32_t connections = 1;  // a multiple of threads
  uint32_t depth = 1;        // operations in flight on each connection (but see lane_depth)
  uint32_t key_size = 0;     // 0: YCSB's own names
  uint32_t value_size = 0;
  uint64_t cache_bytes = 0;
  bool preload = false;
  std::chrono::microseconds poll{0};        // before a waiting call sleeps
  std::chrono::milliseconds timeout{5000};  // of connecting and of each operation
  uint64_t seed = 0;
  uint64_t max_errors = 0;  // more make the exit status 1
  bool baseline = false;
  uint32_t rounds = 0;       // of --baseline and compare
  int64_t server_pid = 0;    // 0: as the server says
  std::string json_file;     // empty: none
  std::string redis_server;  // program, for kCompare
  std::string memcached;     // program, for kCompare

  // Operations that a worker keeps in flight on each connection. Scans are synchronous calls, one
  // at a time; `depth` is then how many READs of one may be in flight.
  uint32_t lane_depth() const { return command == Command::kRun && workload.scans() ? 1 : depth; }
  KeyNames key_names() const { return KeyNames(key_size); }
};

// The configuration that the command-line flags ask for. InvalidArgument names the flag, its value
// and the allowed range.
absl::StatusOr<Config> ConfigFromFlags(Command command);

// Whether the user asked for help or the version.
bool HelpWanted();
bool VersionWanted();
// --json, whatever else is wrong; empty: none.
std::string JsonFileWanted();
// What the program does and what each flag means.
std::string HelpText();

// Parts of ConfigFromFlags, for tests.

// "100000", "100k", "1M", "2G" (decimal).
absl::StatusOr<uint64_t> ParseCount(std::string_view text);

}  // namespace verbena::bench
