// A whole server: region, store, network. What verbena-server runs, and what tests run inside their
// own process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/net_address.h"
#include "server/maintenance.h"
#include "server/net/network.h"
#include "server/storage/store.h"
#include "server/store_handler.h"

namespace verbena::server {

enum class FabricChoice {
  kAuto,   // verbs where the address has an RDMA device, and soft for clients on this host
  kVerbs,  // RDMA devices only
  kSoft,   // the software device only
};

struct ServerConfig {
  // Port 0: a free one, see Server::address().
  NetAddress listen;
  FabricChoice fabric = FabricChoice::kAuto;
  uint64_t memory = uint64_t{1} << 30;           // bytes, of the whole region
  uint64_t max_value_size = uint64_t{64} << 20;  // bytes
  bool huge_pages = true;
  // Bytes that compaction moves in a second in the background; 0: only when memory is short.
  uint64_t compaction_rate = uint64_t{256} << 20;
  bool ordered_index = true;
  bool evict = false;  // items, when the region is full
  int64_t expiry_tick_ns = 100'000'000;
  net::QueueOptions queues;
  verbs::ConnectOptions connect;
  int64_t poll_us = 50;
  uint32_t silence_seconds = 10;
  net::SessionLimits sessions;
  // Instead of `fabric`, for tests: these tables.
  std::vector<net::Fabric> fabrics;
};

// Limits of the members above.
inline constexpr uint64_t kMinMemory = storage::kMinSliceSize;
inline constexpr uint64_t kMaxMemory = uint64_t{1} << 48;
inline constexpr uint64_t kMaxCompactionRate = uint64_t{1} << 40;
inline constexpr int64_t kMaxPollUs = 1'000'000;
inline constexpr int64_t kMinExpiryTickNs = 1'000'000;
inline constexpr int64_t kMaxExpiryTickNs = 60'000'000'000;
inline constexpr int64_t kMaxSessionLingerNs = int64_t{24} * 3600 * 1'000'000'000;

class Server {
 public:
  // Gets memory, binds, and serves when it returns. Errors name what failed, the value that was
  // wrong and what to do: AlreadyExists (port in use), InvalidArgument (address not local; flags
  // that a device does not allow), NotFound (no RDMA device), ResourceExhausted (memory).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerConfig& config);
  // Cuts everybody off if Stop has not been called.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Refuses new clients, finishes what has arrived, disconnects and frees everything that the
  // devices hold; clients that do not let go are cut off after `limit`. True if that was not
  // necessary. Not thread-safe.
  bool Stop(absl::Duration limit);

  // "127.0.0.1:7400", with the port that was chosen.
  std::string address() const { return network_->address().ToString(); }
  // One JSON object; docs/operations.md names its members. Thread-safe.
  std::string Info() const;
  // What was started, a line for each subject, for the log.
  std::vector<std::string> Banner() const;
  // What the banner's reader must know at any log level: fabrics that are not served, and why.
  std::vector<std::string> Warnings() const;

  const net::Network& network() const { return *network_; }
  storage::Store& store() { return *store_; }

 private:
  explicit Server(const ServerConfig& config) : config_(config) {}

  absl::Status StartMaintenance();

  int64_t RemoveDue(int64_t now_ns);
  std::string LargestValue() const;

  ServerConfig config_;
  int64_t started_ = 0;  // CLOCK_MONOTONIC, ns
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<Maintenance> maintenance_;
  std::unique_ptr<StoreHandler> handler_;
  std::unique_ptr<net::Network> network_;
};

// As "0.2.0".
const char* Version();

}  // namespace verbena::server
