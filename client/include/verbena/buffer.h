/// \file
/// Memory of the application's that a connection reads into and writes from without copies.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "verbena/export.h"

namespace verbena {

namespace client {
struct Registration;
class Registrations;
}  // namespace client

/// Stands for memory that is registered with a connection: see Connection::RegisterBuffer.
/// Move-only; the memory is unregistered when this is destroyed, or when the connection is,
/// whichever comes first. Belongs to the connection's thread.
///
/// The memory itself is the caller's. It must stay where it is for as long as this exists, and for
/// as long as an operation on it is in flight.
class VERBENA_EXPORT Buffer {
 public:
  /// Of no memory.
  Buffer() = default;
  /// `other` stands for no memory then.
  Buffer(Buffer&& other) noexcept = default;
  /// Resets this one before.
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Reset();
      registration_ = std::move(other.registration_);
      registrations_ = std::move(other.registrations_);
    }
    return *this;
  }
  ~Buffer() { Reset(); }

  /// The memory; empty if this stands for none.
  std::span<std::byte> bytes() const;
  /// Unregisters it, once no operation uses it any more.
  void Reset();

 private:
  friend class Connection;
  Buffer(std::shared_ptr<client::Registration> registration,
         std::weak_ptr<client::Registrations> registrations)
      : registration_(std::move(registration)), registrations_(std::move(registrations)) {}

  std::shared_ptr<client::Registration> registration_;
  std::weak_ptr<client::Registrations> registrations_;
};

}  // namespace verbena
