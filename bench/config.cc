#include "bench/config.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/core_properties.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/sizes.h"
#include "common/base/text.h"
#include "common/verbs/connect_flags.h"

// Numbers are strings here so that a malformed one, too, is refused with the allowed range.
DEFINE_string(server, "", "server to connect to: ADDR:PORT");
DEFINE_string(workload, "b", "YCSB core workload: a to f");
DEFINE_string(records, "100000", "records in the store (1 to 10G); k, M and G are decimal");
DEFINE_string(operations, "0", "operations to do (0 to 1000G; 0: until --seconds are over)");
DEFINE_string(seconds, "10", "time to run (0.1 to 1000000)");
DEFINE_string(warmup_seconds, "0", "time to run before measuring (0 to 100000)");
DEFINE_string(threads, "1", "client threads (1 to 1024)");
DEFINE_string(connections, "0", "connections, a multiple of --threads (0: one per thread)");
DEFINE_string(depth, "16", "operations in flight on each connection (1 to 1024)");
DEFINE_string(key_size, "0", "bytes of each key (8 to 1024; 0: YCSB's own, 14 to 23)");
DEFINE_string(value_size, "100", "bytes of each value: a size, or a distribution of sizes");
DEFINE_string(distribution, "", "how records are chosen; none: as the workload has it");
DEFINE_string(trace, "", "file of a cache trace to replay");
DEFINE_string(speed, "0",
              "times faster than the trace's timestamps (0.001 to 1000000; 0: at once)");
DEFINE_bool(strict, false, "end at the first bad line of the trace");
DEFINE_bool(fill_on_miss, false, "write what a read of the trace did not find");
DEFINE_string(seed, "1", "of everything random (0 to 2^64 - 1)");
DEFINE_string(cache_bytes, "64MiB", "client's index cache per connection (0 to 1TiB; 0: off)");
DEFINE_string(timeout_seconds, "5", "for connecting, and again for each operation (0.001 to 3600)");
DEFINE_bool(preload, false, "READ the whole index into the cache when connecting");
DEFINE_string(poll_us, "100", "microseconds of polling before a client sleeps (0 to 1000000)");
DEFINE_string(fabric, "auto", "auto, verbs or soft");
DEFINE_string(json, "", "file to write the results to as JSON");
DEFINE_string(max_errors, "0", "failed operations tolerated before the exit status is 1");
DEFINE_bool(baseline, false, "also measure the fabric and the storage alone");
DEFINE_string(rounds, "9", "alternating rounds of --baseline (9 to 1000) and compare (1 to 1000)");
DEFINE_string(server_pid, "0", "server's process, for its CPU time (0: as the server says)");
DEFINE_string(report, "", "file to write the results to as a page (HTML)");

DECLARE_bool(help);
DECLARE_bool(version);

namespace verbena::bench {
namespace {

absl::Status BadFlag(std::string_view name, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("--", ToAbsl(name), "=", ToAbsl(value),
                                                 " is not allowed: it must be ", ToAbsl(allowed)));
}

std::string Range(uint64_t least, uint64_t most) { return absl::StrCat(least, " to ", most); }

absl::StatusOr<uint64_t> CountFlag(std::string_view name, const std::string& text, uint64_t least,
                                   uint64_t most) {
  const absl::StatusOr<uint64_t> value = ParseCount(text);
  if (!value.ok() || *value < least || *value > most) {
    return BadFlag(name, text, absl::StrCat("a number from ", Range(least, most)));
  }
  return *value;
}

absl::StatusOr<uint64_t> SizeFlag(std::string_view name, const std::string& text, uint64_t least,
                                  uint64_t most) {
  const absl::StatusOr<uint64_t> value = ParseSize(text);
  if (!value.ok() || *value < least || *value > most) {
    return BadFlag(name, text,
                   absl::StrCat("a size from ", FormatSize(least), " to ", FormatSize(most)));
  }
  return *value;
}

absl::StatusOr<std::chrono::nanoseconds> SecondsFlag(std::string_view name, const std::string& text,
                                                     double least, double most) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds >= least && seconds <= most)) {
    return BadFlag(name, text, absl::StrFormat("a number of seconds from %g to %.0f", least, most));
  }
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

// What a value size must be, and what is wrong with this one.
std::string SizesHelp(const absl::Status& status) {
  return absl::StrCat(ToAbsl(Sizes::kForms), "; ", status.message());
}

// What flags and properties must not ask for together.
absl::Status CheckTogether(const Config& config) {
  if (config.workload.scans() && config.command == Command::kCompare) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workload=", config.workload.name,
                     " is not allowed: it must be a, b, c, d or f for compare, or properties with "
                     "scanproportion=0: memcached and Redis cannot scan their keys in order"));
  }
  return absl::OkStatus();
}

