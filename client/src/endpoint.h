// The client's end of one connection: its verbs objects and registered memory, from "ADDR:PORT" to
// a queue pair that may post. What travels over it is other files' business.
//
// Not thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/endpoint_plan.h"
#include "client/src/lookup.h"
#include "client/src/waiter.h"
#include "common/base/net_address.h"
#include "common/base/shared_memory.h"
#include "common/verbs/capabilities.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/data_path.h"
#include "common/verbs/owners.h"
#include "common/verbs/wr_id.h"

namespace verbena::client {

// What a work request is, in its wr_id. For kRead and kReceive the slot is an operation's or a
// buffer's; for kSend slot and generation are the number of the post (see PostNumber). kLook is the
// READ of the server's epoch.
enum class RequestKind : uint8_t { kRead = 1, kSend = 2, kReceive = 3, kLook = 4 };
using WrId = verbs::WrId<RequestKind>;

struct EndpointOptions {
  NetAddress server;
  verbs::ConnectOptions connect;  // depths are set by the endpoint
  uint32_t operations = 64;       // slots of operations
  int64_t deadline = 0;           // of connecting, in MonotonicNanos()
  uint64_t session = 0;           // not 0
  // After this time without an answer a second attempt is made beside the first, after twice as
  // much again a third, and so on, up to 16 times as much: the connection manager itself repeats a
  // lost message only after seconds.
  int64_t patience = 1'000'000'000;  // ns
  // Gives up (Cancelled) soon after it is set. May be null.
  const std::atomic<bool>* cancelled = nullptr;
};

// How long connecting sleeps at most (ns) before it looks whether it is cancelled.
inline constexpr int64_t kCancelInterval = 20'000'000;

// What has become of an attempt to connect.
struct ConnectAnswer {
  enum class Kind : uint8_t {
    kNone,       // nothing has come yet
    kConnected,  // the queue pair may post
    kRefused,    // for good
    kFull,       // the server has all its connections (an earlier attempt may be one of them)
    kAgain,      // this attempt is lost, another may succeed
  };
  Kind kind = Kind::kNone;
  absl::Status status;  // why, of the last three
};

// A device context that an endpoint uses. The connection manager shares one among all ids of a
// process on the device. Thread-safe.
class ContextUse {
 public:
  ContextUse() = default;
  explicit ContextUse(const verbs::DeviceView& device);
  ContextUse(ContextUse&& other) noexcept : device_(std::exchange(other.device_, {})) {}
  ContextUse& operator=(ContextUse&& other) noexcept;
  ~ContextUse() { End(); }

  // True if no other endpoint of the process uses it.
  bool End();

 private:
  verbs::DeviceView device_;
};

class Endpoint {
 public:
  // Messages, each way. An odd number of cache lines, so that the heads of the buffers do not fall
  // into the same sets of a cache. The server may name a smaller limit.
  static constexpr uint32_t kMessageBytes = 197 * 64;

  // Connects, with as many attempts as it takes. Errors as Connection::Connect.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Connect(verbs::VerbsApi& api,
                                                           const EndpointOptions& options);
  // One attempt: makes everything and asks the server for a connection, which may take until
  // options.deadline. To be followed by Answer. `*kind` says what a failure means (kRefused or
  // kAgain).
  static absl::StatusOr<std::unique_ptr<Endpoint>> Begin(verbs::VerbsApi& api,
                                                         const EndpointOptions& options,
                                                         ConnectAnswer::Kind* kind);
  // Destroys an attempt that nobody waits for any more, without waiting for its device.
  static void Drop(std::unique_ptr<Endpoint> endpoint);
  // Looks whether the server has answered; never blocks. Before kConnected only this and cm_fd may
  // be used.
  ConnectAnswer Answer();
  // Readable when there may be an answer.
  int cm_fd() const { return cm_channel_.fd(); }
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  std::string fabric() const { return api_.fabric(); }
  std::string device() const { return device_name_; }
  const std::string& server() const { return server_; }
  const verbs::ProtectionDomain& pd() const { return pd_; }
  // Access flags for memory that READs land in or that the server may READ.
  int sink_access() const { return sink_access_; }
  // Whether one READ may land in two pieces of memory.
  bool scatters_reads() const { return capabilities_->read_scatter_elements() >= 2; }

  const verbs::Capabilities& capabilities() const { return *capabilities_; }

  // Requests that may ever be unanswered at once, and receives that are posted.
  uint32_t max_requests() const { return plan_.requests; }
  uint32_t receives() const { return plan_.receives; }
  // READs that may be posted and not completed.
  uint32_t read_depth() const { return plan_.reads; }
  uint32_t inline_bytes() const { return inline_bytes_; }
  ibv_qp* qp() const { return qp_.get(); }
  ibv_cq* cq() const { return cq_.get(); }

