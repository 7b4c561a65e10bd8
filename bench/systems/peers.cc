#include "bench/systems/peers.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/baseline/raw_side.h"
#include "bench/systems/backend_verbena.h"
#include "bench/systems/pingpong_backend.h"
#include "bench/systems/raw_backend.h"
#include "bench/systems/server_facts.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/sizes.h"
#include "common/wire/messages.h"

namespace verbena::bench {
namespace {

// Of the memory that plain READs are spread over.
constexpr uint64_t kMostRawRegion = kGiB;
// Larger values go over the fabric in pieces, which a ping-pong does not.
constexpr uint32_t kMostRawValue = kMiB;

// Where the rivals listen: at the same address as Verbena, if that is one of this host's.
std::string HostFor(const std::string& server) {
  const auto address = NetAddress::Parse(server);
  if (!address.ok() || !address->IsLocal() || address->IsWildcard()) return "127.0.0.1";
  return address->host();
}

// Of Verbena's own messages for the records of `config`.
PingPongSizes MessageSizes(const Config& config) {
  const size_t key = config.key_names().typical_size();
  const auto request = [key](size_t value) {
    return static_cast<uint32_t>(sizeof(wire::RequestHeader) + wire::OperationSize(key, value));
  };
  const auto answer = [](size_t value) {
    return static_cast<uint32_t>(sizeof(wire::ResponseHeader) + wire::ResultSize(value));
  };
  return {request(0), answer(config.value_size), request(config.value_size), answer(0)};
}

}  // namespace

absl::StatusOr<Peers> Peers::Start(const Config& config) {
  Peers peers;
  VERBENA_ASSIGN_OR_RETURN(peers.folder_, TemporaryFolder::Create());
  const auto& wanted = config.compare;
  const bool raw = wanted.Wants("raw-read") || wanted.Wants("raw-send");
  if (wanted.Wants("verbena") || wanted.Wants("verbena-send") || raw) {
    VERBENA_RETURN_IF_ERROR(peers.FindVerbena(config));
    peers.AddVerbena(config);
  }
  const std::string host = HostFor(peers.server_);
  AddMemcached(config, host, peers.folder_, &peers.rivals_);
  AddRedis(config, host, peers.folder_, &peers.rivals_);
  if (raw) peers.AddRaw(config);
  if (wanted.WantsTcpPingPong()) {
    if (const absl::Status status = peers.AddTcpPingPong(config, host); !status.ok()) {
      peers.rivals_.notes.push_back(
          absl::StrCat(kTcpPingPong, " is left out: ", status.ToString()));
    }
  }
  if (peers.systems().empty()) {
    std::string why;
    for (const std::string& note : peers.notes()) absl::StrAppend(&why, "\n", note);
    return absl::UnavailableError(absl::StrCat("there is nothing to compare", why));
  }
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
  std::string address;
  VERBENA_RETURN_IF_ERROR(WaitUntilReady("verbena-server", process, log, [&] {
    std::ifstream file(port_file);
    std::getline(file, address);
    if (file.eof()) address.clear();  // not all of the line is there
    return !address.empty();
  }));
  rivals_.processes.push_back(std::move(process));
  return address;
}

absl::Status Peers::FindVerbena(const Config& config) {
  server_ = config.server;
  server_pid_ = config.server_pid;
  if (server_.empty()) {
    VERBENA_ASSIGN_OR_RETURN(server_, StartVerbena(config));
    server_pid_ = rivals_.processes.back().pid();
  }
  VERBENA_ASSIGN_OR_RETURN(const auto connection,
                           Connection::Connect(server_, ConnectionOptions(config)));
  fabric_ = connection->fabric();
  device_ = connection->device();
  if (server_pid_ != 0) return absl::OkStatus();
  VERBENA_ASSIGN_OR_RETURN(const std::string info, connection->Info());
  server_pid_ = LocalServerPid(ParseServerFacts(info), server_, 0);
  return absl::OkStatus();
}

void Peers::AddVerbena(const Config& config) {
  bool loads = true;
  for (const bool one_sided : {true, false}) {
    const char* const name = one_sided ? "verbena" : "verbena-send";
    if (!config.compare.Wants(name)) continue;
    const auto connect = [config, server = server_, one_sided](
                             uint32_t depth, uint32_t) -> absl::StatusOr<std::unique_ptr<Backend>> {
      Options options = ConnectionOptions(config);
      options.depth = depth;
      options.one_sided_reads = one_sided;
      VERBENA_ASSIGN_OR_RETURN(auto connection, Connection::Connect(server, options));
      return std::make_unique<VerbenaBackend>(std::move(connection));
    };
    rivals_.systems.push_back({name, server_pid_, loads, connect, ""});
    loads = false;
  }
}

void Peers::AddRaw(const Config& config) {
  if (config.value_size > kMostRawValue) {
    rivals_.notes.push_back("raw-read and raw-send are for values of up to 1 MiB only");
    return;
  }
  const PingPongSizes messages = MessageSizes(config);
  RawSizes sizes;
  sizes.block = static_cast<uint32_t>(BlockSizeFor(config));
  sizes.region = std::min<uint64_t>(std::max<uint64_t>(config.records, 64) * sizes.block,
                                    std::max<uint64_t>(kMostRawRegion, sizes.block));
  sizes.read_request = messages.read_request;
  sizes.write_request = messages.write_request;
  RawInitiatorOptions options;
  options.fabric = fabric_;
  options.depth = config.depth;
  options.block_size = sizes.block;
  options.request_size = sizes.write_request;
  options.response_size = messages.read_answer;
  options.short_response_size = messages.write_answer;
  if (config.poll.count() == 0) options.target_poll_ns = 0;
  auto started = RawSide::Start(server_, sizes.region, options, config.connections);
  if (!started.ok()) {
    rivals_.notes.push_back(
        absl::StrCat("raw-read and raw-send are left out: ", started.status().ToString()));
    return;
  }
  const std::shared_ptr<RawSide> side = *std::move(started);
  for (const auto reads : {RawBackend::Reads::kOneSided, RawBackend::Reads::kMessages}) {
    const char* const name = reads == RawBackend::Reads::kOneSided ? "raw-read" : "raw-send";
    if (!config.compare.Wants(name)) continue;
    // The lanes take turns, so they share the connections.
    const auto connect = [side, reads, sizes, poll = config.poll](
                             uint32_t depth,
                             uint32_t index) -> absl::StatusOr<std::unique_ptr<Backend>> {
      return std::make_unique<RawBackend>(side, &side->initiator(index), reads, sizes, depth, poll);
    };
    rivals_.systems.push_back({name, side->pid(), false, connect, ""});
  }
}

absl::Status Peers::AddTcpPingPong(const Config& config, const std::string& host) {
  if (config.value_size > kMostRawValue) {
    return absl::InvalidArgumentError("it is for values of up to 1 MiB only");
  }
  VERBENA_ASSIGN_OR_RETURN(
      NetAddress address,
      NetAddress::Parse(host.find(':') == std::string::npos ? absl::StrCat(host, ":0")
                                                            : absl::StrCat("[", host, "]:0")));
  VERBENA_ASSIGN_OR_RETURN(
      ChildProcess process,
      ChildProcess::Start(OwnFolder() + "/verbena-bench", {"tcp-target", address.ToString()}, ""));
  VERBENA_ASSIGN_OR_RETURN(const std::string line, process.ReadLine(std::chrono::seconds(30)));
  uint32_t port = 0;
  if (line.rfind("PORT ", 0) != 0 || !absl::SimpleAtoi(line.substr(5), &port) || port > 65535) {
    return absl::InternalError(absl::StrCat("the TCP target says: ", line));
  }
  address.set_port(static_cast<uint16_t>(port));
  const auto connect = [address, sizes = MessageSizes(config), timeout = config.timeout](
                           uint32_t, uint32_t) -> absl::StatusOr<std::unique_ptr<Backend>> {
    VERBENA_ASSIGN_OR_RETURN(UniqueFd socket, ConnectTcp(address, timeout));
    return std::make_unique<PingPongBackend>(std::move(socket), sizes);
  };
  rivals_.systems.push_back({kTcpPingPong, process.pid(), false, connect, "lo"});
  rivals_.processes.push_back(std::move(process));
  return absl::OkStatus();
}

}  // namespace verbena::bench
