// Devices, protection domains and registered memory. See owners.h for ownership and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/verbs/handle.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

// An asynchronous event of a device; acknowledged exactly once, by the destructor at the latest.
// The object that the event speaks of cannot be destroyed before.
class AsyncEvent {
 public:
  AsyncEvent(VerbsApi& api, const ibv_async_event& event) : api_(&api), event_(event) {}
  AsyncEvent(AsyncEvent&& other) noexcept
      : api_(std::exchange(other.api_, nullptr)), event_(other.event_) {}
  AsyncEvent& operator=(AsyncEvent&& other) noexcept;
  ~AsyncEvent() { Ack(); }

  ibv_event_type type() const { return event_.event_type; }
  // The object (cq, qp, srq, port_num) by type; valid until Ack.
  const ibv_async_event& raw() const { return event_; }
  void Ack() {
    if (VerbsApi* api = std::exchange(api_, nullptr)) api->AckAsyncEvent(&event_);
  }

 private:
  VerbsApi* api_;
  ibv_async_event event_;
};

// An opened device that somebody else owns: a Device, or the connection manager, which opens
// contexts of its own for its ids and closes them when it likes (after the last id). A value type.
class DeviceView {
 public:
  DeviceView() = default;
  DeviceView(VerbsApi& api, ibv_context* context) : api_(&api), context_(context) {}

  bool valid() const { return context_ != nullptr; }
  VerbsApi& api() const { return *api_; }
  ibv_context* context() const { return context_; }
  // "mlx5_0", "rxe0", ...
  std::string name() const;
  ibv_transport_type transport() const;

  absl::StatusOr<ibv_device_attr> Query() const;
  absl::StatusOr<ibv_port_attr> QueryPort(uint8_t port) const;
  absl::StatusOr<ibv_gid> QueryGid(uint8_t port, int index) const;

  // Interrupts among which completion queues can be spread, at least 1.
  int completion_vectors() const;

  // Readable when an asynchronous event waits. One thread per device context reads them.
  int async_fd() const;
  // The next asynchronous event, or nullopt if none waits. async_fd() must have been made
  // non-blocking (poll_fd.h).
  absl::StatusOr<std::optional<AsyncEvent>> TryGetAsyncEvent() const;

 private:
  VerbsApi* api_ = nullptr;
  ibv_context* context_ = nullptr;
};

// For a device that the kernel wants to remove, once nothing of it is used any more but CM ids:
// closes the context's files, for which some drivers wait. The connection manager's library does
// not do that by itself: it keeps contexts until it happens to look for devices again, and for ever
// if there is none. The descriptors stay taken (by /dev/null), so that it may close them then.
void CloseFilesOfRemoved(const DeviceView& device);

// "InfiniBand", "Ethernet" or "unspecified".
const char* LinkLayerName(uint8_t link_layer);
// Bytes of a path MTU; 0 for an unknown code.
uint32_t MtuBytes(ibv_mtu mtu);

// Owner of an opened device.
class Device {
 public:
  // The names of all devices of the table, in its order. An empty list where there are none.
  static absl::StatusOr<std::vector<std::string>> List(VerbsApi& api);
  // Opens the device called `name`; the first one if `name` is empty. NotFound lists what is there.
  static absl::StatusOr<Device> Open(VerbsApi& api, std::string_view name = {});

  Device() = default;

  bool valid() const { return bool{handle_}; }
  ibv_context* get() const { return handle_.get(); }
  DeviceView view() const { return {*handle_.api(), handle_.get()}; }

 private:
  explicit Device(internal::Handle<ibv_context> handle) : handle_(std::move(handle)) {}
  internal::Handle<ibv_context> handle_;
};

// Owner of a protection domain. It outlives every memory region, SRQ and QP made in it.
class ProtectionDomain {
 public:
  static absl::StatusOr<ProtectionDomain> Create(const DeviceView& device);

  ProtectionDomain() = default;

  bool valid() const { return bool{handle_}; }
  ibv_pd* get() const { return handle_.get(); }
  VerbsApi& api() const { return *handle_.api(); }

 private:
  explicit ProtectionDomain(internal::Handle<ibv_pd> handle) : handle_(std::move(handle)) {}
  internal::Handle<ibv_pd> handle_;
};

// Owner of a registration (not of the memory, which must stay mapped as long).
class MemoryRegion {
 public:
  // `access`: IBV_ACCESS_* flags. Page-aligned memory is best: after fork the child loses whole
  // pages.
  static absl::StatusOr<MemoryRegion> Register(const ProtectionDomain& pd, void* address,
                                               size_t length, int access);

  MemoryRegion() = default;

  bool valid() const { return bool{handle_}; }
  ibv_mr* get() const { return handle_.get(); }
  uint32_t lkey() const { return handle_.get()->lkey; }
  uint32_t rkey() const { return handle_.get()->rkey; }
  uint8_t* data() const { return static_cast<uint8_t*>(handle_.get()->addr); }
  size_t size() const { return handle_.get()->length; }

 private:
  explicit MemoryRegion(internal::Handle<ibv_mr> handle) : handle_(std::move(handle)) {}
  internal::Handle<ibv_mr> handle_;
};

}  // namespace verbena::verbs
