#include "server/net/adapter.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/verbs/errors.h"
#include "common/verbs/poll_fd.h"

namespace verbena::net {
namespace {

// Response buffers of a worker. Small answers go inline and give theirs back at once.
constexpr uint32_t kMaxResponseBuffers = 1024;

// File descriptors that stay for the server itself, and for each worker.
constexpr uint64_t kOwnDescriptors = 32;
constexpr uint64_t kWorkerDescriptors = 8;

uint64_t OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  return error ? 0 : static_cast<uint64_t>(std::distance(begin(open), end(open)));
}

// And what is left of this process's file descriptors.
DeviceLimits LimitsHere(const verbs::DeviceView& device, const ibv_device_attr& attr,
                        const QueueOptions& options) {
  DeviceLimits limits = LimitsOf(device.name(), attr);
  rlimit files{};
  const uint32_t each = device.api().descriptors_per_connection();
  if (each > 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
    const uint64_t taken =
        OpenDescriptors() + kOwnDescriptors + kWorkerDescriptors * options.workers;
    limits.descriptors_per_connection = each;
    limits.descriptors = files.rlim_cur - std::min<uint64_t>(files.rlim_cur, taken);
    limits.descriptor_limit = files.rlim_cur;
  }
  return limits;
}

// Bytes that this process has locked for devices: what the kernel holds against RLIMIT_MEMLOCK.
uint64_t PinnedBytes() {
  std::ifstream file("/proc/self/status");
  std::string label;
  uint64_t kib = 0;
  while (file >> label) {
    if (label == "VmPin:") return file >> kib ? kib * kKiB : 0;
    std::getline(file, label);
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Adapter>> Adapter::Create(verbs::CmId anchor,
                                                         const QueueOptions& options,
                                                         const Slice& slice) {
  std::unique_ptr<Adapter> adapter(new Adapter);
  adapter->device_ = anchor.device();
  adapter->anchor_ = std::move(anchor);
  adapter->pinned_before_ = PinnedBytes();
  const verbs::DeviceView& device = adapter->device_;
  VERBENA_RETURN_IF_ERROR(verbs::SetNonBlocking(device.async_fd()));
  VERBENA_ASSIGN_OR_RETURN(adapter->attributes_, device.Query());
  DeviceLimits limits = LimitsHere(device, adapter->attributes_, options);
  limits.stage_reads = adapter->capabilities().read_sink_needs_remote_write();
  VERBENA_ASSIGN_OR_RETURN(adapter->plan_, PlanQueues(limits, options));
  VERBENA_ASSIGN_OR_RETURN(adapter->pd_, verbs::ProtectionDomain::Create(device));
  if (const absl::Status status = adapter->RegisterSlice(slice); !status.ok()) {
    return adapter->ExplainRegistration(status, slice);
  }
  absl::Status made = adapter->MakeQueues(options);
  if (absl::IsUnimplemented(made) && adapter->plan_.shared_receives()) {
    // Some drivers name shared receive queues among their limits and have none.
    LogWarn("device ", adapter->name(), " has no shared receive queues although it names ",
            limits.max_srq, ": ", made.message());
    DeviceLimits without = limits;
    without.no_srq = "the device makes none";
    VERBENA_ASSIGN_OR_RETURN(adapter->plan_, PlanQueues(without, options));
    made = adapter->MakeQueues(options);
  }
  if (!made.ok()) return adapter->ExplainRegistration(made, slice);
  return adapter;
}

absl::Status Adapter::MakeQueues(const QueueOptions& options) {
  queue_sets_.clear();
  for (uint32_t worker = 0; worker < options.workers; ++worker) {
    VERBENA_ASSIGN_OR_RETURN(std::unique_ptr<QueueSet> queues,
                             MakeQueueSet(static_cast<int>(worker)));
    queue_sets_.push_back(std::move(queues));
  }
  return absl::OkStatus();
}

absl::Status Adapter::RegisterSlice(const Slice& slice) {
  const size_t size = slice.memory.size();
  if (attributes_.max_mr_size != 0 && size > attributes_.max_mr_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory: a region of ", FormatSize(size), " is too large for device ",
                     name(), ", which registers at most ", FormatSize(attributes_.max_mr_size),
                     " at once (max_mr_size)"));
  }
  VERBENA_ASSIGN_OR_RETURN(
      slice_, verbs::MemoryRegion::Register(pd_, slice.memory.data(), size,
                                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
  return absl::OkStatus();
}

// How much would have to be locked, where the limit may be why a registration failed; how to raise
// it is in `status`.
absl::Status Adapter::ExplainRegistration(const absl::Status& status, const Slice& slice) const {
  const int error = verbs::ErrnoOf(status).value_or(0);
  const bool registration = absl::StrContains(status.message(), "ibv_reg_mr");
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!registration || !limited || (error != ENOMEM && error != EPERM)) return status;
  const uint64_t region = slice.memory.size();
  const uint64_t messages = uint64_t{plan_.workers} * kMaxMessage *
                            (plan_.receives + std::min(plan_.receives, kMaxResponseBuffers));
  const uint64_t staging = plan_.workers * plan_.staging_bytes();
  const uint64_t own = region + messages + staging;
  const std::string others = pinned_before_ == 0
                                 ? ""
                                 : absl::StrCat("; ", FormatSize(pinned_before_),
                                                " are locked for other devices already, ",
                                                FormatSize(pinned_before_ + own), " in all");
  return absl::ResourceExhaustedError(absl::StrCat(
      "device ", name(), ": registered memory is locked, and this process may lock ",
      FormatSize(limit.rlim_cur), " for all its devices together; this one needs ", FormatSize(own),
      " (region ", FormatSize(region), ", message buffers ", FormatSize(messages),
      staging > 0 ? absl::StrCat(", staging memory ", FormatSize(staging)) : "", ")", others,
      ", and each further device needs as much again. Raise the limit, lower --memory, or listen "
      "on "
      "the address of one device. (",
      status.message(), ")"));
}

absl::StatusOr<std::unique_ptr<QueueSet>> Adapter::MakeQueueSet(int worker) {
  auto queues = std::make_unique<QueueSet>();
  queues->adapter = this;
  queues->worker = worker;
  VERBENA_ASSIGN_OR_RETURN(queues->channel, verbs::CompletionChannel::Create(device_));
  VERBENA_ASSIGN_OR_RETURN(queues->receive_cq.cq,
                           verbs::CompletionQueue::Create(
                               device_, static_cast<int>(plan_.receive_cq_depth), &queues->channel,
                               &queues->receive_cq, CompletionVector(worker)));
  VERBENA_ASSIGN_OR_RETURN(
      queues->receives, ReceiveQueue::Create(pd_, absl::StrCat("verbena-receive-", worker), plan_));
  VERBENA_ASSIGN_OR_RETURN(queues->responses,
                           ResponsePool::Create(pd_, absl::StrCat("verbena-response-", worker),
                                                std::min(plan_.receives, kMaxResponseBuffers)));
  if (plan_.staging_pieces > 0) {
    VERBENA_ASSIGN_OR_RETURN(
        queues->staging,
        StagingPool::Create(pd_, absl::StrCat("verbena-staging-", worker), plan_.staging_pieces,
                            capabilities().read_sink_access()));
  }
  queues->credits = CreditPool(plan_.spare_credits());
  queues->by_qp.reserve(plan_.connections_per_worker);
  queues->polled.reserve(plan_.send_cqs_per_worker);
  return queues;
}

absl::StatusOr<SendQueue*> Adapter::ReserveSendQueue(QueueSet& queues) {
  for (const std::unique_ptr<SendQueue>& queue : queues.send_queues) {
    if (queue->connections < plan_.connections_per_cq) {
      ++queue->connections;
      return queue.get();
    }
  }
  auto made = std::make_unique<SendQueue>();
  VERBENA_ASSIGN_OR_RETURN(
      made->queue.cq, verbs::CompletionQueue::Create(device_, static_cast<int>(plan_.send_cq_depth),
                                                     &queues.channel, &made->queue,
                                                     CompletionVector(queues.worker)));
  made->connections = 1;
  queues.send_queues.push_back(std::move(made));
  return queues.send_queues.back().get();
}

}  // namespace verbena::net