  // Registered memory: a sink for each operation, and one send buffer more than that.
  uint32_t lkey() const { return memory_region_.lkey(); }
  uint32_t send_buffers() const { return send_buffers_; }
  std::span<uint8_t> send_buffer(uint32_t i) const {
    assert(i < send_buffers_);
    return {sends_ + uint64_t{i} * kMessageBytes, kMessageBytes};
  }
  ReadSink* sink(uint32_t i) const { return sinks_ + i; }
  // The message in receive buffer `i`, of which `length` bytes have arrived.
  std::span<const uint8_t> received(uint32_t i, uint32_t length) const {
    return {receives_ + uint64_t{i} * kMessageBytes, length};
  }
  // Gives receive buffer `i` (back) to the device. Returns an errno.
  int PostReceive(uint32_t i);

  // Accounting of the send queue. Its places are parted: as many as READs may be in flight belong
  // to READs, of which each is signalled and has its place until its completion is polled; so who
  // counts the READs in flight needs no other room for them. The others are for SENDs, and the
  // greeting. One of these is free again when its request, or a later one of them, has been
  // signalled and its completion polled; so they are numbered in the order of posting.
  uint32_t send_room() const {
    return plan_.send_depth - plan_.reads - static_cast<uint32_t>(posted_ - retired_);
  }
  uint64_t PostNumber(bool signalled) {
    assert(send_room() > 0);
    ++posted_;
    if (signalled) last_signalled_ = posted_;
    return posted_;
  }
  // Whether the next request must be signalled although nobody waits for its completion.
  bool MustSignal() const { return posted_ + 1 - last_signalled_ >= plan_.send_depth / 4; }
  void Retire(uint64_t number) {
    if (number > retired_) retired_ = number;
  }
  static uint64_t SendId(uint64_t number) {
    return WrId(RequestKind::kSend, {static_cast<uint32_t>(number),
                                     static_cast<uint32_t>(number >> 32) & verbs::kMaxGeneration})
        .bits();
  }
  static uint64_t SendNumber(const WrId& id) {
    return (uint64_t{id.ref.generation} << 32) | id.ref.slot;
  }

  // OK, or what the connection manager reports (the server is gone). One system call.
  absl::Status CheckEvents();
  // Arms the completion queue; after it, poll once more before Sleep.
  absl::Status Arm();
  // Has the waiter watch this endpoint's channels, in place of another one's.
  absl::Status WatchedBy(Waiter& waiter) const;
  // Takes the completion channel's event. Never blocks.
  void TakeCompletionEvent();
  // Sleeps until a completion or an event of the connection manager may be there, `deadline` has
  // passed, or the waiter is woken otherwise. Whether the connection manager has an event.
  bool Sleep(Waiter& waiter, int64_t deadline);
  // Moves the queue pair to ERR and disconnects: nothing is sent or received any more.
  void Break();
  // After Break: gives the queue pair back to the device: from here on no memory is written or read
  // for it, and the completion queue may still be polled. Then all queues, then all the rest, once
  // nothing registered beside it (pd()) is left. Memory and names stay.
  void ReleaseQueuePair();
  void ReleaseQueues();
  void ReleaseDevice();

 private:
  explicit Endpoint(verbs::VerbsApi& api) : api_(api) {}

  // Until the server has been asked. DeadlineExceeded: it took too long, another attempt may help.
  absl::Status Resolve(const EndpointOptions& options);
  absl::Status WaitFor(rdma_cm_event_type type, int64_t deadline, const char* what);
  absl::Status MakePlan(uint32_t operations);
  absl::Status MakeMemory(uint32_t operations);
  absl::Status MakeQueues();
  absl::Status MakeQueuePair(verbs::QueuePairOptions options);
  absl::Status Ask(uint64_t session);
  static absl::Status AskInTime(std::unique_ptr<Endpoint>& endpoint,
                                const EndpointOptions& options);
  // What an event means.
  absl::Status OnEstablished(const verbs::CmEvent& event);
  ConnectAnswer OnRejected(const verbs::CmEvent& event) const;
  absl::Status NobodyListens() const;
  absl::Status WithLimits(const absl::Status& status) const;
  absl::Status WithDevices(const absl::Status& status, const NetAddress& server);

  verbs::VerbsApi& api_;
  std::string server_;
  std::string device_name_;
  verbs::ConnectOptions connect_options_;
  std::optional<verbs::Capabilities> capabilities_;
  EndpointPlan plan_;
  int sink_access_ = 0;
  uint32_t inline_bytes_ = 0;
  uint32_t send_buffers_ = 0;

  uint64_t posted_ = 0;
  uint64_t retired_ = 0;
  uint64_t last_signalled_ = 0;

  uint8_t* receives_ = nullptr;
  uint8_t* sends_ = nullptr;
  ReadSink* sinks_ = nullptr;

  // In an order in which they can be destroyed from the last to the first.
  SharedMemory memory_;
  verbs::CmChannel cm_channel_;
  verbs::CmId cm_id_;
  ContextUse context_use_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion memory_region_;
  verbs::CompletionChannel completion_channel_;
  verbs::CompletionQueue cq_;
  verbs::QueuePair qp_;
  bool connected_ = false;
  bool broken_ = false;
  bool removed_ = false;  // the device is being removed
};

}  // namespace verbena::client
