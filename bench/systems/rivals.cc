#include "bench/systems/rivals.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/systems/socket_backend.h"
#include "bench/systems/text_backends.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/sizes.h"

namespace verbena::bench {
namespace {

constexpr int64_t kStartNanos = 30'000'000'000;
constexpr std::chrono::milliseconds kRetry{10};
// Somebody else may take a port between its choice and its use.
constexpr int kPortAttempts = 5;
constexpr size_t kMaxMemcachedKey = 250;

std::string FileTail(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
}

// An address of `host` with a port that is free now.
absl::StatusOr<NetAddress> FreeAddress(const std::string& host) {
  const bool v6 = host.find(':') != std::string::npos;
  VERBENA_ASSIGN_OR_RETURN(NetAddress address, NetAddress::Parse(v6 ? absl::StrCat("[", host, "]:0")
                                                                    : absl::StrCat(host, ":0")));
  const UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t size = address.length();
  if (!socket.valid() || bind(socket.get(), address.addr(), size) != 0 ||
      getsockname(socket.get(), address.addr(), &size) != 0) {
    return absl::UnavailableError(absl::StrCat("no free TCP port on ", host));
  }
  return address;
}

// How to speak to a kind of store.
using MakeBackend = std::function<std::unique_ptr<Backend>(UniqueFd)>;

System OverUnix(const std::string& name, int64_t pid, bool loads, const std::string& path,
                const MakeBackend& make) {
  return {name, pid, loads,
          [path, make](uint32_t, uint32_t) -> absl::StatusOr<std::unique_ptr<Backend>> {
            VERBENA_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(path));
            return make(std::move(fd));
          },
          ""};
}

System OverTcp(const std::string& name, int64_t pid, bool loads, const NetAddress& address,
               std::chrono::milliseconds timeout, const MakeBackend& make) {
  return {name, pid, loads,
          [address, timeout, make](uint32_t, uint32_t) -> absl::StatusOr<std::unique_ptr<Backend>> {
            VERBENA_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTcp(address, timeout));
            return make(std::move(fd));
          },
          // Whatever goes from this host to itself goes over the loopback interface.
          address.IsLocal() ? "lo" : ""};
}

// Adds a store that somebody else runs; the records are written to it once over each way.
void AddElsewhere(const Config& config, const std::string& name,
                  const std::vector<RivalPlace>& places, const MakeBackend& make, Rivals* rivals) {
  bool loads = true;
  for (const RivalPlace& place : places) {
    const bool tcp = place.kind == RivalPlace::Kind::kTcp;
    const std::string system = name + (tcp ? "-tcp" : "-unix");
    if (!config.compare.Wants(system)) continue;
    if (tcp) {
      const auto address = NetAddress::Parse(place.where);
      if (!address.ok()) {
        rivals->notes.push_back(absl::StrCat(system, ": ", address.status().ToString()));
        continue;
      }
      rivals->systems.push_back(OverTcp(system, 0, loads, *address, config.timeout, make));
    } else {
      rivals->systems.push_back(OverUnix(system, 0, loads, place.where, make));
    }
    // A connection that cannot be made is a note, not the end of the comparison.
    if (const auto tried = rivals->systems.back().connect(1, 0); !tried.ok()) {
      rivals->notes.push_back(absl::StrCat(system, " is left out: ", tried.status().ToString()));
      rivals->systems.pop_back();
    }
  }
}

// The first line that a program prints of its version; empty if it prints none.
std::string VersionOf(const std::string& program) {
  constexpr size_t kMostLength = 200;
  auto process = ChildProcess::Start(program, {"--version"}, "/dev/null");
  if (!process.ok()) return "";
  return process->ReadLine(std::chrono::seconds(5)).value_or("").substr(0, kMostLength);
}

void NoteVersion(const std::string& program, Rivals* rivals) {
  const std::string name = program.substr(program.rfind('/') + 1);
  if (const std::string version = VersionOf(program); !version.empty()) {
    rivals->versions[name] = version;
  }
}

bool GivenElsewhere(const std::vector<RivalPlace>& places) {
  return places.front().kind != RivalPlace::Kind::kProgram;
}

// Starts a program that listens at `address`.
absl::StatusOr<ChildProcess> StartOnPort(
    const std::string& program, const std::string& host, const std::string& log,
    const std::function<std::vector<std::string>(const NetAddress&)>& args, NetAddress* address) {
  absl::Status failure;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    VERBENA_ASSIGN_OR_RETURN(*address, FreeAddress(host));
    VERBENA_ASSIGN_OR_RETURN(ChildProcess process,
                             ChildProcess::Start(program, args(*address), log));
    failure = WaitUntilReady(program, process, log,
                             [&] { return ConnectTcp(*address, std::chrono::seconds(1)).ok(); });
    if (failure.ok()) return process;
  }
  return failure;
}

}  // namespace

uint64_t MemoryFor(const Config& config) {
  const uint64_t item = config.key_names().typical_size() + config.value_size;
  return AlignUp(config.records * (item + item / 2 + 200) + 256 * kMiB, kMiB);
}

