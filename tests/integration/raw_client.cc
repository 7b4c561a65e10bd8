#include "tests/integration/raw_client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/verbs/conn_param.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"
#include "tests/integration/process.h"

namespace verbena::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kSendSlots = 128;
constexpr uint32_t kSendSize = 16 * 1024;
constexpr int kConnectMillis = 10'000;
constexpr uint64_t kSendFlag = uint64_t{1} << 32;

}  // namespace

absl::StatusOr<std::unique_ptr<RawClient>> RawClient::Connect(
    verbs::VerbsApi& api, std::string_view server, const RawClientOptions& options,
    std::optional<wire::RejectData>* reject) {
  std::unique_ptr<RawClient> client(new RawClient);
  VERBENA_RETURN_IF_ERROR(client->Establish(api, server, options, reject));
  return client;
}

absl::StatusOr<std::unique_ptr<RawClient>> RawClient::ConnectAndGreet(
    verbs::VerbsApi& api, std::string_view server, const RawClientOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<RawClient> client, Connect(api, server, options));
  VERBENA_RETURN_IF_ERROR(client->Hello().status());
  return client;
}

RawClient::~RawClient() {
  if (id_.valid() && qp_.valid()) {
    [[maybe_unused]] const absl::Status ignored = id_.Disconnect();
  }
}

absl::StatusOr<verbs::CmEvent> RawClient::NextCmEvent() {
  VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event, channel_.WaitEvent(kConnectMillis));
  if (!event.has_value()) return absl::DeadlineExceededError("no event of the connection manager");
  return *std::move(event);
}

