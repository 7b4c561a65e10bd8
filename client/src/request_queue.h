// The requests of one client: packs operations into messages, sends them as the server's credits
// allow, and leads each answer to its operation.
//
// Operations are written straight into the open message, in registered memory. Flush closes and
// sends it if there is a credit; else it stays open and takes more operations, so that waiting for
// credits makes messages larger. Operations are known by a number of the user's (its slot), below
// the capacity.
//
// A message stays in its buffer until it is answered, so that it can be sent again when its
// connection is lost: as it was, under the same sequence numbers, on the next endpoint (Unsend,
// MoveTo). The server answers the changes that it has made already, and makes the others.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/endpoint.h"
#include "client/src/fixed_ring.h"
#include "common/wire/messages.h"

namespace verbena::client {

class RequestQueue {
 public:
  // `endpoint` is borrowed. At most `capacity` operations are ever waiting for an answer.
  RequestQueue(Endpoint& endpoint, uint32_t capacity);

  // Largest message, as the server names it (bytes; Endpoint::kMessageBytes is never exceeded).
  void set_max_message(uint32_t bytes);
  uint32_t max_message() const { return max_message_; }
  // Sequence numbers that may be used above the acknowledged ones; 0: any number.
  void set_session_operations(uint32_t operations) { session_operations_ = operations; }
  void set_grant(uint32_t grant) { grant_ = grant; }

  // Adds an operation; sequence numbers are assigned here. The operation must fit a message.
  void Add(uint32_t slot, wire::OperationHeader header, std::string_view key,
           std::string_view value);
  void Add(uint32_t slot, wire::OpCode code, std::string_view key, std::string_view value);
  // A kPut whose value the server READs from `reference`.
  void AddByReference(uint32_t slot, wire::OperationHeader header, std::string_view key,
                      uint32_t value_len, const wire::ValueReference& reference);

  // Whether Flush could send something.
  bool CanSend() const { return unsent_ != 0 && sent_ < window(); }
  // Messages that wait to be sent, with or without a credit.
  uint32_t unsent() const { return unsent_; }
  // Sends what the credits allow. An error ends the connection.
  absl::Status Flush();

  // Takes a message of the server. For each result calls
  //   on_result(uint32_t slot, const wire::Result&)
  // which may add further operations. An error (the message makes no sense) ends the connection.
  template <typename OnResult>
  absl::Status OnMessage(std::span<const uint8_t> bytes, OnResult&& on_result);

  // The connection is lost, and nothing of it is used by a device any more: all messages are to be
  // sent (again), in their order. The calls below are for the time from here to the next Flush.
  void Unsend();
  // Calls visit(uint32_t slot, bool sent) for each operation; `sent`: at least once. Within
  // OnMessage, and after one that has failed, those of the message being answered whose results
  // have not been handed out are among them.
  template <typename Visit>
  void ForEach(Visit&& visit) const;
  // Takes an operation out, if it is there.
  void Remove(uint32_t slot);
  // Goes on with another endpoint, of as many buffers. reference(uint32_t slot) tells where the
  // value of an operation by reference is to be READ from now (a wire::ValueReference).
  template <typename Reference>
  void MoveTo(Endpoint& endpoint, Reference&& reference);

