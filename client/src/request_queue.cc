#include "client/src/request_queue.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena::client {
namespace {

// Bytes that the answer to an operation takes at least, for the server to do it. What is answered
// with as much as there is room for gets a message of its own: what stands ahead of it in a message
// would leave it too little.
uint32_t LeastAnswer(uint8_t code) {
  constexpr size_t kLongestNumber = 20;  // a minus and 19 digits
  switch (static_cast<wire::OpCode>(code)) {
    case wire::OpCode::kGet:
      return wire::ResultSize(sizeof(wire::Location));
    case wire::OpCode::kAdd:
      return wire::ResultSize(kLongestNumber);
    case wire::OpCode::kScan:
    case wire::OpCode::kInfo:
      return Endpoint::kMessageBytes;
    default:
      return wire::ResultSize(0);
  }
}

}  // namespace

RequestQueue::RequestQueue(Endpoint& endpoint, uint32_t capacity)
    : endpoint_(&endpoint), messages_(endpoint.send_buffers()), waiting_(capacity) {
  free_buffers_.reserve(endpoint.send_buffers());
  for (uint32_t i = endpoint.send_buffers(); i > 0; --i) free_buffers_.push_back(i - 1);
}

void RequestQueue::set_max_message(uint32_t bytes) {
  max_message_ = std::min(bytes, Endpoint::kMessageBytes);
}

// There is a buffer for each operation that may be waiting, one for the message whose answers are
// being given out and one for the open message: so there always is one.
void RequestQueue::Open() {
  if (has_buffer_) return;
  assert(!free_buffers_.empty());
  open_ = {};
  open_.buffer = free_buffers_.back();
  free_buffers_.pop_back();
  open_.writer = wire::RequestWriter(endpoint_->send_buffer(open_.buffer).first(max_message_));
  has_buffer_ = true;
}

void RequestQueue::Close() {
  messages_.Push(open_);
  has_buffer_ = false;
  open_ = {};
}

void RequestQueue::Count(uint32_t slot) {
  if (open_.operations == 0) {
    open_.first_slot = slot;
    ++unsent_;
  } else {
    waiting_[open_.last_slot].next = slot;
  }
  waiting_[slot].sequence = next_sequence_;
  open_.last_slot = slot;
  ++open_.operations;
  ++next_sequence_;
}

// A message takes no more operations than its answer has room for, where what they are answered
// with cannot be left away.
template <typename Append>
void RequestQueue::AppendOrReopen(uint8_t code, Append&& append) {
  const uint32_t answer = LeastAnswer(code);
  Open();
  if (open_.operations == 0 || open_.answer_bytes + answer <= max_message_) {
    if (append(open_.writer)) {
      open_.answer_bytes += answer;
      return;
    }
  }
  Close();
  Open();
  [[maybe_unused]] const bool fits = append(open_.writer);
  assert(fits);
  open_.answer_bytes += answer;
}

void RequestQueue::Add(uint32_t slot, wire::OperationHeader header, std::string_view key,
                       std::string_view value) {
  header.sequence = next_sequence_;
  AppendOrReopen(header.code,
                 [&](wire::RequestWriter& writer) { return writer.Add(header, key, value); });
  Count(slot);
}

void RequestQueue::Add(uint32_t slot, wire::OpCode code, std::string_view key,
                       std::string_view value) {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(code);
  Add(slot, header, key, value);
}

void RequestQueue::AddByReference(uint32_t slot, wire::OperationHeader header, std::string_view key,
                                  uint32_t value_len, const wire::ValueReference& reference) {
  header.sequence = next_sequence_;
  AppendOrReopen(header.code, [&](wire::RequestWriter& writer) {
    return writer.AddByReference(header, key, value_len, reference);
  });
  Count(slot);
}

