// The connection manager's side of one fabric: listens, admits clients, and makes and destroys the
// objects of their connections. One thread.
//
// A device may go while the server serves. Its adapter then leaves: its listeners end at once, its
// connections as if their clients had left, each worker gives up its queues, and only then what is
// registered is freed and the device's files are closed, for which the driver waits. Addresses that
// have lost their device are looked for once a second, and listened on again.
//
// A device that fails, or one of whose shared queues does, goes the same way, but its files stay
// open: it may not be removed at all, and then is set up anew, or be removed later, and then they
// are closed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/base/unique_fd.h"
#include "common/verbs/cm.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/port_info.h"
#include "common/wire/handshake.h"
#include "server/net/adapter.h"
#include "server/net/admission.h"
#include "server/net/connection.h"
#include "server/net/counters.h"
#include "server/net/listening.h"
#include "server/net/log_limiter.h"
#include "server/net/mailbox.h"
#include "server/net/session_table.h"
#include "server/net/worker.h"

namespace verbena::net {

// An address that a server listens on, for people.
struct ListenerInfo {
  std::string address;  // "192.168.77.1:7400"
  verbs::PortInfo port;
  verbs::GidInfo gid;
};

// An adapter, for people.
struct AdapterInfo {
  std::string fabric;     // "verbs" or "soft"
  std::string device;     // "mlx5_0"
  std::string transport;  // "InfiniBand" (RoCE too) or "iWARP"
  std::vector<ListenerInfo> listeners;
  QueuePlan plan;
  uint32_t connections = 0;
  uint64_t srq_limit_events = 0;
  uint64_t async_events = 0;
};

class Acceptor {
 public:
  static constexpr size_t kRejectReasons = 9;  // by wire::RejectReason; 0 is not used

  struct Counters {
    Counter accepted;
    Counter devices_removed;
    std::array<Counter, kRejectReasons> rejected;
  };

  // Binds to `address` (for the verbs fabric and a wildcard: to each of the machine's addresses
  // that has a device) and sets up the devices found. A port of 0 is replaced by a free one.
  // Devices of `held` that have gone meanwhile, or that nothing can be set up on, are waited for
  // if others serve. `slice.memory` must outlive the acceptor. AlreadyExists: the port is in use;
  // NotFound, PermissionDenied: no device for the address that could be used.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(verbs::VerbsApi& api, NetAddress* address,
                                                        const QueueOptions& options,
                                                        const verbs::ConnectOptions& connect,
                                                        const Slice& slice, HeldDevices held = {});
  // Whether Bind would find the port free and a device, without setting anything up: the same
  // errors, sooner. The devices are for Bind, which hears of what becomes of them until then.
  static absl::StatusOr<HeldDevices> TryBind(verbs::VerbsApi& api, const NetAddress& address);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Listens and starts the thread. Workers (by index), admission and sessions must outlive the
  // acceptor's thread.
  absl::Status Start(std::vector<Worker*> workers, Admission* admission, SessionTable* sessions);
  // From now on clients are refused with kDraining. Thread-safe.
  void Drain() { mailbox_.Post({AcceptorMail::Kind::kDrain}); }
  // Ends the thread. Idempotent.
  void Stop();

  // Until Start.
  const std::vector<std::unique_ptr<Adapter>>& adapters() const { return adapters_; }
  // The adapters that serve now. Thread-safe.
  std::vector<AdapterInfo> Describe() const;
  // Addresses whose device has gone. Thread-safe.
  std::vector<std::string> Missing() const;
  const Counters& counters() const { return counters_; }

 private:
  struct Listener {
    verbs::CmId id;
    NetAddress address;
    Adapter* adapter = nullptr;
    // Gives the device where a listener on a wildcard address has none (software device).
    verbs::CmId anchor;
    ListenerInfo info;  // guarded by mutex_
  };

  Acceptor(verbs::VerbsApi& api, const QueueOptions& options, const verbs::ConnectOptions& connect,
           const Slice& slice)
      : api_(&api), options_(options), connect_(connect), slice_(slice) {}

  // acceptor.cc: set-up and the loop.
  absl::Status BindAll(NetAddress* address);
  absl::Status SetUp(Listener& listener);
  absl::Status TakeOver(HeldDevices& held, uint16_t port);
  absl::Status DescribeListener(const verbs::DeviceView& device, Listener& listener) const;
  absl::StatusOr<Adapter*> AdapterFor(const verbs::CmId& id);
  Adapter* FindAdapter(const verbs::CmId& id);
  int TimeoutMillis() const;
  void Run();
  void RunTimers();
  void TakeMail();

  // acceptor_events.cc: what devices and the connection manager tell; devices that go and come.
  void TakeCmEvents();
  void TakeAsyncEvents(Adapter& adapter);
  void OnAsyncEvent(Adapter& adapter, const verbs::AsyncEvent& event);
  void OnQueuePairEvent(const verbs::AsyncEvent& event);
  void OnPortEvent(Adapter& adapter, const verbs::AsyncEvent& event);
  void RearmAlarms();
  void OnAddressChange(rdma_cm_id* id);
  void OnRemoved(ibv_context* context);
  void StartRemoval(ibv_context* context, const std::string& why);
  void ContinueRemoval(Adapter& adapter);
  void FinishRemoval(Adapter& adapter);
  void LookForMissing();
  absl::Status ListenAgain(const NetAddress& address);

  // acceptor_connections.cc: clients that come and go.
  void OnConnectRequest(verbs::CmEvent event);
  void Admit(verbs::CmId id, const wire::ConnectData& hello, const rdma_conn_param& offered);
  void Accept(Connection& connection);
  absl::StatusOr<std::unique_ptr<Connection>> MakeConnection(verbs::CmId id, Adapter& adapter,
                                                             QueueSet& queues,
                                                             const wire::ConnectData& hello);
  QueueSet* ChooseQueues(Adapter& adapter);
  void RefuseFull(verbs::CmId& id, const wire::ConnectData& hello, const std::string& text);
  void Reject(verbs::CmId& id, wire::RejectReason reason, const std::string& text);
  void Disconnect(Connection& connection);
  void Destroy(Connection* connection);

  verbs::VerbsApi* const api_;
  const QueueOptions options_;
  const verbs::ConnectOptions connect_;
  const Slice slice_;
  // Guards adapters_, listeners_ and missing_ against readers; only the acceptor's thread changes
  // them, and it reads them without the lock.
  mutable std::mutex mutex_;
  // Declared in the order of their dependencies: destroyed from the last to the first.
  verbs::CmChannel channel_;
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::vector<NetAddress> missing_;
  // Of devices that are open, but not used (they have failed and been let go, or could not be set
  // up): who hears of it when they are removed.
  std::vector<verbs::CmId> failed_;
  absl::flat_hash_map<Connection*, std::unique_ptr<Connection>> connections_;

  std::vector<Worker*> workers_;
  Admission* admission_ = nullptr;
  SessionTable* sessions_ = nullptr;
  Mailbox<AcceptorMail> mailbox_;
  UniqueFd epoll_;
  std::thread thread_;
  bool stop_ = false;
  bool draining_ = false;
  uint64_t next_id_ = 1;
  int64_t rearm_at_ = 0;  // CLOCK_MONOTONIC, ns; 0: all alarms are armed
  int64_t look_at_ = 0;   // CLOCK_MONOTONIC, ns, for missing_; 0: there are none
  std::string look_failure_;
  LogLimiter log_;
  Counters counters_;
};

}  // namespace verbena::net
