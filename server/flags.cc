#include "server/flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/command_line.h"
#include "common/base/default_workers.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/base/text.h"
#include "common/layout/item.h"
#include "common/verbs/connect_flags.h"

DEFINE_string(listen, "127.0.0.1:7400",
              "address to listen on, ADDR:PORT; port 0 takes a free one and prints it");
DEFINE_string(fabric, "auto",
              "auto (RDMA devices where the address has one, and the software device for clients "
              "on this host), verbs (RDMA devices only) or soft (the software device only)");
DEFINE_string(memory, "1GiB", "size of the region: index and data; taken at the start");
DEFINE_uint32(workers, verbena::DefaultWorkers(), "threads that answer requests, 1 to 256");
DEFINE_uint32(
    max_connections, 0,
    "connections admitted; 0: 8192, or what the devices and queues allow if that is less");
DEFINE_string(max_value_size, "64MiB", "largest value, 1B to 1GiB");
DEFINE_uint32(srq_depth, 0,
              "receive buffers of each worker, at least --window and 16 more; 0: 4096, or more if "
              "--max_connections needs it, or what the device allows");
DEFINE_string(srq, "auto",
              "auto (a worker's connections share a receive queue where the device can do that) or "
              "off (each connection has its own)");
DEFINE_uint32(window, 0,
              "requests that one client may have unanswered when it is busy, 1 to 1024; 0: 32, or "
              "what the device allows if that is less");
DEFINE_int64(
    poll_us, 50,
    "microseconds that an idle worker polls before it sleeps, 0 to 1000000; more is faster "
    "for sparse traffic and costs processor time");
DEFINE_string(
    compaction_rate, "256MiB",
    "bytes of items moved in a second, in the background, so that sparsely used memory can "
    "be used for other sizes, up to 1TiB; 0: only when memory is short");
DEFINE_string(expiry_tick, "100ms",
              "how exactly times to live are kept, 1ms to 60s: an item goes at most so long after "
              "its time");
DEFINE_string(eviction, "none",
              "what happens when the region is full: none (changes are refused, and everything "
              "stays) or s3fifo (keys that are read least go; the clients report a sample of their "
              "GETs for it); clock is taken for s3fifo");
DEFINE_string(ordered_index, "on",
              "on or off: keeps the keys in order for scans, which costs some 20 bytes of memory a "
              "key outside the region");
DEFINE_bool(huge_pages, true, "use huge pages for the region where the machine gives them");
DEFINE_double(
    drain_seconds, 5,
    "how long SIGTERM waits for requests under way before clients are cut off, 0 to 3600");
DEFINE_string(session_linger, "60s",
              "how long a client that has lost its connection may come back and have its changes "
              "answered that were not: 0s to 24h");
DEFINE_string(log_level, "info", "trace, debug, info, warn, error or off");
DEFINE_string(port_file, "", "file to write the bound ADDR:PORT to when the server is ready");
DECLARE_bool(help);
DECLARE_bool(helpfull);
DECLARE_bool(helpshort);
DECLARE_bool(version);

namespace verbena::server {
namespace {

constexpr const char* kIntroduction =
    R"(verbena-server: an in-memory key-value store for RDMA networks

  verbena-server --listen=10.0.0.1:7400 --memory=16GiB

Clients read values with one-sided RDMA READs, which cost this process nothing, and send changes,
which its workers apply. Without an RDMA device, clients on the same host are served by a software
device (--fabric=soft, or --fabric=auto, which says what it took when it starts).

SIGTERM and SIGINT finish the requests under way and exit with 0; a second one exits at once.
Exit codes: 0 stopped in order, 1 could not start or go on, 2 wrong flags.
Sizes take B, KiB, MiB, GiB, TiB. --flagfile=FILE reads flags from a file, one a line.

Flags:
)";

constexpr const char* kShown[] = {
    "listen",          "fabric",    "memory",        "workers",
    "window",          "srq_depth", "srq",           "max_connections",
    "max_value_size",  "eviction",  "ordered_index", "expiry_tick",
    "compaction_rate", "poll_us",   "huge_pages",    "drain_seconds",
    "session_linger",  "log_level", "port_file"};

void PrintHelp() {
  std::fputs(kIntroduction, stdout);
  for (const char* name : kShown) {
    const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(name);
    std::printf("  --%s=%s\n      %s\n", name, info.default_value.c_str(),
                info.description.c_str());
  }
  std::printf("\nFor RDMA networks:\n%s", std::string(verbs::ConnectFlagsHelp()).c_str());
}

template <typename Value>
absl::Status OutOfRange(const char* flag, const Value& value, std::string_view range) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, " is out of range: ", ToAbsl(range)));
}

absl::StatusOr<uint64_t> SizeFlag(const char* flag, const std::string& text, uint64_t least,
                                  uint64_t most) {
  const absl::StatusOr<uint64_t> size = ParseSize(text);
  if (!size.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", size.status().message()));
  }
  if (*size < least || *size > most) {
    return OutOfRange(flag, text, FormatSize(least) + " to " + FormatSize(most));
  }
  return *size;
}

absl::StatusOr<FabricChoice> FabricFlag() {
  if (FLAGS_fabric == "auto") return FabricChoice::kAuto;
  if (FLAGS_fabric == "verbs") return FabricChoice::kVerbs;
  if (FLAGS_fabric == "soft") return FabricChoice::kSoft;
  return OutOfRange("fabric", FLAGS_fabric, "auto, verbs or soft");
}

