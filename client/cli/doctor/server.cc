// A server, step by step: its address, the route to it, a connection, SENDs and READs.
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/doctor/checks.h"
#include "client/cli/doctor/server_mtu.h"
#include "client/src/fabric.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/wait_notice.h"
#include "common/verbs/cm.h"
#include "common/verbs/device.h"
#include "common/verbs/errors.h"
#include "verbena/connection.h"

namespace verbena::cli::doctor {
namespace {

// Operations of each kind that are timed, one after another.
constexpr int kRounds = 20;

double Micros(int64_t nanos) { return static_cast<double>(nanos) / 1000; }

// Which device, port and address of this machine lead to the server.
struct Route {
  std::string device;
  int port = 0;
  std::string local;
};

absl::StatusOr<Route> FindRoute(verbs::VerbsApi& api, const NetAddress& server, int timeout_ms) {
  VERBENA_ASSIGN_OR_RETURN(verbs::CmChannel channel, verbs::CmChannel::Create(api));
  VERBENA_ASSIGN_OR_RETURN(verbs::CmId id, verbs::CmId::Create(channel));
  const auto wait = [&](rdma_cm_event_type wanted, const char* what) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(const std::optional<verbs::CmEvent> event,
                             channel.WaitEvent(timeout_ms));
    if (!event.has_value()) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, " ", server.ToString(), " took more than ", timeout_ms, " ms"));
    }
    if (event->type() == wanted) return absl::OkStatus();
    return verbs::CmEventError(event->type(), event->status(), server.ToString());
  };
  VERBENA_RETURN_IF_ERROR(id.ResolveAddress(server, timeout_ms));
  VERBENA_RETURN_IF_ERROR(wait(RDMA_CM_EVENT_ADDR_RESOLVED, "finding the device for"));
  VERBENA_RETURN_IF_ERROR(id.ResolveRoute(timeout_ms));
  VERBENA_RETURN_IF_ERROR(wait(RDMA_CM_EVENT_ROUTE_RESOLVED, "finding the route to"));
  return Route{id.device().name(), id.port(), id.local_address().host()};
}

// "192.168.77.1 (rxe0)", for addresses of this machine that have a device.
std::string DeviceAddresses(const Context& context) {
  std::vector<std::string> found;
  for (const RdmaDevice& device : context.devices) {
    for (const RdmaPort& port : device.ports) {
      for (const InterfaceAddress& entry : PortAddresses(context.system, port)) {
        found.push_back(absl::StrCat(entry.address.host(), " (", device.name, ")"));
      }
    }
  }
  return found.empty()
             ? "no address of this machine has an RDMA device"
             : "addresses of this machine with an RDMA device: " + absl::StrJoin(found, ", ");
}

std::string ConnectRemedy(const absl::Status& status, const std::string& server) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return "look whether the server runs and its host answers (ping), whether a firewall lets "
             "RDMA through (RoCE v2: UDP port 4791; iWARP: TCP), and whether the MTU is the same "
             "on "
             "both hosts and the switches; --timeout=30s gives it more time";
    case absl::StatusCode::kUnavailable:
      return absl::StrCat("on the server's host: verbena-server --listen=", server,
                          " (its banner names fabric, device and address)");
    case absl::StatusCode::kFailedPrecondition:
      return "the server refuses for the reason it gives: another version, or its limit of "
             "connections (verbena-server --max_connections)";
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
      return "see the checks of memory_lock, limits and device_files above";
    default:
      return "see the message, and the checks above";
  }
}

// One look at a server. Each step adds its check and says whether to go on.
class ServerLook {
 public:
  explicit ServerLook(const Context& context) : context_(context) {}

  void Run() {
    if (!Address() || !FindFabric() || !Connect()) return;
    CompareMtu();
    notice_.End();
    Sends();
    Reads();
  }

 private:
  bool Address();
  // People are told that it takes long; `steps` of them at most, each with its time-out.
  void Await(const std::string& what, int steps) {
    const std::chrono::milliseconds timeout = context_.options.connection.connect_timeout;
    notice_.Begin(what, steps * timeout,
                  absl::StrCat("--timeout=", timeout.count(), "ms for each step"));
  }
  bool FindFabric();
  void AddRoute(std::string finding, std::vector<Figure> figures) const;
  // What the local port of the route said; nullptr if it was not asked.
  const ibv_port_attr* Port() const;
  bool Connect();
  void CompareMtu();
  void Sends();
  void Reads();
  // Runs `operation` kRounds times (and once before, which warms up); the times in ns, sorted.
  absl::StatusOr<std::vector<int64_t>> Time(const std::function<absl::Status()>& operation);

