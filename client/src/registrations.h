// Memory of the caller's that a connection has registered: where values may land, and what the
// server may READ values from.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "common/verbs/device.h"

namespace verbena::client {

// One piece of memory. Its region belongs to a device, and so to an endpoint; without one (the
// connection is lost or closed) there is none.
struct Registration {
  std::span<std::byte> memory;
  verbs::MemoryRegion region;
  bool dropped = false;  // by its Buffer, while operations still used it
  absl::Status failure;  // why it could not be registered with the present connection
};

class Registrations {
 public:
  // InvalidArgument for no memory at all, or memory that shares bytes with memory that is
  // registered; ResourceExhausted if the device cannot register it.
  absl::StatusOr<std::shared_ptr<Registration>> Add(const Endpoint& endpoint,
                                                    std::span<std::byte> memory);
  // Its Buffer is gone: it is unregistered, when no operation uses it any more.
  void Drop(std::shared_ptr<Registration> registration);
  // The one that has all of `bytes`, for an operation; null if there is none.
  std::shared_ptr<Registration> Find(std::span<const std::byte> bytes) const;
  // An operation that has used it is over.
  void Done(std::shared_ptr<Registration> registration);

  bool empty() const { return by_begin_.empty(); }

  // In the child after a fork, where the regions are the parent's: none is given back from now on.
  void Abandon() { abandoned_ = true; }

  // Gives all regions back to the device.
  void Unregister();
  // Registers all memory with another endpoint's device. Memory that is not mapped any more is no
  // error of this, but has its own (Registration::failure): no other attempt would change it.
  absl::Status Register(const Endpoint& endpoint);

 private:
  static absl::Status Make(const Endpoint& endpoint, Registration& registration);

  std::map<const std::byte*, std::shared_ptr<Registration>> by_begin_;
  bool abandoned_ = false;
};

}  // namespace verbena::client