absl::Status WaitUntilReady(const std::string& program, ChildProcess& process,
                            const std::string& log, const std::function<bool()>& ready) {
  const int64_t deadline = MonotonicNanos() + kStartNanos;
  while (!ready()) {
    if (process.Ended() || MonotonicNanos() > deadline) {
      return absl::UnavailableError(absl::StrCat(program, " did not start:\n", FileTail(log)));
    }
    std::this_thread::sleep_for(kRetry);
  }
  return absl::OkStatus();
}

void AddRedis(const Config& config, const std::string& host, const TemporaryFolder& folder,
              Rivals* rivals) {
  const bool tcp = config.compare.Wants("redis-tcp");
  const bool local = config.compare.Wants("redis-unix");
  const RivalPlace& place = config.compare.redis.front();
  if (place.kind == RivalPlace::Kind::kOff || !(tcp || local)) return;
  const MakeBackend make = [](UniqueFd fd) {
    return std::make_unique<RedisBackend>(std::move(fd));
  };
  if (GivenElsewhere(config.compare.redis)) {
    return AddElsewhere(config, "redis", config.compare.redis, make, rivals);
  }
  std::string program = FindProgram(place.where);
  if (program.empty() && place.where == "redis-server") program = FindProgram("valkey-server");
  if (program.empty()) {
    rivals->notes.push_back(
        absl::StrCat("no ", place.where, " here: apt-get install redis-server"));
    return;
  }
  NoteVersion(program, rivals);
  const std::string socket = folder.File("redis.socket");
  NetAddress address;
  auto process = StartOnPort(
      program, host, folder.File("redis.log"),
      [&](const NetAddress& at) -> std::vector<std::string> {
        return {"--port",
                absl::StrCat(at.port()),
                "--bind",
                at.host(),
                "--unixsocket",
                socket,
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--dir",
                folder.path(),
                "--loglevel",
                "warning",
                "--protected-mode",
                "no"};
      },
      &address);
  if (!process.ok()) {
    rivals->notes.push_back(process.status().ToString());
    return;
  }
  const int64_t pid = process->pid();
  rivals->processes.push_back(*std::move(process));
  // One store, seen in two ways: whichever comes first loads the records.
  if (tcp) {
    rivals->systems.push_back(OverTcp("redis-tcp", pid, true, address, config.timeout, make));
  }
  if (local) rivals->systems.push_back(OverUnix("redis-unix", pid, !tcp, socket, make));
}

void AddMemcached(const Config& config, const std::string& host, const TemporaryFolder& folder,
                  Rivals* rivals) {
  const bool tcp = config.compare.Wants("memcached-tcp");
  const bool local = config.compare.Wants("memcached-unix");
  const RivalPlace& place = config.compare.memcached.front();
  if (place.kind == RivalPlace::Kind::kOff || !(tcp || local)) return;
  if (config.key_names().max_size() > kMaxMemcachedKey) {
    rivals->notes.push_back("memcached takes keys of up to 250 bytes only");
    return;
  }
  const bool meta = config.compare.meta_protocol;
  const MakeBackend make = [meta](UniqueFd fd) -> std::unique_ptr<Backend> {
    if (meta) return std::make_unique<MemcachedMetaBackend>(std::move(fd));
    return std::make_unique<MemcachedBackend>(std::move(fd));
  };
  if (GivenElsewhere(config.compare.memcached)) {
    return AddElsewhere(config, "memcached", config.compare.memcached, make, rivals);
  }
  const std::string program = FindProgram(place.where);
  if (program.empty()) {
    rivals->notes.push_back(absl::StrCat("no ", place.where, " here: apt-get install memcached"));
    return;
  }
  NoteVersion(program, rivals);
  std::vector<std::string> common = {"-m", absl::StrCat(MemoryFor(config) / kMiB)};
  if (config.value_size > 512 * kKiB) {
    common.insert(common.end(), {"-I", absl::StrCat(config.value_size / kKiB * 2 + 1024, "k")});
  }
  if (geteuid() == 0) common.insert(common.end(), {"-u", "root"});
  // It listens either on a port or on a Unix socket: two processes.
  if (tcp) {
    NetAddress address;
    auto process = StartOnPort(
        program, host, folder.File("memcached-tcp.log"),
        [&](const NetAddress& at) {
          std::vector<std::string> args = {"-l", at.host(), "-p", absl::StrCat(at.port()),
                                           "-U", "0"};
          args.insert(args.end(), common.begin(), common.end());
          return args;
        },
        &address);
    if (process.ok()) {
      rivals->systems.push_back(
          OverTcp("memcached-tcp", process->pid(), true, address, config.timeout, make));
      rivals->processes.push_back(*std::move(process));
    } else {
      rivals->notes.push_back(process.status().ToString());
    }
  }
  if (!local) return;
  const std::string socket = folder.File("memcached.socket");
  const std::string log = folder.File("memcached-unix.log");
  std::vector<std::string> args = {"-s", socket};
  args.insert(args.end(), common.begin(), common.end());
  auto process = ChildProcess::Start(program, args, log);
  absl::Status started = process.status();
  if (started.ok()) {
    started = WaitUntilReady(program, *process, log, [&] { return ConnectUnix(socket).ok(); });
  }
  if (!started.ok()) {
    rivals->notes.push_back(started.ToString());
    return;
  }
  rivals->systems.push_back(OverUnix("memcached-unix", process->pid(), true, socket, make));
  rivals->processes.push_back(*std::move(process));
}

}  // namespace verbena::bench