// A session's numbers run ahead of what is acknowledged only by those that wait for an answer,
// unless some have been given up and the oldest waits still: then the others wait as well.
absl::Status RequestQueue::Flush() {
  while (CanSend() && endpoint_->send_room() > 0) {
    if (messages_.size() == sent_) Close();
    Message& next = messages_.At(sent_);
    // Everything before the oldest operation that is not answered has been answered, or given up.
    const uint64_t oldest = waiting_[messages_.At(0).first_slot].sequence;
    const uint64_t last = waiting_[next.last_slot].sequence;
    if (last > wire::kLastSequence) {
      return absl::FailedPreconditionError(
          "the connection has used all of its 2^48 sequence numbers: connect anew");
    }
    if (session_operations_ != 0 && last - (oldest - 1) > session_operations_) break;
    const uint32_t after = unsent_ - 1;
    const uint32_t free = window() - sent_ - 1;
    const uint32_t wanted = after > free ? after - free : 0;
    next.writer.Finish(oldest - 1, static_cast<uint16_t>(wanted));
    absl::Status status = Send(next, static_cast<uint32_t>(next.writer.size()));
    if (!status.ok()) return status;
    ++sent_;
    --unsent_;
  }
  return absl::OkStatus();
}

// A send buffer is used again once its request has been answered: then it has been received, and
// what the device might still repeat of it is dropped by the receiver's device.
absl::Status RequestQueue::Send(Message& message, uint32_t size) {
  ibv_sge sge =
      verbs::MakeSge(endpoint_->send_buffer(message.buffer).data(), size, endpoint_->lkey());
  const bool signalled = endpoint_->MustSignal();
  unsigned flags = signalled ? unsigned{IBV_SEND_SIGNALED} : 0u;
  if (size <= endpoint_->inline_bytes()) flags |= IBV_SEND_INLINE;
  ibv_send_wr request =
      verbs::MakeSend(Endpoint::SendId(endpoint_->PostNumber(signalled)), &sge, flags);
  ++sends_;
  bytes_sent_ += size;
  message.sent = true;
  return verbs::FromReturn(verbs::PostSend(endpoint_->qp(), &request), "ibv_post_send",
                           [size] { return absl::StrCat("a request of ", size, " bytes"); });
}

// Answers come in the order of the requests.
absl::StatusOr<RequestQueue::Message> RequestQueue::TakeAnswered(const wire::ResponseHeader& header,
                                                                 uint64_t sequence) {
  if (sent_ == 0 || waiting_[messages_.At(0).first_slot].sequence != sequence) {
    return absl::InternalError(
        absl::StrCat("the server answered operation ", sequence, ", which is not waiting"));
  }
  if (messages_.At(0).operations != header.results) {
    return absl::InternalError(absl::StrCat("the server sent ", uint32_t{header.results},
                                            " results for ", messages_.At(0).operations,
                                            " operations"));
  }
  --sent_;
  const Message message = messages_.Pop();
  free_buffers_.push_back(message.buffer);
  return message;
}

void RequestQueue::Unsend() {
  sent_ = 0;
  grant_ = 1;
  CountUnsent();
}

void RequestQueue::Remove(uint32_t slot) {
  if (open_.operations != 0) Close();
  for (size_t i = 0; i < messages_.size(); ++i) {
    if (!RemoveFrom(messages_.At(i), slot)) continue;
    messages_.RemoveIf([this](const Message& message) {
      if (message.operations != 0) return false;
      free_buffers_.push_back(message.buffer);
      return true;
    });
    CountUnsent();
    return;
  }
}

bool RequestQueue::RemoveFrom(Message& message, uint32_t slot) {
  uint32_t before = kNone;
  size_t at = wire::RequestWriter::kFirst;
  for (uint32_t each = message.first_slot; each != slot; each = waiting_[each].next) {
    if (each == message.last_slot) return false;
    before = each;
    at = message.writer.EndOf(at);
  }
  message.writer.Remove(at);
  if (before == kNone) {
    message.first_slot = waiting_[slot].next;
  } else {
    waiting_[before].next = waiting_[slot].next;
  }
  if (message.last_slot == slot) message.last_slot = before;
  --message.operations;
  return true;
}

}  // namespace verbena::client