  uint64_t sends() const { return sends_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint32_t grant() const { return grant_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Message {
    uint32_t buffer = 0;
    uint32_t operations = 0;
    uint32_t answer_bytes = sizeof(wire::ResponseHeader);  // that the answer takes at least
    uint32_t first_slot = kNone;
    uint32_t last_slot = kNone;
    bool sent = false;  // at least once
    wire::RequestWriter writer{std::span<uint8_t>()};
  };
  // By slot: an operation that waits for its answer.
  struct Waiting {
    uint32_t next = kNone;  // of the same message
    uint64_t sequence = 0;
  };

  uint32_t window() const {
    return grant_ < endpoint_->max_requests() ? grant_ : endpoint_->max_requests();
  }
  // After a change of the messages that is not counted on its way.
  void CountUnsent() {
    unsent_ = static_cast<uint32_t>(messages_.size()) - sent_ + (open_.operations != 0 ? 1 : 0);
  }
  void Open();
  // Ends the open message and queues it.
  void Close();
  void Count(uint32_t slot);
  template <typename Append>
  void AppendOrReopen(uint8_t code, Append&& append);
  absl::Status Send(Message& message, uint32_t size);
  // The oldest message that was sent, if its first operation has this sequence number.
  absl::StatusOr<Message> TakeAnswered(const wire::ResponseHeader& header, uint64_t sequence);
  bool RemoveFrom(Message& message, uint32_t slot);

  Endpoint* endpoint_;
  uint32_t max_message_ = Endpoint::kMessageBytes;
  uint32_t session_operations_ = 0;
  uint32_t grant_ = 1;
  uint64_t next_sequence_ = 1;

  Message open_;
  bool has_buffer_ = false;  // open_ has a buffer

  // Closed messages in the order of sending: `sent_` that wait for their answers, then those that
  // wait for a credit.
  FixedRing<Message> messages_;
  uint32_t sent_ = 0;
  uint32_t unsent_ = 0;  // messages that wait for a credit, and the open one if it has operations
  // Of the message whose results are being handed out: the operations that still wait for theirs.
  uint32_t answered_next_ = kNone;
  uint32_t answered_last_ = kNone;
  std::vector<uint32_t> free_buffers_;
  std::vector<Waiting> waiting_;
  uint64_t sends_ = 0;
  uint64_t bytes_sent_ = 0;
};

template <typename OnResult>
absl::Status RequestQueue::OnMessage(std::span<const uint8_t> bytes, OnResult&& on_result) {
  absl::StatusOr<wire::ResponseReader> reader = wire::ResponseReader::Open(bytes);
  if (!reader.ok()) return reader.status();
  grant_ = reader->header().grant;
  absl::StatusOr<std::optional<wire::Result>> result = reader->Next();
  if (!result.ok()) return result.status();
  // Without results it is a probe, or a new grant.
  if (!result->has_value()) return absl::OkStatus();
  const absl::StatusOr<Message> message =
      TakeAnswered(reader->header(), (*result)->header.sequence);
  if (!message.ok()) return message.status();

  answered_next_ = message->first_slot;
  answered_last_ = message->last_slot;
  while (result.ok() && result->has_value()) {
    const uint32_t slot = answered_next_;
    // Read before the operation ends, since its slot may then be used again.
    const Waiting waiting = waiting_[slot];
    if ((*result)->header.sequence != waiting.sequence) {
      return absl::InternalError("the server's answers are out of order");
    }
    answered_next_ = slot == answered_last_ ? kNone : waiting.next;
    on_result(slot, **result);
    result = reader->Next();
  }
  return result.status();
}

template <typename Visit>
void RequestQueue::ForEach(Visit&& visit) const {
  const auto visit_range = [&](uint32_t first, uint32_t last, bool sent) {
    for (uint32_t slot = first;; slot = waiting_[slot].next) {
      visit(slot, sent);
      if (slot == last) return;
    }
  };
  const auto visit_all = [&](const Message& message) {
    if (message.operations != 0) visit_range(message.first_slot, message.last_slot, message.sent);
  };
  if (answered_next_ != kNone) visit_range(answered_next_, answered_last_, true);
  for (size_t i = 0; i < messages_.size(); ++i) visit_all(messages_.At(i));
  visit_all(open_);
}

template <typename Reference>
void RequestQueue::MoveTo(Endpoint& endpoint, Reference&& reference) {
  if (open_.operations != 0) Close();
  endpoint_ = &endpoint;
  for (size_t i = 0; i < messages_.size(); ++i) {
    Message& message = messages_.At(i);
    message.writer.MoveTo(endpoint.send_buffer(message.buffer).first(max_message_));
    uint32_t slot = message.first_slot;
    for (size_t at = wire::RequestWriter::kFirst; at < message.writer.size();
         at = message.writer.EndOf(at)) {
      if ((message.writer.HeaderAt(at).flags & wire::kOpValueByReference) != 0) {
        message.writer.SetReference(at, reference(slot));
      }
      slot = waiting_[slot].next;
    }
  }
  // Whatever buffer the open message has is of the endpoint before.
  if (has_buffer_) free_buffers_.push_back(open_.buffer);
  has_buffer_ = false;
  open_ = {};
}

}  // namespace verbena::client
