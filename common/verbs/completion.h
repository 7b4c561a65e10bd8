// Completion channels and queues. See owners.h for ownership and threads.
//
// How to wait without losing an event: Arm() every queue of the channel, poll once more until
// empty, then wait for the channel's fd; on wake-up take every event with TryGetEvent() until there
// is none, Arm() the queues that they name, poll them until empty. An event without completions is
// possible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/verbs/device.h"
#include "common/verbs/handle.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

// What an event says: this queue has (or had) completions.
struct CqEvent {
  ibv_cq* cq;
  void* context;  // as given to CompletionQueue::Create
};

// Owner of a completion channel. It outlives the queues made on it. Its descriptor is non-blocking.
class CompletionChannel {
 public:
  static absl::StatusOr<CompletionChannel> Create(const DeviceView& device);

  CompletionChannel() = default;

  bool valid() const { return bool{handle_}; }
  ibv_comp_channel* get() const { return handle_.get(); }
  // For poll and epoll: readable when an event waits.
  int fd() const { return handle_.get()->fd; }

  // The next event, or nullopt if none waits. Only queues made by CompletionQueue::Create may be on
  // the channel: the event is counted in its queue, which acknowledges it. Called by the thread
  // that uses those queues.
  absl::StatusOr<std::optional<CqEvent>> TryGetEvent();
  // Likewise, but waits up to `timeout_ms` (-1: for ever); nullopt when the time has passed.
  absl::StatusOr<std::optional<CqEvent>> WaitEvent(int timeout_ms);

 private:
  explicit CompletionChannel(internal::Handle<ibv_comp_channel> handle)
      : handle_(std::move(handle)) {}
  internal::Handle<ibv_comp_channel> handle_;
};

// Owner of a completion queue. It outlives the queue pairs that use it.
class CompletionQueue {
 public:
  // Room for at least `entries` completions, on `channel` (nullptr: no events). `context` comes
  // back in CqEvent. `vector`: the interrupt, below DeviceView::completion_vectors().
  static absl::StatusOr<CompletionQueue> Create(const DeviceView& device, int entries,
                                                const CompletionChannel* channel = nullptr,
                                                void* context = nullptr, int vector = 0);

  CompletionQueue() = default;
  CompletionQueue(CompletionQueue&&) noexcept = default;
  CompletionQueue& operator=(CompletionQueue&& other) noexcept;
  // Acknowledges all events that were taken, then destroys the queue.
  ~CompletionQueue() { Reset(); }

  bool valid() const { return bool{handle_}; }
  ibv_cq* get() const { return handle_.get(); }
  // Entries granted, at least those asked for.
  int capacity() const { return handle_.get()->cqe; }

  // Asks for one event when a completion is added after this call (only for solicited ones or
  // errors if `solicited_only`).
  absl::Status Arm(bool solicited_only = false);

  // Events taken and not yet acknowledged.
  unsigned unacked_events() const { return state_ == nullptr ? 0 : state_->unacked; }

 private:
  friend class CompletionChannel;

  // At a fixed place, since the device keeps its address as the queue's context. Acknowledging
  // takes a lock, so it is done in batches.
  struct State {
    static constexpr unsigned kAckBatch = 64;
    VerbsApi* api;
    void* context;
    unsigned unacked = 0;

    void CountEvent(ibv_cq* cq);
    void AckAll(ibv_cq* cq);
  };

  CompletionQueue(internal::Handle<ibv_cq> handle, std::unique_ptr<State> state)
      : state_(std::move(state)), handle_(std::move(handle)) {}
  void Reset() noexcept;

  std::unique_ptr<State> state_;
  internal::Handle<ibv_cq> handle_;
};

}  // namespace verbena::verbs
