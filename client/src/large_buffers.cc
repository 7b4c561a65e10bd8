#include "client/src/large_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/macros.h"

namespace verbena::client {
namespace {

// Powers of two up to 4 MiB, then multiples of that: rounding is to make buffers fit other values,
// not to double what a value of 1 GiB takes.
uint64_t RoundUp(uint64_t bytes) {
  constexpr uint64_t kStep = uint64_t{4} << 20;
  if (bytes > kStep) return (bytes + kStep - 1) / kStep * kStep;
  return std::bit_ceil(std::max(bytes, LargeBuffers::kSmallest));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LargeBuffers::Buffer>> LargeBuffers::Make(uint64_t bytes) {
  auto buffer = std::make_unique<Buffer>();
  VERBENA_ASSIGN_OR_RETURN(buffer->memory,
                           SharedMemory::Create("verbena-client-large", bytes, false));
  VERBENA_ASSIGN_OR_RETURN(buffer->region, verbs::MemoryRegion::Register(
                                               endpoint_->pd(), buffer->memory.data(),
                                               buffer->memory.size(), endpoint_->sink_access()));
  return buffer;
}

absl::StatusOr<LargeBuffers::Buffer*> LargeBuffers::Acquire(uint64_t bytes) {
  VERBENA_RETURN_IF_ERROR(CheckRegistration(endpoint_->capabilities(), endpoint_->device(), bytes,
                                            "the value", "split it, or use another device"));
  // The rounding must not make too large what is not.
  const uint64_t most = endpoint_->capabilities().limits().max_mr_size;
  const uint64_t rounded = RoundUp(bytes);
  bytes = most == 0 ? rounded : std::max(bytes, std::min(rounded, most));
  // The smallest idle one that is large enough, unless it would waste most of itself.
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    const uint64_t size = (*it)->memory.size();
    if (size < bytes || size > 4 * bytes) continue;
    if (best == idle_.end() || size < (*best)->memory.size()) best = it;
  }
  std::unique_ptr<Buffer> buffer;
  if (best != idle_.end()) {
    buffer = std::move(*best);
    idle_.erase(best);
    idle_bytes_ -= buffer->memory.size();
  } else {
    while (!idle_.empty() && used_bytes_ + idle_bytes_ + bytes > limit_) {
      idle_bytes_ -= idle_.front()->memory.size();
      idle_.erase(idle_.begin());
    }
    if (used_bytes_ != 0 && used_bytes_ + bytes > limit_) return nullptr;
    VERBENA_ASSIGN_OR_RETURN(buffer, Make(bytes));
  }
  used_bytes_ += buffer->memory.size();
  used_.push_back(std::move(buffer));
  return used_.back().get();
}

void LargeBuffers::Release(Buffer* buffer) {
  const auto it = std::find_if(used_.begin(), used_.end(),
                               [buffer](const auto& owned) { return owned.get() == buffer; });
  if (it == used_.end()) return;
  std::unique_ptr<Buffer> owned = std::move(*it);
  used_.erase(it);
  used_bytes_ -= owned->memory.size();
  if (!registered_) return;
  if (used_bytes_ + idle_bytes_ + owned->memory.size() > limit_) return;
  idle_bytes_ += owned->memory.size();
  idle_.push_back(std::move(owned));
}

void LargeBuffers::Clear() {
  idle_.clear();
  idle_bytes_ = 0;
}

void LargeBuffers::Unregister() {
  Clear();
  for (const std::unique_ptr<Buffer>& buffer : used_) buffer->region = {};
  registered_ = false;
}

absl::Status LargeBuffers::Register(const Endpoint& endpoint) {
  for (const std::unique_ptr<Buffer>& buffer : used_) {
    absl::StatusOr<verbs::MemoryRegion> region = verbs::MemoryRegion::Register(
        endpoint.pd(), buffer->memory.data(), buffer->memory.size(), endpoint.sink_access());
    if (!region.ok()) {
      Unregister();
      return region.status();
    }
    buffer->region = *std::move(region);
  }
  endpoint_ = &endpoint;
  registered_ = true;
  return absl::OkStatus();
}

void LargeBuffers::Abandon() {
  for (auto* buffers : {&used_, &idle_}) {
    // NOLINTNEXTLINE(bugprone-unused-return-value): not to be destroyed in this process
    for (std::unique_ptr<Buffer>& buffer : *buffers) static_cast<void>(buffer.release());
    buffers->clear();
  }
}

}  // namespace verbena::client
