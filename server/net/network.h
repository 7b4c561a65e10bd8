// The server's network side: acceptors for its fabrics, workers, and their end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/net_address.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/verbs_api.h"
#include "server/net/acceptor.h"
#include "server/net/handler.h"
#include "server/net/queue_plan.h"
#include "server/net/session_table.h"
#include "server/net/worker.h"

namespace verbena::net {

// A fabric to listen on.
struct Fabric {
  verbs::VerbsApi* api = nullptr;
  // False: the server does without it where the machine has no device for the address, or none that
  // this process may use.
  bool required = true;
};

struct NetworkOptions {
  NetAddress listen;
  std::vector<Fabric> fabrics;
  QueueOptions queues;
  verbs::ConnectOptions connect;
  int64_t poll_ns = 0;
  // Seconds without a message after which a connection is sent a probe.
  uint32_t silence_seconds = 10;
  SessionLimits sessions;
};

class Network {
 public:
  // Binds and makes all queues; nobody can connect yet. Errors: AlreadyExists (port in use),
  // NotFound (no device, with the reasons of each fabric), PermissionDenied (on a device's files),
  // InvalidArgument (flags that the device does not allow), ResourceExhausted (memory).
  // `slice.memory` must outlive the network. `held`: TryBind's, or none.
  static absl::StatusOr<std::unique_ptr<Network>> Create(const NetworkOptions& options,
                                                         const Slice& slice,
                                                         std::vector<HeldDevices> held = {});
  // Whether Create would find its port free and its devices: the same errors, before anything large
  // is set up. The devices by fabric, for Create: it fails if a fabric has lost all of them.
  static absl::StatusOr<std::vector<HeldDevices>> TryBind(const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Starts the threads and listens. `handler` must outlive the network.
  absl::Status Start(RequestHandler& handler);

  // Refuses new clients, answers what has arrived, disconnects everybody and ends the threads.
  // After `limit` connections are cut off. True if all ended by themselves. Idempotent; not
  // thread-safe.
  bool Stop(absl::Duration limit);

  // With the port that was chosen.
  const NetAddress& address() const { return options_.listen; }
  // Fabrics that were left out, and why.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // Good from Start on; thread-safe.
  std::vector<AdapterInfo> adapters() const;
  // Addresses that were listened on until their device was removed.
  std::vector<std::string> missing() const;
  const std::vector<std::unique_ptr<Acceptor>>& acceptors() const { return acceptors_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  uint32_t connections() const { return admission_.count(); }
  uint32_t max_connections() const { return admission_.limit(); }
  SessionCounts sessions() const { return sessions_.Counts(); }

 private:
  Network(const NetworkOptions& options, const Slice& slice)
      : options_(options), slice_(slice), sessions_(options.sessions) {}

  NetworkOptions options_;
  Slice slice_;
  std::vector<std::string> left_out_;
  Admission admission_;
  mutable SessionTable sessions_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::vector<std::unique_ptr<Worker>> workers_;
  bool started_ = false;
};

}  // namespace verbena::net
