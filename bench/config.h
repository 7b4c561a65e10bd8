// What a user asked for, checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/compare/compare_options.h"
#include "bench/load/load_options.h"
#include "bench/load/schedule.h"
#include "bench/workload/key_names.h"
#include "bench/workload/properties.h"
#include "bench/workload/sizes.h"
#include "bench/workload/workload.h"
#include "common/verbs/conn_param.h"

namespace verbena::bench {

enum class Command { kLoad, kRun, kCompare };
const char* CommandName(Command command);

// A trace to replay instead of the workload.
struct TraceConfig {
  std::string file;           // empty: none
  double speed = 0;           // times faster than its timestamps; 0: as fast as possible
  bool strict = false;        // its first bad line ends the run
  bool fill_on_miss = false;  // its reads that find nothing are followed by a write
};

struct Config {
  Command command = Command::kRun;
  std::string server;  // ADDR:PORT; may be empty for kCompare
  std::string fabric = "auto";
  verbs::ConnectOptions connect;
  Workload workload;
  RequestDistribution distribution;
  uint64_t records = 0;         // that the load leaves: 0 to records - 1
  uint64_t insert_start = 0;    // of these, the first that this load inserts and this run works on,
  uint64_t insert_count = 0;    // and how many; 0: all from there
  uint32_t insert_retries = 0;  // load: attempts after the first
  std::chrono::nanoseconds insert_retry_interval{0};  // pause before each
  uint64_t operations = 0;                            // 0: no limit
  std::chrono::nanoseconds duration{0};               // 0: no limit; not both
  std::chrono::nanoseconds warmup{0};
  LoadOptions load;        // rates, outputs, other processes
  Properties properties;   // YCSB's, as they were given; all else here has taken them in
  TraceConfig trace;       // for kRun
  uint32_t processes = 1;  // that do this run together, with as many threads each,
  uint32_t process = 0;    // and the number of this one
  uint32_t threads = 1;
  uint32_t connections = 1;    // a multiple of threads
  uint32_t depth = 1;          // operations in flight on each connection (but see lane_depth)
  uint32_t key_size = 0;       // 0: YCSB's own names
  uint32_t value_size = 0;     // of each record, in the mean
  std::optional<Sizes> sizes;  // of each field; none: all of value_size
  std::optional<SizeModel> key_sizes;  // keys of sizes like these instead
  bool ordered_keys = false;           // named by the record's number, not by its hash
  uint32_t zero_padding = 1;           // digits of the number in YCSB's own names, at least
  uint64_t cache_bytes = 0;
  bool preload = false;
  std::chrono::microseconds poll{0};        // before a waiting call sleeps
  std::chrono::milliseconds timeout{5000};  // of connecting and of each operation
  uint64_t seed = 0;
  uint64_t max_errors = 0;  // more make the exit status 1
  bool baseline = false;
  uint32_t rounds = 0;      // of --baseline and compare
  int64_t server_pid = 0;   // 0: as the server says
  std::string json_file;    // empty: none
  std::string report_file;  // a page; empty: none
  CompareOptions compare;   // for kCompare

  // Operations that a worker keeps in flight on each connection. Scans are synchronous calls, one
  // at a time; `depth` is then how many READs of one may be in flight.
  uint32_t lane_depth() const { return command == Command::kRun && workload.scans() ? 1 : depth; }
  KeyNames key_names() const {
    return KeyNames({.size = key_size,
                     .model = key_sizes,
                     .ordered = ordered_keys,
                     .zero_padding = zero_padding});
  }
  RecordValues record_values() const {
    return {workload.fields, sizes.has_value() ? *sizes : Sizes(value_size)};
  }
  // The records that are loaded, or chosen from.
  RecordRange record_range() const;
};

// The configuration that the command-line flags and YCSB's properties ask for; what both say, the
// flags say. InvalidArgument names the flag or property, its value and the allowed range.
absl::StatusOr<Config> ConfigFromFlags(Command command, const Properties& properties = {});

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