bool WasGiven(const char* flag) {
  gflags::CommandLineFlagInfo info;
  return gflags::GetCommandLineFlagInfo(flag, &info) && !info.is_default;
}

absl::Status ReadWhere(Config& config) {
  config.server = FLAGS_server;
  if (config.server.empty()) {
    if (config.command != Command::kCompare) {
      return absl::InvalidArgumentError("--server is missing: it must be the server's ADDR:PORT");
    }
  } else if (const auto address = SplitHostAndPort(config.server);
             !address.ok() || address->port == 0) {
    // Whether there is such a host is found out when it is connected to.
    return absl::InvalidArgumentError(
        absl::StrCat("--server=", config.server, " is not allowed: it must be ADDR:PORT",
                     address.ok() ? absl::StrCat(" with a port from 1 to 65535")
                                  : absl::StrCat(" (", address.status().message(), ")")));
  }
  config.fabric = FLAGS_fabric;
  if (config.fabric != "auto" && config.fabric != "verbs" && config.fabric != "soft") {
    return BadFlag("fabric", config.fabric, "auto, verbs or soft");
  }
  VERBENA_ASSIGN_OR_RETURN(config.connect, verbs::ConnectOptionsFromFlags());
  VERBENA_ASSIGN_OR_RETURN(const uint64_t pid,
                           CountFlag("server_pid", FLAGS_server_pid, 0, INT32_MAX));
  config.server_pid = static_cast<int64_t>(pid);
  config.json_file = FLAGS_json;
  config.report_file = FLAGS_report;
  if (config.command == Command::kCompare) {
    VERBENA_ASSIGN_OR_RETURN(config.compare, CompareOptionsFromFlags());
  }
  return absl::OkStatus();
}

absl::Status ReadKeySize(Config& config) {
  for (const SizeModel model : kSizeModels) {
    if (FLAGS_key_size != SizeModelName(model)) continue;
    config.key_sizes = model;
    config.key_size = static_cast<uint32_t>(config.key_names().typical_size());
    return absl::OkStatus();
  }
  const auto key_size = CountFlag("key_size", FLAGS_key_size, 0, KeyNames::kMaxKeySize);
  if (!key_size.ok() || (*key_size != 0 && *key_size < KeyNames::kMinKeySize)) {
    return BadFlag(
        "key_size", FLAGS_key_size,
        absl::StrCat("0, a number from ", Range(KeyNames::kMinKeySize, KeyNames::kMaxKeySize),
                     ", or etc, udb, zippydb, up2x, kvcache, graph, assocs or cdn"));
  }
  config.key_size = static_cast<uint32_t>(*key_size);
  return absl::OkStatus();
}

