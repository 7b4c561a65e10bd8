// A client without manners: sends whatever bytes a test wants, on a connection made by hand.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/shared_memory.h"
#include "common/verbs/owners.h"
#include "common/wire/handshake.h"
#include "common/wire/messages.h"

namespace verbena::testing {

struct RawClientOptions {
  // Sent with the connection request; empty: a proper ConnectData.
  std::vector<uint8_t> private_data;
  uint32_t receive_size = 16 * 1024;
  uint32_t receive_count = 64;
  // Whether the server may READ from this client.
  bool responder = true;
  // Of the session; operations of 0: it keeps none.
  uint64_t session = 0x5e55104;
  uint32_t operations = 0;
  // Memory that the server may READ, for values by reference.
  uint64_t value_memory = 0;
};

// A result with its value copied.
struct RawResult {
  wire::ResultHeader header{};
  std::string value;
  wire::ResultCode code() const { return static_cast<wire::ResultCode>(header.code); }
};

struct RawResponse {
  wire::ResponseHeader header{};
  std::vector<RawResult> results;
};

class RawClient {
 public:
  // Connects to "ADDR:PORT" over `api`. If the server refuses, FailedPrecondition with its text,
  // and `*reject` (if not null) is what it sent.
  static absl::StatusOr<std::unique_ptr<RawClient>> Connect(
      verbs::VerbsApi& api, std::string_view server, const RawClientOptions& options = {},
      std::optional<wire::RejectData>* reject = nullptr);
  // Connects and says hello.
  static absl::StatusOr<std::unique_ptr<RawClient>> ConnectAndGreet(
      verbs::VerbsApi& api, std::string_view server, const RawClientOptions& options = {});
  ~RawClient();

  // Sends a message as it is. Only waits for room in the send queue.
  absl::Status Send(std::span<const uint8_t> message);
  // The next response; DeadlineExceeded, or Unavailable if the connection has ended.
  absl::StatusOr<RawResponse> Receive(std::chrono::milliseconds patience);
  absl::StatusOr<RawResponse> Receive();
  // OK once the server has ended the connection.
  absl::Status WaitClosed(std::chrono::milliseconds patience);
  absl::Status WaitClosed();

  absl::StatusOr<wire::Welcome> Hello();
  // One request with one operation, and its answer.
  absl::StatusOr<RawResult> Call(wire::OpCode code, std::string_view key = {},
                                 std::string_view value = {});
  // The same with flags and fields; code and sequence are filled in.
  absl::StatusOr<RawResult> CallWith(wire::OperationHeader header, wire::OpCode code,
                                     std::string_view key, std::string_view value = {});
  // Puts `value` by reference: copies it to the value memory, sends, and waits for the answer.
  absl::StatusOr<RawResult> PutByReference(std::string_view key, std::string_view value,
                                           wire::OperationHeader header = {});
  // The request of PutByReference without sending it; the value memory is as it is.
  std::vector<uint8_t> ReferenceRequest(std::string_view key, uint32_t value_len, uint64_t offset,
                                        uint32_t rkey_change = 0,
                                        wire::OperationHeader header = {});
  // The server may not READ the value memory any more.
  void DeregisterValueMemory() { value_region_ = {}; }
  std::span<uint8_t> value_memory() { return value_memory_.bytes(); }

  // Of the next requests: what they acknowledge, and their first sequence number.
  void set_acked(uint64_t acked) { acked_ = acked; }
  void set_next_sequence(uint64_t sequence) { sequence_ = sequence - 1; }

  // A request of one operation as bytes.
  std::vector<uint8_t> Request(wire::OpCode code, std::string_view key, std::string_view value,
                               uint16_t wanted = 0, wire::OperationHeader header = {});

 private:
  RawClient() = default;
  absl::Status Establish(verbs::VerbsApi& api, std::string_view server,
                         const RawClientOptions& options, std::optional<wire::RejectData>* reject);
  absl::Status MakeQueues(const RawClientOptions& options);
  absl::StatusOr<verbs::CmEvent> NextCmEvent();
  absl::Status PostReceive(uint32_t index);
  void Poll();

  RawClientOptions options_;
  verbs::CmChannel channel_;
  verbs::ProtectionDomain pd_;
  SharedMemory memory_;
  SharedMemory value_memory_;
  verbs::MemoryRegion region_;
  verbs::MemoryRegion value_region_;
  verbs::CompletionChannel completions_;
  verbs::CompletionQueue cq_;
  verbs::CmId id_;
  verbs::QueuePair qp_;
  std::deque<std::vector<uint8_t>> received_;
  uint32_t sends_outstanding_ = 0;
  uint32_t next_send_ = 0;
  bool closed_ = false;
  uint64_t sequence_ = 0;
  uint64_t acked_ = 0;
};

}  // namespace verbena::testing
