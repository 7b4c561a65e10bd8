#include "common/verbs/completion.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"
#include "common/verbs/poll_fd.h"

namespace verbena::verbs {

absl::StatusOr<CompletionChannel> CompletionChannel::Create(const DeviceView& device) {
  VERBENA_ASSIGN_OR_RETURN(
      ibv_comp_channel* const channel,
      FromPointer(device.api().CreateCompChannel(device.context()), "ibv_create_comp_channel",
                  [&] { return "device " + device.name(); }));
  CompletionChannel owner(internal::Handle<ibv_comp_channel>(device.api(), channel));
  VERBENA_RETURN_IF_ERROR(SetNonBlocking(channel->fd));
  return owner;
}

absl::StatusOr<std::optional<CqEvent>> CompletionChannel::TryGetEvent() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  const int returned = handle_.api()->GetCqEvent(handle_.get(), &cq, &context);
  const int error = ReturnToErrno(returned, errno);
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return std::nullopt;
  if (error != 0) return ErrnoStatus(error, "ibv_get_cq_event", "");
  auto* const state = static_cast<CompletionQueue::State*>(context);
  state->CountEvent(cq);
  return CqEvent{cq, state->context};
}

absl::StatusOr<std::optional<CqEvent>> CompletionChannel::WaitEvent(int timeout_ms) {
  return WaitForEvent(fd(), timeout_ms, [this] { return TryGetEvent(); });
}

void CompletionQueue::State::CountEvent(ibv_cq* cq) {
  if (++unacked >= kAckBatch) AckAll(cq);
}

void CompletionQueue::State::AckAll(ibv_cq* cq) {
  if (const unsigned count = std::exchange(unacked, 0); count > 0) api->AckCqEvents(cq, count);
}

absl::StatusOr<CompletionQueue> CompletionQueue::Create(const DeviceView& device, int entries,
                                                        const CompletionChannel* channel,
                                                        void* context, int vector) {
  auto state = std::make_unique<State>(State{&device.api(), context});
  VERBENA_ASSIGN_OR_RETURN(
      ibv_cq* const cq,
      FromPointer(device.api().CreateCq(device.context(), entries, state.get(),
                                        channel == nullptr ? nullptr : channel->get(), vector),
                  "ibv_create_cq", [&] {
                    return absl::StrCat(entries, " entries, vector ", vector, ", device ",
                                        device.name());
                  }));
  return CompletionQueue(internal::Handle<ibv_cq>(device.api(), cq), std::move(state));
}

CompletionQueue& CompletionQueue::operator=(CompletionQueue&& other) noexcept {
  if (this != &other) {
    Reset();
    state_ = std::move(other.state_);
    handle_ = std::move(other.handle_);
  }
  return *this;
}

void CompletionQueue::Reset() noexcept {
  // Destroying waits for the acknowledgement of every event that was taken.
  if (handle_) state_->AckAll(handle_.get());
  handle_.Reset();
  state_.reset();
}

absl::Status CompletionQueue::Arm(bool solicited_only) {
  return FromReturn(RequestNotify(handle_.get(), solicited_only), "ibv_req_notify_cq");
}

}  // namespace verbena::verbs