absl::Status ReadWhat(Config& config) {
  const auto workload = FindWorkload(FLAGS_workload);
  if (!workload.has_value()) return BadFlag("workload", FLAGS_workload, "a, b, c, d, e or f");
  config.workload = *workload;
  config.distribution = workload->distribution;
  if (!FLAGS_distribution.empty()) {
    const auto distribution = ParseDistribution(FLAGS_distribution);
    if (!distribution.ok()) return BadFlag("distribution", FLAGS_distribution, kDistributionNames);
    config.distribution = *distribution;
  }
  VERBENA_ASSIGN_OR_RETURN(config.records, CountFlag("records", FLAGS_records, 1, 10'000'000'000));
  VERBENA_RETURN_IF_ERROR(ReadKeySize(config));
  auto sizes = Sizes::Parse(FLAGS_value_size);
  if (!sizes.ok()) return BadFlag("value_size", FLAGS_value_size, SizesHelp(sizes.status()));
  config.value_size = static_cast<uint32_t>(sizes->Mean());
  if (!sizes->constant()) config.sizes = *std::move(sizes);
  VERBENA_ASSIGN_OR_RETURN(config.seed, CountFlag("seed", FLAGS_seed, 0, UINT64_MAX));
  return absl::OkStatus();
}

absl::Status ReadHow(Config& config) {
  VERBENA_ASSIGN_OR_RETURN(config.operations,
                           CountFlag("operations", FLAGS_operations, 0, 1'000'000'000'000));
  VERBENA_ASSIGN_OR_RETURN(config.duration, SecondsFlag("seconds", FLAGS_seconds, 0.1, 1e6));
  VERBENA_ASSIGN_OR_RETURN(config.warmup,
                           SecondsFlag("warmup_seconds", FLAGS_warmup_seconds, 0, 1e5));
  // Whoever gives only a number of operations wants them all.
  if (config.operations != 0 && !WasGiven("seconds")) config.duration = {};
  if (config.command == Command::kLoad) {  // ends with the last record
    config.operations = 0;
    config.duration = config.warmup = {};
  }
  VERBENA_ASSIGN_OR_RETURN(const uint64_t threads, CountFlag("threads", FLAGS_threads, 1, 1024));
  VERBENA_ASSIGN_OR_RETURN(const uint64_t connections,
                           CountFlag("connections", FLAGS_connections, 0, 65536));
  if (connections % threads != 0) {
    return BadFlag("connections", FLAGS_connections,
                   absl::StrCat("0 or a multiple of --threads=", threads, " up to 65536"));
  }
  config.threads = static_cast<uint32_t>(threads);
  config.connections = static_cast<uint32_t>(connections == 0 ? threads : connections);
  VERBENA_ASSIGN_OR_RETURN(const uint64_t depth, CountFlag("depth", FLAGS_depth, 1, 1024));
  config.depth = static_cast<uint32_t>(depth);
  VERBENA_ASSIGN_OR_RETURN(config.cache_bytes, SizeFlag("cache_bytes", FLAGS_cache_bytes, 0, kTiB));
  config.preload = FLAGS_preload;
  if (config.preload && config.cache_bytes == 0) {
    return BadFlag("preload", "true", "false with --cache_bytes=0: there is no cache to fill");
  }
  VERBENA_ASSIGN_OR_RETURN(const uint64_t poll_us,
                           CountFlag("poll_us", FLAGS_poll_us, 0, 1'000'000));
  config.poll = std::chrono::microseconds(poll_us);
  VERBENA_ASSIGN_OR_RETURN(const auto timeout,
                           SecondsFlag("timeout_seconds", FLAGS_timeout_seconds, 0.001, 3600));
  config.timeout = std::chrono::ceil<std::chrono::milliseconds>(timeout);
  VERBENA_ASSIGN_OR_RETURN(config.max_errors,
                           CountFlag("max_errors", FLAGS_max_errors, 0, UINT64_MAX));
  config.baseline = FLAGS_baseline;
  const bool compare = config.command == Command::kCompare;
  VERBENA_ASSIGN_OR_RETURN(const uint64_t rounds,
                           CountFlag("rounds", FLAGS_rounds, compare ? 1 : 9, 1000));
  config.rounds = static_cast<uint32_t>(rounds);
  if (compare && !WasGiven("seconds")) config.duration = std::chrono::seconds(1);
  if (compare && (config.operations != 0 || config.duration.count() == 0)) {
    return BadFlag("operations", FLAGS_operations, "0 for compare: rounds go by --seconds");
  }
  return absl::OkStatus();
}

// What is asked for and would not come is refused.
absl::Status CheckOutputs(const Config& config) {
  const LoadOptions& load = config.load;
  if (config.baseline && (config.command != Command::kRun || load.several_rates())) {
    return absl::InvalidArgumentError(
        "--baseline is for run, without --ramp, --sweep and --search");
  }
  if (config.command != Command::kCompare) return absl::OkStatus();
  if (!load.csv_file.empty() || !load.hgrm_prefix.empty()) {
    return absl::InvalidArgumentError(
        "--csv and --hgrm are for load and run: compare has --json and --report");
  }
  if (load.format == OutputFormat::kYcsb) {
    return absl::InvalidArgumentError(
        "--format=ycsb is for load and run: compare has table and json");
  }
  return absl::OkStatus();
}

absl::Status ReadLoad(Config& config) {
  VERBENA_ASSIGN_OR_RETURN(config.load, LoadOptionsFromFlags());
  if (config.command != Command::kRun && config.load.several_rates()) {
    return absl::InvalidArgumentError("--ramp, --sweep and --search are for run");
  }
  if (config.command == Command::kCompare && !config.load.agents.empty()) {
    return absl::InvalidArgumentError("--agents is for load and run");
  }
  if (config.command == Command::kLoad) config.load.warmup_operations = 0;
  return CheckOutputs(config);
}

absl::Status TraceIsOnly(const char* flag, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is not allowed with --trace: ", ToAbsl(why)));
}

// What cannot be together with a trace, and what without one.
absl::Status CheckTrace(const Properties& properties, const Config& config) {
  if (config.trace.file.empty()) {
    if (WasGiven("trace")) return BadFlag("trace", FLAGS_trace, "the name of a file or a pipe");
    for (const char* flag : {"speed", "strict", "fill_on_miss"}) {
      if (!WasGiven(flag)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " is not allowed without --trace: it is about a trace"));
    }
    return absl::OkStatus();
  }
  if (config.command != Command::kRun) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--trace is not allowed for ", CommandName(config.command), ": only run replays traces"));
  }
  for (const char* flag : {"workload", "distribution", "key_size", "value_size"}) {
    if (WasGiven(flag)) return TraceIsOnly(flag, "the trace has its own requests, keys and sizes");
  }
  for (const char* flag : {"rate", "arrival", "ramp", "sweep", "search"}) {
    if (WasGiven(flag)) return TraceIsOnly(flag, "the trace has its own times (see --speed)");
  }
  if (WasGiven("agents")) return TraceIsOnly("agents", "the file is on this host only");
  if (WasGiven("baseline")) return TraceIsOnly("baseline", "that is about values of one size");
  if (!properties.empty()) {
    return absl::InvalidArgumentError(
        "-P and -p are not allowed with --trace: the trace has its own requests, keys and sizes");
  }
  return absl::OkStatus();
}

