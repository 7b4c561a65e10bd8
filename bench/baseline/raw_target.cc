#include <poll.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

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

// The target with all of its connections.
class RawTarget {
 public:
  explicit RawTarget(const RawTargetOptions& options) : options_(options) {}

  absl::Status Listen(verbs::VerbsApi& api) {
    VERBENA_ASSIGN_OR_RETURN(channel_, verbs::CmChannel::Create(api));
    VERBENA_ASSIGN_OR_RETURN(listener_, verbs::CmId::Create(channel_));
    VERBENA_RETURN_IF_ERROR(listener_.Bind(options_.listen));
    return listener_.Listen(static_cast<int>(options_.connections));
  }
  uint16_t port() const { return listener_.local_address().port(); }

  absl::Status AcceptAll() {
    ids_.resize(options_.connections);
    qps_.resize(options_.connections);
    sends_.resize(options_.connections);
    for (size_t i = 0; i < options_.connections; ++i) VERBENA_RETURN_IF_ERROR(Accept(i));
    return absl::OkStatus();
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
  absl::Status Accept(size_t index) {
    VERBENA_ASSIGN_OR_RETURN(std::optional<verbs::CmEvent> event, channel_.WaitEvent(kTimeoutMs));
    if (!event.has_value() || event->type() != RDMA_CM_EVENT_CONNECT_REQUEST) {
      return absl::UnavailableError("nobody connected to the raw target");
    }
    const rdma_conn_param offered = event->param();
    verbs::CmId& id = ids_[index];
    id = event->TakeRequest();
    event->Ack();
    if (index == 0) VERBENA_RETURN_IF_ERROR(MakeQueues(id));
    VERBENA_RETURN_IF_ERROR(MakeQueuePair(id, &qps_[index]));
    VERBENA_ASSIGN_OR_RETURN(const ibv_device_attr attr, id.device().Query());
    verbs::ConnectOptions options = verbs::LimitToDevice({}, attr);
    options = verbs::LimitToRequest(options, offered);
    VERBENA_RETURN_IF_ERROR(id.Accept(verbs::MakeConnParam(options, {})));
    VERBENA_ASSIGN_OR_RETURN(event, channel_.WaitEvent(kTimeoutMs));
    if (!event.has_value() || event->type() != RDMA_CM_EVENT_ESTABLISHED) {
      return absl::UnavailableError("the connection to the raw target did not come about");
    }
    return verbs::ApplyAfterConnect(id, qps_[index], options);
  }

  absl::Status MakeMemory(const verbs::CmId& id) {
    VERBENA_ASSIGN_OR_RETURN(pd_, verbs::ProtectionDomain::Create(id.device()));
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
    receive_stride_ = AlignUp(std::max<uint64_t>(options_.request_size, sizeof(uint32_t)), kLine);
    response_at_ = receive_stride_ * receives();
    VERBENA_ASSIGN_OR_RETURN(
        messages_,
        SharedMemory::Create("verbena-bench-messages",
                             response_at_ + AlignUp(options_.response_size, kLine), false));
    VERBENA_ASSIGN_OR_RETURN(messages_mr_,
                             verbs::MemoryRegion::Register(pd_, messages_.data(), messages_.size(),
                                                           IBV_ACCESS_LOCAL_WRITE));
    return absl::OkStatus();
  }

  // What all connections share.
  absl::Status MakeQueues(const verbs::CmId& id) {
    VERBENA_RETURN_IF_ERROR(MakeMemory(id));
    VERBENA_ASSIGN_OR_RETURN(cq_channel_, verbs::CompletionChannel::Create(id.device()));
    const uint32_t entries = receives() + kSends * options_.connections;
    VERBENA_ASSIGN_OR_RETURN(cq_, verbs::CompletionQueue::Create(
                                      id.device(), static_cast<int>(2 * entries), &cq_channel_));
    VERBENA_ASSIGN_OR_RETURN(srq_, verbs::SharedReceiveQueue::Create(pd_, receives()));
    for (uint32_t i = 0; i < receives(); ++i) VERBENA_RETURN_IF_ERROR(PostReceive(i));
    return absl::OkStatus();
  }

  absl::Status MakeQueuePair(verbs::CmId& id, verbs::QueuePair* made) {
    verbs::QueuePairOptions queue;
    queue.send_cq = queue.recv_cq = cq_.get();
    queue.srq = srq_.get();
    queue.max_send_wr = kSends;
    queue.max_inline_data = kWantedInline;
    auto qp = verbs::QueuePair::CreateOn(id, pd_, queue);
    if (!qp.ok()) {
      queue.max_inline_data = 0;
      qp = verbs::QueuePair::CreateOn(id, pd_, queue);
    }
    VERBENA_RETURN_IF_ERROR(qp.status());
    *made = *std::move(qp);
    inline_size_ = made->cap().max_inline_data;
    return absl::OkStatus();
  }

  // Each connection has at most as many requests under way as an initiator may.
  uint32_t receives() const {
    return std::max(kReceives, 2 * RawInitiator::kMostRequests * options_.connections);
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
      const auto qp = std::find_if(qps_.begin(), qps_.end(), [&wc](const verbs::QueuePair& each) {
        return each.get()->qp_num == wc.qp_num;
      });
      if (qp == qps_.end()) return absl::InternalError("a message from nobody");
      uint32_t wanted = 0;
      std::memcpy(&wanted, messages_.data() + wc.wr_id * receive_stride_, sizeof(wanted));
      if (wanted == 0) wanted = options_.response_size;
      const uint32_t size = std::min(wanted, options_.response_size);
      ibv_sge sge = verbs::MakeSge(messages_.data() + response_at_, size, messages_mr_.lkey());
      unsigned flags = size <= inline_size_ ? static_cast<unsigned>(IBV_SEND_INLINE) : 0;
      if (++sends_[static_cast<size_t>(qp - qps_.begin())] % kSignalEvery == 0) {
        flags |= IBV_SEND_SIGNALED;
      }
      ibv_send_wr response = verbs::MakeSend(kSendId, &sge, flags);
      VERBENA_RETURN_IF_ERROR(
          verbs::FromReturn(verbs::PostSend(qp->get(), &response), "ibv_post_send"));
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
  std::vector<uint32_t> sends_;  // by connection
  uint32_t inline_size_ = 0;

  SharedMemory region_;
  SharedMemory messages_;
  verbs::CmChannel channel_;
  verbs::CmId listener_;
  std::vector<verbs::CmId> ids_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion region_mr_;
  verbs::MemoryRegion messages_mr_;
  verbs::CompletionChannel cq_channel_;
  verbs::CompletionQueue cq_;
  verbs::SharedReceiveQueue srq_;
  std::vector<verbs::QueuePair> qps_;
};

}  // namespace

absl::Status ServeRawTarget(const RawTargetOptions& options) {
  verbs::VerbsApi* const api = VerbsTable(options.fabric);
  if (api == nullptr) return absl::InvalidArgumentError("no such fabric: " + options.fabric);
  RawTarget target(options);
  VERBENA_RETURN_IF_ERROR(target.Listen(*api));
  std::printf("PORT %d\n", target.port());
  std::fflush(stdout);
  VERBENA_RETURN_IF_ERROR(target.AcceptAll());
  std::printf("REGION %" PRIu64 " %" PRIu32 "\n", target.region_address(), target.region_rkey());
  std::fflush(stdout);
  return target.Serve();
}

}  // namespace verbena::bench
