#include "client/src/registrations.h"

#include <cerrno>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/errors.h"

namespace verbena::client {

absl::Status Registrations::Make(const Endpoint& endpoint, Registration& registration) {
  const std::span<std::byte> memory = registration.memory;
  VERBENA_RETURN_IF_ERROR(CheckRegistration(endpoint.capabilities(), endpoint.device(),
                                            memory.size(), "the buffer",
                                            "register it in several pieces"));
  absl::StatusOr<verbs::MemoryRegion> region = verbs::MemoryRegion::Register(
      endpoint.pd(), memory.data(), memory.size(), endpoint.sink_access());
  registration.failure = absl::OkStatus();
  if (!region.ok()) {
    const std::string text = absl::StrCat(
        "a buffer of ", memory.size(), " bytes cannot be registered: ", region.status().message());
    if (verbs::ErrnoOf(region.status()) == EFAULT) {
      registration.failure = absl::FailedPreconditionError(text);
    }
    return absl::ResourceExhaustedError(text);
  }
  registration.region = *std::move(region);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Registration>> Registrations::Add(const Endpoint& endpoint,
                                                                 std::span<std::byte> memory) {
  if (memory.empty()) return absl::InvalidArgumentError("a buffer of 0 bytes cannot be registered");
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  if (begin == 0 || memory.size() > UINTPTR_MAX - begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("a buffer of ", memory.size(), " bytes at address 0x", absl::Hex(begin),
                     begin == 0 ? ", which is null, cannot be registered"
                                : ", beyond the last one, cannot be registered"));
  }
  const auto next = by_begin_.lower_bound(memory.data() + memory.size());
  if (next != by_begin_.begin()) {
    const std::span<std::byte> other = std::prev(next)->second->memory;
    if (other.data() + other.size() > memory.data()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the buffer of ", memory.size(), " bytes shares memory with a buffer of ",
                       other.size(), " bytes that is registered already"));
    }
  }
  auto registration = std::make_shared<Registration>();
  registration->memory = memory;
  VERBENA_RETURN_IF_ERROR(Make(endpoint, *registration));
  by_begin_.emplace(memory.data(), registration);
  return registration;
}

void Registrations::Drop(std::shared_ptr<Registration> registration) {
  registration->dropped = true;
  Done(std::move(registration));
}

// Operations have copies of the pointer; the map's own and this one are no use.
void Registrations::Done(std::shared_ptr<Registration> registration) {
  // What is abandoned stays in the map, which is never destroyed then.
  if (registration->dropped && registration.use_count() <= 2 && !abandoned_) {
    by_begin_.erase(registration->memory.data());
  }
}

std::shared_ptr<Registration> Registrations::Find(std::span<const std::byte> bytes) const {
  const auto next = by_begin_.upper_bound(bytes.data());
  if (next == by_begin_.begin()) return nullptr;
  const std::shared_ptr<Registration>& found = std::prev(next)->second;
  if (found->dropped) return nullptr;
  const auto begin = static_cast<size_t>(bytes.data() - found->memory.data());
  if (begin > found->memory.size() || bytes.size() > found->memory.size() - begin) return nullptr;
  return found;
}

void Registrations::Unregister() {
  for (auto& [begin, registration] : by_begin_) registration->region = {};
}

absl::Status Registrations::Register(const Endpoint& endpoint) {
  for (auto& [begin, registration] : by_begin_) {
    const absl::Status made = Make(endpoint, *registration);
    if (registration->failure.ok()) VERBENA_RETURN_IF_ERROR(made);
  }
  return absl::OkStatus();
}

}  // namespace verbena::client