absl::Status ReadTrace(const Properties& properties, Config& config) {
  TraceConfig& trace = config.trace;
  trace.file = FLAGS_trace;
  trace.strict = FLAGS_strict;
  trace.fill_on_miss = FLAGS_fill_on_miss;
  VERBENA_RETURN_IF_ERROR(CheckTrace(properties, config));
  // (Written so that no NaN passes.)
  if (!absl::SimpleAtod(FLAGS_speed, &trace.speed) ||
      !(trace.speed == 0 || (trace.speed >= 1e-3 && trace.speed <= 1e6))) {
    return BadFlag("speed", FLAGS_speed, "0 or a number from 0.001 to 1000000");
  }
  // It ends with the trace, unless somebody wants less of it.
  if (!trace.file.empty() && !WasGiven("seconds")) config.duration = {};
  return absl::OkStatus();
}

absl::Status CheckRates(const Config& config) {
  // Above that a thread would do nothing but count what is due.
  constexpr double kMostOfAThread = 1e7;
  const double threads = static_cast<double>(config.threads) *
                         static_cast<double>(std::max<size_t>(config.load.agents.size(), 1));
  double most = config.load.rate;
  for (const double rate : config.load.sweep) most = std::max(most, rate);
  if (config.load.ramp.has_value()) {
    most = std::max({most, config.load.ramp->from, config.load.ramp->to});
  }
  if (most > kMostOfAThread * threads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a rate of %.0f is not allowed: it must be at most 10M for each thread, of "
                        "which there are %.0f",
                        most, threads));
  }
  return absl::OkStatus();
}

// 4 KiB random reads, unless the flags say something else.
void ApplyScenario(Config& config) {
  if (config.compare.scenario != Scenario::kStorage4k) return;
  if (!WasGiven("workload")) config.workload = *FindWorkload("c");
  if (!WasGiven("distribution")) config.distribution = Distribution::kUniform;
  if (!WasGiven("value_size")) config.value_size = 4 * kKiB;
  if (!WasGiven("records")) config.records = 20'000;
}

}  // namespace

const char* CommandName(Command command) {
  switch (command) {
    case Command::kLoad:
      return "load";
    case Command::kRun:
      return "run";
    case Command::kCompare:
      return "compare";
  }
  return "unknown";
}

RecordRange Config::record_range() const {
  RecordRange range;
  range.first = insert_start;
  range.count = insert_count != 0 ? insert_count : records - insert_start;
  range.expected_inserts = static_cast<uint64_t>(static_cast<double>(operations) *
                                                 workload.proportion[Index(OpKind::kInsert)]);
  return range;
}

absl::StatusOr<uint64_t> ParseCount(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    return absl::InvalidArgumentError(absl::StrCat("not a number: '", ToAbsl(text), "'"));
  }
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  uint64_t unit = 1;
  if (suffix == "k" || suffix == "K") {
    unit = 1'000;
  } else if (suffix == "M") {
    unit = 1'000'000;
  } else if (suffix == "G") {
    unit = 1'000'000'000;
  } else if (!suffix.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not a number: '", ToAbsl(text), "'"));
  }
  if (value > UINT64_MAX / unit) {
    return absl::InvalidArgumentError(absl::StrCat("too large: '", ToAbsl(text), "'"));
  }
  return value * unit;
}

absl::StatusOr<Config> ConfigFromFlags(Command command, const Properties& properties) {
  Config config;
  config.command = command;
  config.properties = properties;
  VERBENA_RETURN_IF_ERROR(ReadWhere(config));
  VERBENA_RETURN_IF_ERROR(ReadWhat(config));
  VERBENA_RETURN_IF_ERROR(ReadHow(config));
  VERBENA_RETURN_IF_ERROR(ReadTrace(properties, config));
  ApplyScenario(config);
  VERBENA_RETURN_IF_ERROR(ReadLoad(config));
  VERBENA_RETURN_IF_ERROR(ApplyProperties(properties, WasGiven, WasGiven("workload"), &config));
  VERBENA_RETURN_IF_ERROR(CheckTogether(config));
  VERBENA_RETURN_IF_ERROR(CheckRates(config));
  return config;
}

bool HelpWanted() { return FLAGS_help; }
bool VersionWanted() { return FLAGS_version; }
std::string JsonFileWanted() { return FLAGS_json; }

}  // namespace verbena::bench