absl::Status RawClient::Establish(verbs::VerbsApi& api, std::string_view server,
                                  const RawClientOptions& options,
                                  std::optional<wire::RejectData>* reject) {
  options_ = options;
  VERBENA_ASSIGN_OR_RETURN(const NetAddress target, NetAddress::Parse(server));
  VERBENA_ASSIGN_OR_RETURN(channel_, verbs::CmChannel::Create(api));
  VERBENA_ASSIGN_OR_RETURN(id_, verbs::CmId::Create(channel_));
  const auto expect = [&](rdma_cm_event_type wanted) -> absl::Status {
    VERBENA_ASSIGN_OR_RETURN(verbs::CmEvent event, NextCmEvent());
    if (event.type() == wanted) return absl::OkStatus();
    if (event.type() == RDMA_CM_EVENT_REJECTED) {
      const absl::StatusOr<wire::RejectData> data = wire::DecodeReject(event.private_data());
      if (data.ok()) {
        if (reject != nullptr) *reject = *data;
        return absl::FailedPreconditionError(data->text);
      }
    }
    return verbs::CmEventError(event.type(), event.status(), std::string(server));
  };
  VERBENA_RETURN_IF_ERROR(id_.ResolveAddress(target, kConnectMillis));
  VERBENA_RETURN_IF_ERROR(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
  VERBENA_RETURN_IF_ERROR(id_.ResolveRoute(kConnectMillis));
  VERBENA_RETURN_IF_ERROR(expect(RDMA_CM_EVENT_ROUTE_RESOLVED));
  VERBENA_RETURN_IF_ERROR(MakeQueues(options));
  std::vector<uint8_t> data = options.private_data;
  if (data.empty()) {
    wire::ConnectData hello;
    hello.layout = 1;
    hello.tenant = wire::TenantId("default");
    hello.session = options.session;
    const auto encoded = wire::Encode(hello);
    data.assign(encoded.begin(), encoded.end());
  }
  verbs::ConnectOptions connect;
  if (!options.responder) connect.responder_resources = 0;
  VERBENA_RETURN_IF_ERROR(id_.Connect(verbs::MakeConnParam(connect, data)));
  return expect(RDMA_CM_EVENT_ESTABLISHED);
}

absl::Status RawClient::MakeQueues(const RawClientOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(pd_, verbs::ProtectionDomain::Create(id_.device()));
  const uint64_t receive_bytes = uint64_t{options.receive_count} * options.receive_size;
  VERBENA_ASSIGN_OR_RETURN(
      memory_, SharedMemory::Create("raw-client", receive_bytes + kSendSlots * kSendSize, false));
  VERBENA_ASSIGN_OR_RETURN(
      region_,
      verbs::MemoryRegion::Register(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
  if (options.value_memory > 0) {
    VERBENA_ASSIGN_OR_RETURN(value_memory_,
                             SharedMemory::Create("raw-values", options.value_memory, false));
    VERBENA_ASSIGN_OR_RETURN(value_region_, verbs::MemoryRegion::Register(
                                                pd_, value_memory_.data(), value_memory_.size(),
                                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
  }
  const auto entries = static_cast<int>(2 * (options.receive_count + kSendSlots));
  VERBENA_ASSIGN_OR_RETURN(completions_, verbs::CompletionChannel::Create(id_.device()));
  VERBENA_ASSIGN_OR_RETURN(cq_,
                           verbs::CompletionQueue::Create(id_.device(), entries, &completions_));
  VERBENA_ASSIGN_OR_RETURN(qp_, verbs::QueuePair::CreateOn(id_, pd_,
                                                           {.send_cq = cq_.get(),
                                                            .recv_cq = cq_.get(),
                                                            .max_send_wr = kSendSlots,
                                                            .max_recv_wr = options.receive_count,
                                                            .signal_all = true}));
  for (uint32_t i = 0; i < options.receive_count; ++i) VERBENA_RETURN_IF_ERROR(PostReceive(i));
  return absl::OkStatus();
}

absl::Status RawClient::PostReceive(uint32_t index) {
  uint8_t* const buffer =
      memory_.data() + kSendSlots * kSendSize + size_t{index} * options_.receive_size;
  ibv_sge piece = verbs::MakeSge(buffer, options_.receive_size, region_.lkey());
  ibv_recv_wr request = verbs::MakeRecv(index, &piece);
  ibv_recv_wr* bad = nullptr;
  return verbs::FromReturn(verbs::PostRecv(qp_.get(), &request, &bad), "ibv_post_recv");
}

absl::Status RawClient::Send(std::span<const uint8_t> message) {
  if (message.size() > kSendSize) return absl::InvalidArgumentError("message too long");
  const auto deadline = Clock::now() + kPatience;
  while (sends_outstanding_ == kSendSlots && !closed_) {
    if (Clock::now() > deadline) return absl::DeadlineExceededError("send queue full");
    Poll();
  }
  if (closed_) return absl::UnavailableError("the connection has ended");
  uint8_t* const buffer = memory_.data() + size_t{next_send_} * kSendSize;
  next_send_ = (next_send_ + 1) % kSendSlots;
  std::memcpy(buffer, message.data(), message.size());
  ibv_sge piece = verbs::MakeSge(buffer, static_cast<uint32_t>(message.size()), region_.lkey());
  ibv_send_wr request = verbs::MakeSend(kSendFlag, &piece, IBV_SEND_SIGNALED);
  VERBENA_RETURN_IF_ERROR(verbs::FromReturn(verbs::PostSend(qp_.get(), &request), "ibv_post_send"));
  ++sends_outstanding_;
  return absl::OkStatus();
}

void RawClient::Poll() {
  std::array<ibv_wc, 16> found;
  int count = 0;
  while ((count = verbs::Poll(cq_.get(), found)) > 0) {
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = found[static_cast<size_t>(i)];
      if (completion.wr_id == kSendFlag) --sends_outstanding_;
      if (completion.status != IBV_WC_SUCCESS) {
        closed_ = true;
      } else if (completion.wr_id != kSendFlag) {
        const auto index = static_cast<uint32_t>(completion.wr_id);
        const uint8_t* const buffer =
            memory_.data() + kSendSlots * kSendSize + size_t{index} * options_.receive_size;
        received_.emplace_back(buffer, buffer + completion.byte_len);
        if (!PostReceive(index).ok()) closed_ = true;
      }
    }
  }
  absl::StatusOr<std::optional<verbs::CmEvent>> event = channel_.TryGetEvent();
  if (event.ok() && event->has_value() && (*event)->type() == RDMA_CM_EVENT_DISCONNECTED) {
    closed_ = true;
  }
}

absl::StatusOr<RawResponse> RawClient::Receive() { return Receive(kPatience); }

absl::StatusOr<RawResponse> RawClient::Receive(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (received_.empty()) {
    Poll();
    if (!received_.empty()) break;
    if (closed_) return absl::UnavailableError("the connection has ended");
    if (Clock::now() > deadline) return absl::DeadlineExceededError("no response");
    std::this_thread::yield();
  }
  const std::vector<uint8_t> bytes = std::move(received_.front());
  received_.pop_front();
  VERBENA_ASSIGN_OR_RETURN(wire::ResponseReader reader, wire::ResponseReader::Open(bytes));
  RawResponse response;
  response.header = reader.header();
  while (true) {
    VERBENA_ASSIGN_OR_RETURN(const std::optional<wire::Result> result, reader.Next());
    if (!result.has_value()) return response;
    response.results.push_back({result->header, std::string(result->value)});
  }
}

absl::Status RawClient::WaitClosed() { return WaitClosed(kPatience); }

absl::Status RawClient::WaitClosed(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (!closed_) {
    Poll();
    if (Clock::now() > deadline) return absl::DeadlineExceededError("still connected");
    std::this_thread::yield();
  }
  return absl::OkStatus();
}

std::vector<uint8_t> RawClient::Request(wire::OpCode code, std::string_view key,
                                        std::string_view value, uint16_t wanted,
                                        wire::OperationHeader header) {
  alignas(8) std::array<uint8_t, kSendSize> buffer;
  wire::RequestWriter writer(buffer);
  header.sequence = ++sequence_;
  header.code = static_cast<uint8_t>(code);
  writer.Add(header, key, value);
  writer.Finish(acked_, wanted);
  return {buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(writer.size())};
}

std::vector<uint8_t> RawClient::ReferenceRequest(std::string_view key, uint32_t value_len,
                                                 uint64_t offset, uint32_t rkey_change,
                                                 wire::OperationHeader header) {
  alignas(8) std::array<uint8_t, kSendSize> buffer;
  wire::RequestWriter writer(buffer);
  header.sequence = ++sequence_;
  header.code = static_cast<uint8_t>(wire::OpCode::kPut);
  wire::ValueReference reference{};
  reference.address = verbs::AddressOf(value_memory_.data()) + offset;
  reference.rkey = value_region_.rkey() + rkey_change;
  writer.AddByReference(header, key, value_len, reference);
  writer.Finish(acked_, 0);
  return {buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(writer.size())};
}

absl::StatusOr<wire::Welcome> RawClient::Hello() {
  wire::Hello hello{};
  hello.receive_size = options_.receive_size;
  hello.receive_count = options_.receive_count;
  hello.operations = options_.operations;
  VERBENA_ASSIGN_OR_RETURN(
      const RawResult result,
      Call(wire::OpCode::kHello, {}, {reinterpret_cast<const char*>(&hello), sizeof(hello)}));
  return wire::DecodeWelcome(result.value);
}

absl::StatusOr<RawResult> RawClient::Call(wire::OpCode code, std::string_view key,
                                          std::string_view value) {
  return CallWith(wire::OperationHeader{}, code, key, value);
}

absl::StatusOr<RawResult> RawClient::CallWith(wire::OperationHeader header, wire::OpCode code,
                                              std::string_view key, std::string_view value) {
  VERBENA_RETURN_IF_ERROR(Send(Request(code, key, value, /*wanted=*/0, header)));
  VERBENA_ASSIGN_OR_RETURN(RawResponse response, Receive());
  if (response.results.size() != 1) return absl::InternalError("not one result");
  return std::move(response.results[0]);
}

absl::StatusOr<RawResult> RawClient::PutByReference(std::string_view key, std::string_view value,
                                                    wire::OperationHeader header) {
  std::memcpy(value_memory_.data(), value.data(), value.size());
  VERBENA_RETURN_IF_ERROR(
      Send(ReferenceRequest(key, static_cast<uint32_t>(value.size()), 0, 0, header)));
  VERBENA_ASSIGN_OR_RETURN(RawResponse response, Receive());
  if (response.results.size() != 1) return absl::InternalError("not one result");
  return std::move(response.results[0]);
}

}  // namespace verbena::testing
