#include "bench/systems/peers.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/systems/backend_verbena.h"
#include "bench/systems/server_facts.h"
#include "bench/systems/socket_backend.h"
#include "bench/systems/text_backends.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"

namespace verbena::bench {
namespace {

constexpr int64_t kStartNanos = 30'000'000'000;
constexpr std::chrono::milliseconds kRetry{10};

// Generous: no store may evict or run out of memory.
uint64_t MemoryFor(const Config& config) {
  const uint64_t item = config.key_names().typical_size() + config.value_size;
  return AlignUp(config.records * (item + item / 2 + 200) + 256 * kMiB, kMiB);
}

std::string FileTail(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
}

}  // namespace

absl::StatusOr<Peers> Peers::Start(const Config& config) {
  Peers peers;
  VERBENA_ASSIGN_OR_RETURN(peers.folder_, TemporaryFolder::Create());
  VERBENA_RETURN_IF_ERROR(peers.AddVerbena(config));
  peers.AddMemcached(config);
  peers.AddRedis(config);
  return peers;
}

absl::StatusOr<std::string> Peers::StartVerbena(const Config& config) {
  std::string program = FindProgram(OwnFolder() + "/verbena-server");
  if (program.empty()) program = FindProgram("verbena-server");
  if (program.empty()) {
    return absl::NotFoundError(
        "verbena-server is neither beside verbena-bench nor in PATH: give --server=ADDR:PORT");
  }
  const std::string port_file = folder_.File("verbena.port");
  const std::string log = folder_.File("verbena.log");
  VERBENA_ASSIGN_OR_RETURN(
      ChildProcess process,
      ChildProcess::Start(
          program,
          {"--listen=127.0.0.1:0", absl::StrCat("--fabric=", config.fabric),
           absl::StrCat("--memory=", MemoryFor(config)), absl::StrCat("--port_file=", port_file)},
          log));
  const int64_t deadline = MonotonicNanos() + kStartNanos;
  std::string address;
  while (address.empty()) {
    if (process.Ended() || MonotonicNanos() > deadline) {
      return absl::UnavailableError(absl::StrCat("verbena-server did not start:\n", FileTail(log)));
    }
    std::this_thread::sleep_for(kRetry);
    std::ifstream file(port_file);
    std::getline(file, address);
    if (file.eof()) address.clear();  // not all of the line is there
  }
  processes_.push_back(std::move(process));
  return address;
}

absl::Status Peers::AddVerbena(const Config& config) {
  std::string server = config.server;
  int64_t pid = config.server_pid;
  if (server.empty()) {
    VERBENA_ASSIGN_OR_RETURN(server, StartVerbena(config));
    pid = processes_.back().pid();
  }
  const auto connect_with =
      [config, server](uint32_t depth, bool one_sided) -> absl::StatusOr<std::unique_ptr<Backend>> {
    Options options = ConnectionOptions(config);
    options.depth = depth;
    options.one_sided_reads = one_sided;
    VERBENA_ASSIGN_OR_RETURN(auto connection, Connection::Connect(server, options));
    return std::make_unique<VerbenaBackend>(std::move(connection));
  };
  if (pid == 0) {
    VERBENA_ASSIGN_OR_RETURN(auto connection,
                             Connection::Connect(server, ConnectionOptions(config)));
    VERBENA_ASSIGN_OR_RETURN(const std::string info, connection->Info());
    pid = LocalServerPid(ParseServerFacts(info), server, 0);
  }
  systems_.push_back(
      {"verbena", pid, true, [connect_with](uint32_t depth) { return connect_with(depth, true); }});
  systems_.push_back({"verbena-send", pid, false,
                      [connect_with](uint32_t depth) { return connect_with(depth, false); }});
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Peers::StartOnSocket(const std::string& program,
                                             const std::vector<std::string>& args,
                                             const std::string& socket) {
  const std::string log = socket + ".log";
  VERBENA_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(program, args, log));
  const int64_t deadline = MonotonicNanos() + kStartNanos;
  for (;;) {
    if (ConnectUnix(socket).ok()) break;
    if (process.Ended() || MonotonicNanos() > deadline) {
      return absl::UnavailableError(absl::StrCat(program, " did not start:\n", FileTail(log)));
    }
    std::this_thread::sleep_for(kRetry);
  }
  const int64_t pid = process.pid();
  processes_.push_back(std::move(process));
  return pid;
}

void Peers::AddRedis(const Config& config) {
  const std::string program = FindProgram(config.redis_server);
  if (program.empty()) {
    notes_.push_back(
        absl::StrCat("no ", config.redis_server, " here: apt-get install redis-server"));
    return;
  }
  const std::string socket = folder_.File("redis.socket");
  const auto pid =
      StartOnSocket(program,
                    {"--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
                     "--daemonize", "no", "--dir", folder_.path(), "--loglevel", "warning"},
                    socket);
  if (!pid.ok()) {
    notes_.push_back(pid.status().ToString());
    return;
  }
  systems_.push_back(
      {"redis-unix", *pid, true, [socket](uint32_t) -> absl::StatusOr<std::unique_ptr<Backend>> {
         VERBENA_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(socket));
         return std::make_unique<RedisBackend>(std::move(fd));
       }});
}

void Peers::AddMemcached(const Config& config) {
  const std::string program = FindProgram(config.memcached);
  if (program.empty()) {
    notes_.push_back(absl::StrCat("no ", config.memcached, " here: apt-get install memcached"));
    return;
  }
  if (config.key_names().max_size() > 250) {
    notes_.push_back("memcached takes keys of up to 250 bytes only");
    return;
  }
  const std::string socket = folder_.File("memcached.socket");
  std::vector<std::string> args = {"-s", socket, "-m", absl::StrCat(MemoryFor(config) / kMiB)};
  if (config.value_size > 512 * kKiB) {
    args.insert(args.end(), {"-I", absl::StrCat(config.value_size / kKiB * 2 + 1024, "k")});
  }
  if (geteuid() == 0) args.insert(args.end(), {"-u", "root"});
  const auto pid = StartOnSocket(program, args, socket);
  if (!pid.ok()) {
    notes_.push_back(pid.status().ToString());
    return;
  }
  systems_.push_back({"memcached-unix", *pid, true,
                      [socket](uint32_t) -> absl::StatusOr<std::unique_ptr<Backend>> {
                        VERBENA_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(socket));
                        return std::make_unique<MemcachedBackend>(std::move(fd));
                      }});
}

}  // namespace verbena::bench
