// The requests of one connection: packs operations into messages, sends them as the server's
// credits allow, and leads each answer to its operation.
//
// Operations are written straight into the open message, in registered memory. Flush closes and
// sends it if there is a credit; else it stays open and takes more operations, so that waiting for
// credits makes messages larger. Operations are known by a number of the user's (its slot), below
// the capacity. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
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

  // Adds an operation; sequence numbers are assigned here. The operation must fit a message.
  void Add(uint32_t slot, wire::OperationHeader header, std::string_view key,
           std::string_view value);
  void Add(uint32_t slot, wire::OpCode code, std::string_view key, std::string_view value);
  // A kPut whose value the server READs from `reference`.
  void AddByReference(uint32_t slot, wire::OperationHeader header, std::string_view key,
                      uint32_t value_len, const wire::ValueReference& reference);

  // Whether Flush could send something.
  bool CanSend() const { return waiting_messages() != 0 && outstanding_.size() < window(); }
  // Sends what the credits allow. An error ends the connection.
  absl::Status Flush();

  // Takes a message of the server. For each result calls
  //   on_result(uint32_t slot, const wire::Result&)
  // which may add further operations. An error (the message makes no sense) ends the connection.
  template <typename OnResult>
  absl::Status OnMessage(std::span<const uint8_t> bytes, OnResult&& on_result);

  uint64_t sends() const { return sends_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint32_t grant() const { return grant_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Message {
    uint32_t buffer = 0;
    uint32_t operations = 0;
    uint32_t answer_bytes = sizeof(wire::ResponseHeader);  // that the answer takes at least
    uint64_t first_sequence = 0;
    uint32_t first_slot = kNone;
    uint32_t last_slot = kNone;
  };

  uint32_t window() const {
    return grant_ < endpoint_.max_requests() ? grant_ : endpoint_.max_requests();
  }
  uint32_t waiting_messages() const {
    return static_cast<uint32_t>(closed_.size()) + (open_.operations != 0 ? 1 : 0);
  }
  void Open();
  // Ends the open message and queues it.
  void Close();
  void Count(uint32_t slot);
  template <typename Append>
  void AppendOrReopen(uint8_t code, Append&& append);
  absl::Status Send(const Message& message, uint32_t size);
  // The answered message whose first operation has this sequence number.
  absl::StatusOr<Message> TakeOutstanding(const wire::ResponseHeader& header,
                                          uint64_t first_sequence);

  struct Closed {
    Message message;
    wire::RequestWriter writer{std::span<uint8_t>()};
  };

  Endpoint& endpoint_;
  uint32_t max_message_ = Endpoint::kMessageBytes;
  uint32_t grant_ = 1;
  uint64_t next_sequence_ = 1;

  Message open_;
  wire::RequestWriter writer_;
  bool has_buffer_ = false;  // open_ has a buffer

  FixedRing<Closed> closed_;          // full messages that wait for a credit
  std::vector<Message> outstanding_;  // sent and not answered, in the order of sending
  std::vector<uint32_t> free_buffers_;
  std::vector<uint32_t> next_slot_;  // by slot: the next operation of the same message
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
  absl::StatusOr<Message> message = TakeOutstanding(reader->header(), (*result)->header.sequence);
  if (!message.ok()) return message.status();

  absl::Status status;
  uint32_t slot = message->first_slot;
  uint64_t sequence = message->first_sequence;
  while (result.ok() && result->has_value()) {
    if ((*result)->header.sequence != sequence) {
      return absl::InternalError("the server's answers are out of order");
    }
    // Read before the operation ends, since its slot may then be used again.
    const uint32_t next = slot == message->last_slot ? kNone : next_slot_[slot];
    on_result(slot, **result);
    ++sequence;
    slot = next;
    result = reader->Next();
  }
  return result.status();
}

}  // namespace verbena::client
