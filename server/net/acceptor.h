// The connection manager's side of one fabric: listens, admits clients, and makes and destroys the
// objects of their connections. One thread.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/net_address.h"
#include "common/base/unique_fd.h"
#include "common/verbs/cm.h"
#include "common/wire/handshake.h"
#include "server/net/adapter.h"
#include "server/net/connection.h"
#include "server/net/counters.h"
#include "server/net/log_limiter.h"
#include "server/net/mailbox.h"
#include "server/net/worker.h"

namespace verbena::net {

// How many connections there are and may be, over all fabrics. Thread-safe.
class Admission {
 public:
  void set_limit(uint32_t limit) { limit_ = limit; }
  uint32_t limit() const { return limit_; }
  uint32_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  bool TryEnter() {
    const std::lock_guard lock(mutex_);
    if (count_ >= limit_) return false;
    ++count_;
    return true;
  }
  void Leave() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) empty_.notify_all();
  }
  // Whether there are none before the time is over.
  bool WaitEmpty(absl::Duration limit);

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  uint32_t count_ = 0;
  uint32_t limit_ = 0;  // set before threads exist
};

class Acceptor {
 public:
  static constexpr size_t kRejectReasons = 9;  // by wire::RejectReason; 0 is not used

  struct Counters {
    Counter accepted;
    std::array<Counter, kRejectReasons> rejected;
  };

  // Binds to `address` (for the verbs fabric and a wildcard: to each of the machine's addresses
  // that has a device) and sets up the devices found. A port of 0 is replaced by a free one.
  // AlreadyExists: the port is in use; NotFound: no device for the address.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(verbs::VerbsApi& api, NetAddress* address,
                                                        const QueueOptions& options,
                                                        const Slice& slice);
  // Whether Bind would find the port free and a device, without setting anything up: the same
  // errors, sooner.
  static absl::Status TryBind(verbs::VerbsApi& api, const NetAddress& address);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Listens and starts the thread. Workers (by index) and admission must outlive the acceptor's
  // thread.
  absl::Status Start(std::vector<Worker*> workers, Admission* admission);
  // From now on clients are refused with kDraining. Thread-safe.
  void Drain() { mailbox_.Post({AcceptorMail::Kind::kDrain}); }
  // Ends the thread. Idempotent.
  void Stop();

  const std::vector<std::unique_ptr<Adapter>>& adapters() const { return adapters_; }
  const Counters& counters() const { return counters_; }

 private:
  Acceptor() = default;
  static absl::StatusOr<std::unique_ptr<Acceptor>> BindAll(verbs::VerbsApi& api,
                                                           NetAddress* address);
  absl::Status BindOne(const NetAddress& address);
  absl::StatusOr<Adapter*> AdapterFor(const verbs::CmId& id, const QueueOptions& options,
                                      const Slice& slice);
  Adapter* FindAdapter(const verbs::CmId& id);

  void Run();
  void TakeMail();
  void TakeCmEvents();
  void TakeAsyncEvents(Adapter& adapter);
  void OnAsyncEvent(Adapter& adapter, const verbs::AsyncEvent& event);
  void RearmAlarms();

  void OnConnectRequest(verbs::CmEvent event);
  void Admit(verbs::CmId id, const wire::ConnectData& hello, const rdma_conn_param& offered);
  void Accept(Connection& connection);
  absl::StatusOr<std::unique_ptr<Connection>> MakeConnection(verbs::CmId id, Adapter& adapter,
                                                             QueueSet& queues,
                                                             const wire::ConnectData& hello);
  QueueSet* ChooseQueues(Adapter& adapter);
  void Reject(verbs::CmId& id, wire::RejectReason reason, const std::string& text);
  void Disconnect(Connection& connection);
  void Destroy(Connection* connection);

  verbs::VerbsApi* api_ = nullptr;
  uint16_t layout_version_ = 0;
  // Declared in the order of their dependencies: destroyed from the last to the first.
  verbs::CmChannel channel_;
  std::vector<verbs::CmId> listeners_;
  std::vector<verbs::CmId> anchors_;  // bound, for their device only
  std::vector<std::unique_ptr<Adapter>> adapters_;
  absl::flat_hash_map<Connection*, std::unique_ptr<Connection>> connections_;

  std::vector<Worker*> workers_;
  Admission* admission_ = nullptr;
  Mailbox<AcceptorMail> mailbox_;
  UniqueFd epoll_;
  std::thread thread_;
  bool stop_ = false;
  bool draining_ = false;
  uint64_t next_id_ = 1;
  int64_t rearm_at_ = 0;  // CLOCK_MONOTONIC, ns; 0: all alarms are armed
  LogLimiter log_;
  Counters counters_;
};

}  // namespace verbena::net