  void Ok(const char* id, const std::string& finding, std::vector<Figure> figures = {}) const {
    context_.Ok(id, "", finding, std::move(figures));
  }
  void Fail(const char* id, const std::string& finding, const std::string& remedy) const {
    context_.Fail(id, "", finding, remedy);
  }

  const Context& context_;
  NetAddress address_;
  Route route_;
  bool iwarp_ = false;
  std::string fabric_;
  std::unique_ptr<Connection> connection_;
  WaitNotice notice_{"verbena-cli"};
};

bool ServerLook::Address() {
  const int64_t start = MonotonicNanos();
  const auto address = NetAddress::Parse(context_.options.server);
  if (!address.ok() || address->port() == 0) {
    Fail("server_address",
         address.ok() ? "its port is 0; a server's port is 1 to 65535"
                      : std::string(address.status().message()),
         "--server=ADDR:PORT as verbena-server's last line of the banner says; for a name: getent "
         "hosts NAME must find it");
    return false;
  }
  address_ = *address;
  const double micros = Micros(MonotonicNanos() - start);
  Ok("server_address", absl::StrFormat("%s, found in %.0f us", address_.ToString(), micros),
     {{"us", micros}});
  return true;
}

bool ServerLook::FindFabric() {
  // Asked for once to choose the fabric, and address and route once more to show them.
  Await("a route to " + address_.ToString(), 3);
  const int64_t start = MonotonicNanos();
  const auto api = client::ChooseFabric(context_.options.connection.fabric, address_,
                                        context_.options.connection.connect_timeout);
  if (!api.ok()) {
    Fail("server_route", std::string(api.status().message()), DeviceAddresses(context_));
    return false;
  }
  fabric_ = api->api->fabric();
  if (api->api == &context_.soft) {
    Ok("server_route", address_.IsLoopback()
                           ? "over the software device: the address is this host's loopback"
                           : "over the software device, which reaches servers on this host only");
    return true;
  }
  const auto route = FindRoute(
      *api->api, address_, static_cast<int>(context_.options.connection.connect_timeout.count()));
  if (!route.ok()) {
    Fail("server_route", std::string(route.status().message()),
         absl::StrCat("the route (ip route get ", address_.host(),
                      ") must lead over an interface with an RDMA device; ",
                      DeviceAddresses(context_)));
    return false;
  }
  route_ = *route;
  iwarp_ = std::any_of(
      context_.devices.begin(), context_.devices.end(),
      [this](const RdmaDevice& device) { return device.name == route_.device && device.iwarp; });
  const double micros = Micros(MonotonicNanos() - start);
  const std::string finding = absl::StrFormat("from %s over %s/%d, found in %.0f us", route_.local,
                                              route_.device, route_.port, micros);
  AddRoute(finding, {{"us", micros}});
  return true;
}

// The route, and whether the packets of the port fit what the kernel knows of the way.
void ServerLook::AddRoute(std::string finding, std::vector<Figure> figures) const {
  const auto mtu = context_.system.PathMtu(address_);
  const ibv_port_attr* const port = Port();
  if (!mtu.has_value() || port == nullptr) {
    Ok("server_route", finding, figures);
    return;
  }
  absl::StrAppend(&finding, ", IP packets of up to ", *mtu, " bytes");
  figures.emplace_back("path_mtu_bytes", static_cast<double>(*mtu));
  const uint64_t payload = verbs::MtuBytes(port->active_mtu);
  const bool roce = port->link_layer == IBV_LINK_LAYER_ETHERNET && !iwarp_;
  if (!roce || payload < *mtu) {
    Ok("server_route", finding, figures);
    return;
  }
  context_.Warn(
      "server_route", "",
      absl::StrCat(finding, ", but packets of RDMA carry ", payload,
                   ", and the network does not cut them to size"),
      "set the MTU of this route (ip route change ... mtu) and of the interfaces, here and "
      "at the server, to what the network carries",
      figures);
}

const ibv_port_attr* ServerLook::Port() const {
  const auto answers = context_.answers.find(route_.device);
  if (answers == context_.answers.end()) return nullptr;
  const auto port = answers->second.ports.find(route_.port);
  return port == answers->second.ports.end() ? nullptr : &port->second;
}