// Nanoseconds.
absl::StatusOr<int64_t> DurationFlag(const char* flag, const std::string& text, int64_t least,
                                     int64_t most, std::string_view range) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::Nanoseconds(least) ||
      duration > absl::Nanoseconds(most)) {
    return OutOfRange(flag, text, range);
  }
  return absl::ToInt64Nanoseconds(duration);
}

absl::Status CheckNumbers() {
  if (FLAGS_workers < 1 || FLAGS_workers > net::kMaxWorkers) {
    return OutOfRange("workers", FLAGS_workers, absl::StrCat("1 to ", net::kMaxWorkers));
  }
  if (FLAGS_window > net::kMaxWindow) {
    return OutOfRange("window", FLAGS_window, absl::StrCat("1 to ", net::kMaxWindow, ", or 0"));
  }
  const uint32_t margin = net::SharedMargin(FLAGS_srq_depth);
  const uint32_t least = std::max(FLAGS_window, 1u) + margin;
  if (FLAGS_srq_depth != 0 && (FLAGS_srq_depth < least || FLAGS_srq_depth > net::kMaxReceives)) {
    return OutOfRange(
        "srq_depth", FLAGS_srq_depth,
        absl::StrCat(least, " (--window and ", margin, ") to ", net::kMaxReceives, ", or 0"));
  }
  if (FLAGS_eviction != "none" && FLAGS_eviction != "s3fifo" && FLAGS_eviction != "clock") {
    return OutOfRange("eviction", FLAGS_eviction, "none, s3fifo or clock");
  }
  if (FLAGS_ordered_index != "on" && FLAGS_ordered_index != "off") {
    return OutOfRange("ordered_index", FLAGS_ordered_index, "on or off");
  }
  if (FLAGS_srq != "auto" && FLAGS_srq != "off") {
    return OutOfRange("srq", FLAGS_srq, "auto or off");
  }
  constexpr uint32_t kMostConnections = net::kMaxConnectionsPerWorker;
  if (FLAGS_max_connections > kMostConnections) {
    return OutOfRange("max_connections", FLAGS_max_connections,
                      absl::StrCat("0 to ", kMostConnections));
  }
  if (FLAGS_poll_us < 0 || FLAGS_poll_us > kMaxPollUs) {
    return OutOfRange("poll_us", FLAGS_poll_us, absl::StrCat("0 to ", kMaxPollUs));
  }
  if (!(FLAGS_drain_seconds >= 0 && FLAGS_drain_seconds <= 3600)) {
    return OutOfRange("drain_seconds", FLAGS_drain_seconds, "0 to 3600");
  }
  constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};
  if (std::find(std::begin(kLevels), std::end(kLevels), FLAGS_log_level) == std::end(kLevels)) {
    return OutOfRange("log_level", FLAGS_log_level, "trace, debug, info, warn, error or off");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int* argc, char*** argv) {
  VERBENA_ASSIGN_OR_RETURN(
      const std::vector<std::string> operands,
      verbena::ParseCommandLine(
          std::vector<std::string>(*argv + 1, *argv + *argc),
          absl::StrCat("--", absl::StrJoin(kShown, ", --"), ", ", ToAbsl(verbs::kConnectFlags))));
  if (FLAGS_help || FLAGS_helpfull || FLAGS_helpshort) {
    PrintHelp();
    std::exit(0);
  }
  if (FLAGS_version) {
    std::printf("verbena-server %s\n", Version());
    std::exit(0);
  }
  if (!operands.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", operands.front(),
                     "': flags are written --name=value (see --help)"));
  }
  CommandLine line;
  VERBENA_RETURN_IF_ERROR(CheckNumbers());
  VERBENA_ASSIGN_OR_RETURN(line.config.fabric, FabricFlag());
  VERBENA_ASSIGN_OR_RETURN(line.config.memory,
                           SizeFlag("memory", FLAGS_memory, kMinMemory, kMaxMemory));
  VERBENA_ASSIGN_OR_RETURN(
      line.config.max_value_size,
      SizeFlag("max_value_size", FLAGS_max_value_size, 1, layout::kMaxValueSize));
  const absl::StatusOr<NetAddress> listen = NetAddress::Parse(FLAGS_listen);
  if (!listen.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: ", listen.status().message()));
  }
  line.config.listen = *listen;
  line.config.huge_pages = FLAGS_huge_pages;
  VERBENA_ASSIGN_OR_RETURN(
      line.config.compaction_rate,
      SizeFlag("compaction_rate", FLAGS_compaction_rate, 0, kMaxCompactionRate));
  line.config.evict = FLAGS_eviction != "none";
  line.config.ordered_index = FLAGS_ordered_index == "on";
  VERBENA_ASSIGN_OR_RETURN(line.config.expiry_tick_ns,
                           DurationFlag("expiry_tick", FLAGS_expiry_tick, kMinExpiryTickNs,
                                        kMaxExpiryTickNs, "1ms to 60s, a number and ms or s"));
  VERBENA_ASSIGN_OR_RETURN(line.config.sessions.linger_ns,
                           DurationFlag("session_linger", FLAGS_session_linger, 0,
                                        kMaxSessionLingerNs, "0s to 24h, a number and ms, s or h"));
  VERBENA_ASSIGN_OR_RETURN(line.config.connect, verbs::ConnectOptionsFromFlags());
  line.config.poll_us = FLAGS_poll_us;
  line.config.queues = {.workers = FLAGS_workers,
                        .max_connections = FLAGS_max_connections,
                        .srq_depth = FLAGS_srq_depth,
                        .window = FLAGS_window,
                        .use_srq = FLAGS_srq == "auto"};
  line.log_level = FLAGS_log_level;
  line.port_file = FLAGS_port_file;
  line.drain_seconds = FLAGS_drain_seconds;
  return line;
}

}  // namespace verbena::server
