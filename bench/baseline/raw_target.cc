#include <poll.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/baseline/raw_endpoint.h"
#include "bench/workload/random.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena::bench {
namespace {

constexpr int kTimeoutMs = 30'000;
constexpr uint32_t kReceives = 64;
constexpr uint32_t kSends = 64;
constexpr uint32_t kSignalEvery = 16;
constexpr uint32_t kWantedInline = 256;
constexpr uint64_t kLine = 64;
// It looks at the clock only now and then.
constexpr uint32_t kSpinsPerClock = 64;

// One connection of the target.
class RawTarget {
 public:
  explicit RawTarget(const RawTargetOptions& options) : options_(options) {}

  absl::Status Listen(verbs::VerbsApi& api) {
    VERBENA_ASSIGN_OR_RETURN(channel_, verbs::CmChannel::Create(api));
    VERBENA_ASSIGN_OR_RETURN(listener_, verbs::CmId::Create(channel_));
    VERBENA_RETURN_IF_ERROR(listener_.Bind(options_.listen));
    return listener_.Listen(1);
  }
  uint16_t port() const { return listener_.local_address().port(); }

  absl::Status Accept() {
    VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event, channel_.WaitEvent(kTimeoutMs));
    if (!event.has_value() || event->type() != RDMA_CM_EVENT_CONNECT_REQUEST) {
      return absl::UnavailableError("nobody connected to the raw target");
    }
    const rdma_conn_param offered = event->param();
    id_ = event->TakeRequest();
    event->Ack();
    VERBENA_RETURN_IF_ERROR(MakeQueues());
    VERBENA_ASSIGN_OR_RETURN(const ibv_device_attr attr, id_.device().Query());
    verbs::ConnectOptions options = verbs::LimitToDevice({}, attr);
    options = verbs::LimitToRequest(options, offered);
    VERBENA_RETURN_IF_ERROR(id_.Accept(verbs::MakeConnParam(options, {})));
    VERBENA_ASSIGN_OR_RETURN(event, channel_.WaitEvent(kTimeoutMs));
    if (!event.has_value() || event->type() != RDMA_CM_EVENT_ESTABLISHED) {
      return absl::UnavailableError("the connection to the raw target did not come about");
    }
    return verbs::ApplyAfterConnect(id_, qp_, options);
  }
  uint64_t region_address() const { return verbs::AddressOf(region_.data()); }
  uint32_t region_rkey() const { return region_mr_.rkey(); }

  // Answers until the connection ends.
  absl::Status Serve() {
    int64_t idle_since = MonotonicNanos();
    uint32_t empty = 0;
    for (;;) {
      VERBENA_ASSIGN_OR_RETURN(const int found, Answer());
      if (found > 0) {
        idle_since = 0;
        continue;
      }
      if (++empty % kSpinsPerClock != 0 && options_.poll_ns > 0) continue;
      const int64_t now = MonotonicNanos();
      if (idle_since == 0) idle_since = now;
      if (now - idle_since < options_.poll_ns) continue;
      VERBENA_ASSIGN_OR_RETURN(const bool goes_on, Sleep());
      if (!goes_on) return absl::OkStatus();
      idle_since = 0;
    }
  }