bool ServerLook::Connect() {
  verbena::Options options = context_.options.connection;
  options.fabric = fabric_;
  Await(absl::StrCat("the server at ", context_.options.server, " to take the connection"), 1);
  const int64_t start = MonotonicNanos();
  auto connection = Connection::Connect(context_.options.server, options);
  if (!connection.ok()) {
    Fail("server_connect", std::string(connection.status().message()),
         ConnectRemedy(connection.status(), context_.options.server));
    return false;
  }
  connection_ = *std::move(connection);
  const double micros = Micros(MonotonicNanos() - start);
  Ok("server_connect",
     absl::StrFormat("in %.0f us, fabric %s, device %s", micros, connection_->fabric(),
                     connection_->device()),
     {{"us", micros}});
  return true;
}

// The server's MTU against this end's: they settle on the smaller one, but where the larger comes
// from a network that does not carry it, large packets vanish.
void ServerLook::CompareMtu() {
  const ibv_port_attr* const port = Port();
  Await(absl::StrCat("the answer of the server at ", context_.options.server), 1);
  const auto text = connection_->Info();
  if (port == nullptr || !text.ok()) return;
  const uint64_t here = verbs::MtuBytes(port->active_mtu);
  const std::vector<uint64_t> there = ServerMtus(*text, fabric_, address_);
  if (there.empty()) return;
  const std::vector<Figure> figures = {{"here_bytes", static_cast<double>(here)},
                                       {"server_bytes", static_cast<double>(there.front())}};
  if (std::find(there.begin(), there.end(), here) != there.end()) {
    Ok("server_mtu", absl::StrCat(here, " bytes at both ends"), figures);
    return;
  }
  context_.Warn("server_mtu", "",
                absl::StrCat("packets carry ", here, " bytes here and ", absl::StrJoin(there, ", "),
                             " at the server: the smaller one is used, and a wrong MTU at one end "
                             "or in between loses large packets"),
                "set one MTU at both ends and on the switches: ip link set INTERFACE mtu 4200",
                figures);
}

absl::StatusOr<std::vector<int64_t>> ServerLook::Time(
    const std::function<absl::Status()>& operation) {
  VERBENA_RETURN_IF_ERROR(operation());
  std::vector<int64_t> times;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t start = MonotonicNanos();
    VERBENA_RETURN_IF_ERROR(operation());
    times.push_back(MonotonicNanos() - start);
  }
  std::sort(times.begin(), times.end());
  return times;
}

std::vector<Figure> TimeFigures(const std::vector<int64_t>& times) {
  return {{"min_us", Micros(times.front())},
          {"median_us", Micros(times[times.size() / 2])},
          {"max_us", Micros(times.back())},
          {"rounds", static_cast<double>(times.size())}};
}

std::string TimeText(const std::vector<int64_t>& times) {
  return absl::StrFormat("median %.1f us, min %.1f, max %.1f", Micros(times[times.size() / 2]),
                         Micros(times.front()), Micros(times.back()));
}

void ServerLook::Sends() {
  const auto times = Time([this] { return connection_->Ping(); });
  if (!times.ok()) {
    Fail("server_send", std::string(times.status().message()),
         ConnectRemedy(times.status(), context_.options.server));
    return;
  }
  Ok("server_send",
     absl::StrCat(kRounds, " SENDs, each answered by a worker of the server: ", TimeText(*times)),
     TimeFigures(*times));
}

// GETs of a key that is not there: READs of the index only, and nothing is changed.
void ServerLook::Reads() {
  uint64_t random[2] = {};
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) return;
  const std::string key = absl::StrFormat("verbena-doctor-%016x%016x", random[0], random[1]);
  std::string value;
  const ConnectionStats before = connection_->stats();
  const auto times = Time([&]() -> absl::Status {
    const absl::Status status = connection_->Get(key, &value);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  });
  if (!times.ok()) {
    Fail("server_read", std::string(times.status().message()),
         ConnectRemedy(times.status(), context_.options.server));
    return;
  }
  const ConnectionStats& after = connection_->stats();
  const double reads = static_cast<double>(after.reads - before.reads) / (kRounds + 1);
  std::vector<Figure> figures = TimeFigures(*times);
  figures.emplace_back("reads_per_get", reads);
  const std::string finding =
      absl::StrFormat("%d GETs of a key that is not there, %.1f READs each, one after another: %s",
                      kRounds, reads, TimeText(*times));
  if (after.rpc_gets != before.rpc_gets) {
    context_.Warn("server_read", "",
                  absl::StrCat(finding, "; ", after.rpc_gets - before.rpc_gets,
                               " of them were answered by the server's CPU"),
                  "the index changes while it is read: run this again when the server is less busy",
                  figures);
    return;
  }
  Ok("server_read", finding, figures);
}

}  // namespace

void CheckServer(const Context& context) {
  if (!context.options.server.empty()) ServerLook(context).Run();
}

}  // namespace verbena::cli::doctor
