#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/baseline/raw_endpoint.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/relaxed_copy.h"
#include "common/base/sizes.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena::bench {
namespace {

constexpr int kTimeoutMs = 10'000;
constexpr int64_t kLimitNanos = int64_t{kTimeoutMs} * 1'000'000;
constexpr uint64_t kPollsPerLook = 1024;
constexpr uint32_t kReceives = RawInitiator::kMostRequests;
constexpr uint32_t kSignalEvery = 16;  // SENDs
constexpr uint32_t kWantedInline = 256;
constexpr uint64_t kCacheLine = 64;
// wr_ids: READs have their slot's number, receives and sends these above.
constexpr uint64_t kReceiveId = uint64_t{1} << 32;
constexpr uint64_t kSendId = uint64_t{1} << 33;

// The event that must come next.
absl::StatusOr<verbs::CmEvent> Expect(verbs::CmChannel& channel, rdma_cm_event_type type,
                                      const char* what) {
  VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event, channel.WaitEvent(kTimeoutMs));
  if (!event.has_value()) return absl::DeadlineExceededError(absl::StrCat(what, " took too long"));
  if (event->type() != type) {
    const absl::Status status = verbs::CmEventError(event->type(), event->status(), what);
    return status.ok() ? absl::InternalError(
                             absl::StrCat("unexpected event: ", verbs::CmEventText(event->type())))
                       : status;
  }
  return *std::move(event);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawInitiator>> RawInitiator::Connect(
    const NetAddress& target, const RawInitiatorOptions& options) {
  verbs::VerbsApi* const api = VerbsTable(options.fabric);
  if (api == nullptr) return absl::InvalidArgumentError("no such fabric: " + options.fabric);
  std::unique_ptr<RawInitiator> initiator(new RawInitiator(options));
  VERBENA_RETURN_IF_ERROR(initiator->Prepare(*api, target));
  return initiator;
}

absl::Status RawInitiator::Prepare(verbs::VerbsApi& api, const NetAddress& target) {
  VERBENA_ASSIGN_OR_RETURN(channel_, verbs::CmChannel::Create(api));
  VERBENA_ASSIGN_OR_RETURN(id_, verbs::CmId::Create(channel_));
  VERBENA_RETURN_IF_ERROR(id_.ResolveAddress(target, kTimeoutMs));
  VERBENA_RETURN_IF_ERROR(
      Expect(channel_, RDMA_CM_EVENT_ADDR_RESOLVED, "address resolution").status());
  VERBENA_RETURN_IF_ERROR(id_.ResolveRoute(kTimeoutMs));
  VERBENA_RETURN_IF_ERROR(
      Expect(channel_, RDMA_CM_EVENT_ROUTE_RESOLVED, "route resolution").status());
  VERBENA_RETURN_IF_ERROR(MakeQueues());
  VERBENA_RETURN_IF_ERROR(id_.Connect(verbs::MakeConnParam(connect_options_, {})));
  {
    VERBENA_ASSIGN_OR_RETURN(const verbs::CmEvent event, Expect(channel_, RDMA_CM_EVENT_ESTABLISHED,
                                                                "connecting to the raw target"));
    depth_ =
        std::min<uint32_t>(options_.depth, std::max<uint32_t>(1, event.param().initiator_depth));
  }
  return verbs::ApplyAfterConnect(id_, qp_, connect_options_);
}

absl::Status RawInitiator::MakeQueues() {
  VERBENA_ASSIGN_OR_RETURN(const ibv_device_attr attr, id_.device().Query());
  connect_options_ = verbs::LimitToDevice(connect_options_, attr);
  VERBENA_ASSIGN_OR_RETURN(pd_, verbs::ProtectionDomain::Create(id_.device()));
  // An odd number of lines, so that blocks do not share sets of the caches.
  sink_stride_ = AlignUp(options_.block_size, kCacheLine);
  if (sink_stride_ / kCacheLine % 2 == 0) sink_stride_ += kCacheLine;
  response_stride_ = AlignUp(options_.response_size, kCacheLine);
  request_at_ = sink_stride_ * options_.depth;
  request_stride_ =
      AlignUp(std::max<uint64_t>(options_.request_size, sizeof(uint32_t)), kCacheLine);
  responses_at_ = request_at_ + 2 * request_stride_;
  VERBENA_ASSIGN_OR_RETURN(
      memory_, SharedMemory::Create("verbena-bench-raw",
                                    responses_at_ + response_stride_ * kReceives, false));
  VERBENA_ASSIGN_OR_RETURN(mr_, verbs::MemoryRegion::Register(pd_, memory_.data(), memory_.size(),
                                                              IBV_ACCESS_LOCAL_WRITE));
  std::memcpy(memory_.data() + request_at_ + request_stride_, &options_.short_response_size,
              sizeof(options_.short_response_size));
  verbs::QueuePairOptions queue;
  queue.max_send_wr = options_.depth + 2 * kSignalEvery;
  queue.max_recv_wr = kReceives;
  VERBENA_ASSIGN_OR_RETURN(cq_channel_, verbs::CompletionChannel::Create(id_.device()));
  VERBENA_ASSIGN_OR_RETURN(
      cq_, verbs::CompletionQueue::Create(
               id_.device(), static_cast<int>(2 * (queue.max_send_wr + queue.max_recv_wr)),
               &cq_channel_));
  queue.send_cq = queue.recv_cq = cq_.get();
  queue.max_inline_data = kWantedInline;
  auto qp = verbs::QueuePair::CreateOn(id_, pd_, queue);
  if (!qp.ok()) {  // some devices allow less inline data
    queue.max_inline_data = 0;
    qp = verbs::QueuePair::CreateOn(id_, pd_, queue);
  }
  VERBENA_RETURN_IF_ERROR(qp.status());
  qp_ = *std::move(qp);
  if (options_.request_size <= qp_.cap().max_inline_data) send_flags_ = IBV_SEND_INLINE;
  for (uint32_t i = 0; i < kReceives; ++i) VERBENA_RETURN_IF_ERROR(PostReceive(i));
  return absl::OkStatus();
}

void RawInitiator::SetRegion(uint64_t address, uint32_t rkey) {
  region_address_ = address;
  region_rkey_ = rkey;
}

absl::Status RawInitiator::PostReceive(uint32_t index) {
  ibv_sge sge = verbs::MakeSge(memory_.data() + responses_at_ + index * response_stride_,
                               static_cast<uint32_t>(response_stride_), mr_.lkey());
  ibv_recv_wr request = verbs::MakeRecv(kReceiveId + index, &sge);
  ibv_recv_wr* bad = nullptr;
  return verbs::FromReturn(verbs::PostRecv(qp_.get(), &request, &bad), "ibv_post_recv");
}

// Waits until one request has completed; `*completed` is its wr_id.
absl::Status RawInitiator::Await(uint64_t* completed) {
  ibv_wc wc;
  int n;
  int64_t begin = 0;
  int64_t sleep_at = 0;
  for (uint64_t empty = 0; (n = verbs::Poll(cq_.get(), {&wc, 1})) == 0; ++empty) {
    if (empty % kPollsPerLook != 0 && options_.poll_ns > 0) continue;
    const int64_t now = MonotonicNanos();
    if (begin == 0) begin = now;
    if (sleep_at == 0)
      sleep_at = options_.poll_ns > kLimitNanos ? INT64_MAX : now + options_.poll_ns;
    if (now - begin > kLimitNanos) {
      return absl::DeadlineExceededError("the raw target does not answer");
    }
    if (now < sleep_at) continue;
    VERBENA_RETURN_IF_ERROR(cq_.Arm());
    if ((n = verbs::Poll(cq_.get(), {&wc, 1})) != 0) break;
    VERBENA_RETURN_IF_ERROR(Sleep(1000));
    sleep_at = 0;
  }
  if (n < 0) return absl::InternalError("ibv_poll_cq failed");
  *completed = wc.wr_id;
  return verbs::WcError(wc, "request of the baseline");
}

// Until the armed completion queue has had an event, or for that long.
absl::Status RawInitiator::Sleep(int timeout_ms) {
  pollfd entry{cq_channel_.fd(), POLLIN, 0};
  poll(&entry, 1, timeout_ms);
  for (;;) {
    VERBENA_ASSIGN_OR_RETURN(const auto event, cq_channel_.TryGetEvent());
    if (!event.has_value()) return absl::OkStatus();
  }
}

// Touches every cache line of what has landed.
void RawInitiator::Consume(const uint8_t* bytes, uint64_t size) {
  uint64_t sum = 0;
  for (uint64_t at = 0; at < size; at += kCacheLine) {
    sum += LoadRelaxed(reinterpret_cast<const uint64_t*>(bytes + at));
  }
  consumed_ = sum;
}

absl::Status RawInitiator::ReadOneByOne(std::span<const uint64_t> offsets, double overhead,
                                        std::span<uint32_t> nanos) {
  ibv_sge sge = verbs::MakeSge(Sink(0), options_.block_size, mr_.lkey());
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t begin = clock_.NowSerial();
    ibv_send_wr request = verbs::MakeRead(0, &sge, region_address_ + offsets[i], region_rkey_);
    if (const int error = verbs::PostSend(qp_.get(), &request); error != 0) {
      return verbs::FromReturn(error, "ibv_post_send");
    }
    uint64_t id;
    VERBENA_RETURN_IF_ERROR(Await(&id));
    Consume(Sink(0), options_.block_size);
    const int64_t end = clock_.NowSerial();
    nanos[i] = LessOverhead(clock_.Nanos(begin, end), overhead);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RawInitiator::ReadPipelined(std::span<const uint64_t> offsets) {
  std::vector<ibv_send_wr> requests(depth_);
  std::vector<ibv_sge> pieces(depth_);
  std::vector<uint32_t> free_slots;
  for (uint32_t slot = depth_; slot-- > 0;) {
    pieces[slot] = verbs::MakeSge(Sink(slot), options_.block_size, mr_.lkey());
    free_slots.push_back(slot);
  }
  std::array<ibv_wc, 32> completions;
  size_t posted = 0;
  size_t done = 0;
  const int64_t begin = MonotonicNanos();
  int64_t deadline = begin + int64_t{kTimeoutMs} * 1'000'000;
  uint64_t empty = 0;
  while (done < offsets.size()) {
    ibv_send_wr* list = nullptr;
    ibv_send_wr** tail = &list;
    while (!free_slots.empty() && posted < offsets.size()) {
      const uint32_t slot = free_slots.back();
      free_slots.pop_back();
      requests[slot] =
          verbs::MakeRead(slot, &pieces[slot], region_address_ + offsets[posted++], region_rkey_);
      *tail = &requests[slot];
      tail = &requests[slot].next;
    }
    ibv_send_wr* bad = nullptr;
    if (list != nullptr) {
      VERBENA_RETURN_IF_ERROR(
          verbs::FromReturn(verbs::PostSend(qp_.get(), list, &bad), "ibv_post_send"));
    }
    const int n = verbs::Poll(cq_.get(), completions);
    if (n < 0) return absl::InternalError("ibv_poll_cq failed");
    for (int i = 0; i < n; ++i) {
      const ibv_wc& wc = completions[static_cast<size_t>(i)];
      VERBENA_RETURN_IF_ERROR(verbs::WcError(wc, "READ of the baseline"));
      const auto slot = static_cast<uint32_t>(wc.wr_id);
      Consume(Sink(slot), options_.block_size);
      free_slots.push_back(slot);
    }
    done += static_cast<size_t>(n);
    if (n == 0 && ++empty % (1 << 20) == 0 && MonotonicNanos() > deadline) {
      return absl::DeadlineExceededError("the raw target does not answer");
    }
  }
  return static_cast<double>(done) / (static_cast<double>(MonotonicNanos() - begin) * 1e-9);
}

// Every 16th is signalled, so that the send queue empties.
absl::Status RawInitiator::Send(uint64_t from, uint32_t size) {
  ibv_sge sge = verbs::MakeSge(memory_.data() + from, size, mr_.lkey());
  unsigned flags = send_flags_;
  if (++sends_since_signal_ == kSignalEvery) {
    flags |= IBV_SEND_SIGNALED;
    sends_since_signal_ = 0;
    ++sends_unpolled_;
  }
  ibv_send_wr request = verbs::MakeSend(kSendId, &sge, flags);
  return verbs::FromReturn(verbs::PostSend(qp_.get(), &request), "ibv_post_send");
}

absl::Status RawInitiator::PingPong(double overhead, std::span<uint32_t> nanos) {
  for (uint32_t& time : nanos) {
    const int64_t begin = clock_.NowSerial();
    VERBENA_RETURN_IF_ERROR(Send(request_at_, options_.request_size));
    uint64_t id;
    for (;;) {
      VERBENA_RETURN_IF_ERROR(Await(&id));
      if (id != kSendId) break;
      --sends_unpolled_;
    }
    const auto index = static_cast<uint32_t>(id - kReceiveId);
    consumed_ = LoadRelaxed(reinterpret_cast<const uint64_t*>(memory_.data() + responses_at_ +
                                                              index * response_stride_));
    VERBENA_RETURN_IF_ERROR(PostReceive(index));
    const int64_t end = clock_.NowSerial();
    time = LessOverhead(clock_.Nanos(begin, end), overhead);
  }
  // Whoever READs next expects completions of READs only.
  for (; sends_unpolled_ > 0; --sends_unpolled_) {
    uint64_t id;
    VERBENA_RETURN_IF_ERROR(Await(&id));
    if (id != kSendId) return absl::InternalError("a response that nobody asked for");
  }
  return absl::OkStatus();
}

absl::Status RawInitiator::PostReads(std::span<const uint32_t> slots,
                                     std::span<const uint64_t> offsets) {
  if (slots.empty()) return absl::OkStatus();
  requests_.resize(depth_);
  pieces_.resize(depth_);
  for (size_t i = 0; i < slots.size(); ++i) {
    pieces_[i] = verbs::MakeSge(Sink(slots[i]), options_.block_size, mr_.lkey());
    requests_[i] =
        verbs::MakeRead(slots[i], &pieces_[i], region_address_ + offsets[i], region_rkey_);
    if (i > 0) requests_[i - 1].next = &requests_[i];
  }
  ibv_send_wr* bad = nullptr;
  return verbs::FromReturn(verbs::PostSend(qp_.get(), requests_.data(), &bad), "ibv_post_send");
}

absl::Status RawInitiator::PostRequest(uint32_t size, bool short_answer) {
  return Send(request_at_ + (short_answer ? request_stride_ : 0), size);
}

absl::StatusOr<size_t> RawInitiator::Poll(std::span<RawCompletion> completions) {
  std::array<ibv_wc, 32> found;
  const int n =
      verbs::Poll(cq_.get(), {found.data(), std::min<size_t>(found.size(), completions.size())});
  if (n < 0) return absl::InternalError("ibv_poll_cq failed");
  size_t finished = 0;
  for (int i = 0; i < n; ++i) {
    const ibv_wc& wc = found[static_cast<size_t>(i)];
    VERBENA_RETURN_IF_ERROR(verbs::WcError(wc, "request to the raw target"));
    if (wc.wr_id == kSendId) {
      --sends_unpolled_;
      continue;
    }
    RawCompletion& completion = completions[finished++];
    if (wc.wr_id < kReceiveId) {
      completion = {true, static_cast<uint32_t>(wc.wr_id), options_.block_size};
      Consume(Sink(completion.slot), completion.bytes);
    } else {
      const auto index = static_cast<uint32_t>(wc.wr_id - kReceiveId);
      completion = {false, 0, wc.byte_len};
      Consume(memory_.data() + responses_at_ + index * response_stride_, wc.byte_len);
      VERBENA_RETURN_IF_ERROR(PostReceive(index));
    }
  }
  return finished;
}

}  // namespace verbena::bench