 private:
  absl::Status MakeMemory() {
    VERBENA_ASSIGN_OR_RETURN(pd_, verbs::ProtectionDomain::Create(id_.device()));
    // As the store's region: pages of the same kind, all of them touched.
    VERBENA_ASSIGN_OR_RETURN(
        region_, SharedMemory::Create("verbena-bench-target", options_.region_size, true));
    Random random(1);
    for (uint64_t at = 0; at + 8 <= region_.size(); at += 8) {
      const uint64_t word = random.Next();
      std::memcpy(region_.data() + at, &word, sizeof(word));
    }
    VERBENA_ASSIGN_OR_RETURN(
        region_mr_, verbs::MemoryRegion::Register(pd_, region_.data(), region_.size(),
                                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
    receive_stride_ = AlignUp(options_.request_size, kLine);
    response_at_ = receive_stride_ * kReceives;
    VERBENA_ASSIGN_OR_RETURN(
        messages_,
        SharedMemory::Create("verbena-bench-messages",
                             response_at_ + AlignUp(options_.response_size, kLine), false));
    VERBENA_ASSIGN_OR_RETURN(messages_mr_,
                             verbs::MemoryRegion::Register(pd_, messages_.data(), messages_.size(),
                                                           IBV_ACCESS_LOCAL_WRITE));
    return absl::OkStatus();
  }

  absl::Status MakeQueues() {
    VERBENA_RETURN_IF_ERROR(MakeMemory());
    VERBENA_ASSIGN_OR_RETURN(cq_channel_, verbs::CompletionChannel::Create(id_.device()));
    VERBENA_ASSIGN_OR_RETURN(
        cq_, verbs::CompletionQueue::Create(
                 id_.device(), static_cast<int>(2 * (kReceives + kSends)), &cq_channel_));
    VERBENA_ASSIGN_OR_RETURN(srq_, verbs::SharedReceiveQueue::Create(pd_, kReceives));
    verbs::QueuePairOptions queue;
    queue.send_cq = queue.recv_cq = cq_.get();
    queue.srq = srq_.get();
    queue.max_send_wr = kSends;
    queue.max_inline_data = kWantedInline;
    auto qp = verbs::QueuePair::CreateOn(id_, pd_, queue);
    if (!qp.ok()) {
      queue.max_inline_data = 0;
      qp = verbs::QueuePair::CreateOn(id_, pd_, queue);
    }
    VERBENA_RETURN_IF_ERROR(qp.status());
    qp_ = *std::move(qp);
    if (options_.response_size <= qp_.cap().max_inline_data) send_flags_ = IBV_SEND_INLINE;
    for (uint32_t i = 0; i < kReceives; ++i) VERBENA_RETURN_IF_ERROR(PostReceive(i));
    return absl::OkStatus();
  }

  absl::Status PostReceive(uint64_t index) {
    ibv_sge sge = verbs::MakeSge(messages_.data() + index * receive_stride_,
                                 static_cast<uint32_t>(receive_stride_), messages_mr_.lkey());
    ibv_recv_wr request = verbs::MakeRecv(index, &sge);
    ibv_recv_wr* bad = nullptr;
    return verbs::FromReturn(verbs::PostSrqRecv(srq_.get(), &request, &bad), "ibv_post_srq_recv");
  }

  // Polls once and answers what came. -1 is not returned: a broken connection shows in Sleep.
  absl::StatusOr<int> Answer() {
    std::array<ibv_wc, 16> completions;
    const int n = verbs::Poll(cq_.get(), completions);
    if (n < 0) return absl::InternalError("ibv_poll_cq failed");
    for (int i = 0; i < n; ++i) {
      const ibv_wc& wc = completions[static_cast<size_t>(i)];
      if (wc.status != IBV_WC_SUCCESS || wc.wr_id == kSendId) continue;
      ibv_sge sge = verbs::MakeSge(messages_.data() + response_at_, options_.response_size,
                                   messages_mr_.lkey());
      unsigned flags = send_flags_;
      if (++sends_ % kSignalEvery == 0) flags |= IBV_SEND_SIGNALED;
      ibv_send_wr response = verbs::MakeSend(kSendId, &sge, flags);
      VERBENA_RETURN_IF_ERROR(
          verbs::FromReturn(verbs::PostSend(qp_.get(), &response), "ibv_post_send"));
      VERBENA_RETURN_IF_ERROR(PostReceive(wc.wr_id));
    }
    return n;
  }

  // Arms, polls once more, and waits for completions or the end of the connection (then false).
  absl::StatusOr<bool> Sleep() {
    VERBENA_RETURN_IF_ERROR(cq_.Arm());
    VERBENA_ASSIGN_OR_RETURN(const int found, Answer());
    if (found > 0) return true;
    std::array<pollfd, 2> entries = {{{cq_channel_.fd(), POLLIN, 0}, {channel_.fd(), POLLIN, 0}}};
    poll(entries.data(), entries.size(), -1);
    for (;;) {
      VERBENA_ASSIGN_OR_RETURN(const auto event, cq_channel_.TryGetEvent());
      if (!event.has_value()) break;
    }
    VERBENA_ASSIGN_OR_RETURN(const auto event, channel_.TryGetEvent());
    return !event.has_value();
  }

  static constexpr uint64_t kSendId = uint64_t{1} << 32;

  const RawTargetOptions& options_;
  uint64_t receive_stride_ = 0;
  uint64_t response_at_ = 0;
  uint32_t sends_ = 0;
  unsigned send_flags_ = 0;

  SharedMemory region_;
  SharedMemory messages_;
  verbs::CmChannel channel_;
  verbs::CmId listener_;
  verbs::CmId id_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion region_mr_;
  verbs::MemoryRegion messages_mr_;
  verbs::CompletionChannel cq_channel_;
  verbs::CompletionQueue cq_;
  verbs::SharedReceiveQueue srq_;
  verbs::QueuePair qp_;
};

}  // namespace

absl::Status ServeRawTarget(const RawTargetOptions& options) {
  verbs::VerbsApi* const api = VerbsTable(options.fabric);
  if (api == nullptr) return absl::InvalidArgumentError("no such fabric: " + options.fabric);
  RawTarget target(options);
  VERBENA_RETURN_IF_ERROR(target.Listen(*api));
  std::printf("PORT %d\n", target.port());
  std::fflush(stdout);
  VERBENA_RETURN_IF_ERROR(target.Accept());
  std::printf("REGION %" PRIu64 " %" PRIu32 "\n", target.region_address(), target.region_rkey());
  std::fflush(stdout);
  return target.Serve();
}

}  // namespace verbena::bench
