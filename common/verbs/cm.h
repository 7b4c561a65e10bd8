// The connection manager: channels, ids and events. See owners.h for ownership and threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/verbs/device.h"
#include "common/verbs/handle.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

class CmEvent;

// Owner of an event channel. It outlives the ids on it. Its descriptor is non-blocking.
class CmChannel {
 public:
  static absl::StatusOr<CmChannel> Create(VerbsApi& api);

  CmChannel() = default;

  bool valid() const { return bool{handle_}; }
  rdma_event_channel* get() const { return handle_.get(); }
  VerbsApi& api() const { return *handle_.api(); }
  // For poll and epoll: readable when an event waits.
  int fd() const { return handle_.get()->fd; }

  // The next event, or nullopt if none waits. On the side that connects, the queue pair is moved to
  // RTS inside this call, so it has to be called until the connection stands.
  absl::StatusOr<std::optional<CmEvent>> TryGetEvent();
  // Likewise, but waits up to `timeout_ms` (-1: for ever); nullopt when the time has passed.
  absl::StatusOr<std::optional<CmEvent>> WaitEvent(int timeout_ms);

 private:
  explicit CmChannel(internal::Handle<rdma_event_channel> handle) : handle_(std::move(handle)) {}
  internal::Handle<rdma_event_channel> handle_;
};

// Owner of a CM id: a listener, or one end of a connection. Destroying it waits until every event
// about it is acknowledged, so no CmEvent about it may be alive in the destroying thread.
class CmId {
 public:
  // A reliable-connected id on `channel`. `context` can be asked back from its events.
  static absl::StatusOr<CmId> Create(CmChannel& channel, void* context = nullptr);

  CmId() = default;

  bool valid() const { return bool{handle_}; }
  rdma_cm_id* get() const { return handle_.get(); }
  VerbsApi& api() const { return *handle_.api(); }

  void* context() const { return handle_.get()->context; }
  void set_context(void* context) { handle_.get()->context = context; }

  // The device that the connection manager chose; not valid() before that (listeners on a wildcard
  // address never have one). Lives as long as the id at least.
  DeviceView device() const { return {*handle_.api(), handle_.get()->verbs}; }
  uint8_t port() const { return handle_.get()->port_num; }
  NetAddress local_address() const;
  NetAddress peer_address() const;

  // Passive side. AlreadyExists: the port is in use; InvalidArgument: not an address of this
  // machine or not on a device of the fabric.
  absl::Status Bind(const NetAddress& address);
  absl::Status Listen(int backlog);

  // Active side, each answered by an event.
  absl::Status ResolveAddress(const NetAddress& target, int timeout_ms);
  absl::Status ResolveRoute(int timeout_ms);
  absl::Status Connect(const rdma_conn_param& param);

  // Answers to a connection request.
  absl::Status Accept(const rdma_conn_param& param);
  absl::Status Reject(std::span<const uint8_t> private_data);

  absl::Status Disconnect();

  // The time that the peer has to acknowledge a packet: 4.096 us * 2^code, 0 to 31 (14: 67 ms).
  // Before connecting. Unimplemented where the device does not have it.
  absl::Status SetAckTimeout(uint8_t code);
  // Type of service of the packets: DSCP in the upper six bits, 0 to 255. Before resolving an
  // address or binding.
  absl::Status SetTypeOfService(uint8_t tos);
  // Lets several listeners take one address while old connections linger. Before binding.
  absl::Status SetReuseAddress(bool reuse);
  // An IPv6 wildcard listener takes no IPv4 connections. Before binding.
  absl::Status SetIpv6Only(bool only);
  // Moves the id with its future events to another channel. Waits for unacknowledged events.
  absl::Status Migrate(CmChannel& channel);

 private:
  friend class CmEvent;
  explicit CmId(internal::Handle<rdma_cm_id> handle) : handle_(std::move(handle)) {}
  absl::Status SetOption(int level, int name, void* value, size_t length, const char* what);

  internal::Handle<rdma_cm_id> handle_;
};

// An event, acknowledged exactly once: by Ack() or by the destructor. A connection request brings a
// new id; an event that still owns it destroys it (after the acknowledgement), which refuses the
// connection.
class CmEvent {
 public:
  CmEvent(VerbsApi& api, rdma_cm_event* event);

  CmEvent(CmEvent&&) noexcept = default;
  CmEvent& operator=(CmEvent&& other) noexcept;
  ~CmEvent() { Finish(); }

  rdma_cm_event_type type() const { return event_.get()->event; }
  // 0, a negative errno, or for rejections a reason (errors.h).
  int status() const { return event_.get()->status; }
  // The id that the event is about (of a connection request: the new one).
  rdma_cm_id* id() const { return event_.get()->id; }
  rdma_cm_id* listener() const { return event_.get()->listen_id; }
  // Connection parameters from this side's view: responder_resources and initiator_depth are
  // already what this side may use. Only for connection events.
  const rdma_conn_param& param() const { return event_.get()->param.conn; }
  // Freed by the acknowledgement; may have zeros behind what was sent.
  std::span<const uint8_t> private_data() const;

  // The new id of a connection request, now the caller's. Destroy it only after this event is
  // acknowledged. Empty for other events or when taken before.
  CmId TakeRequest();

  // The accessors above must not be used after this.
  void Ack() { event_.Reset(); }

 private:
  void Finish() noexcept;

  // Declared in this order: the event is acknowledged before the id is destroyed.
  internal::Handle<rdma_cm_id> request_;
  internal::Handle<rdma_cm_event> event_;
};

}  // namespace verbena::verbs
