#include "server/net/queue_plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"

namespace verbena::net {
namespace {

// Connections that share a send CQ: enough to keep CQs few, few enough to keep them small.
constexpr uint32_t kConnectionsPerCq = 64;
// Queue pairs that stay free for the connection manager and the device's own management.
constexpr uint32_t kReservedQps = 2;

uint32_t DivideUp(uint32_t value, uint32_t by) { return (value + by - 1) / by; }

// Sends that a connection may have outstanding: an answer to each request, unasked messages, and
// READs.
uint32_t SendDepth(uint32_t window) { return window + kSpareReceives + kReadsInFlight + 1; }

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckOptions(const DeviceLimits& device, const QueueOptions& options) {
  if (options.workers < 1 || options.workers > kMaxWorkers) {
    return Refuse("--workers=", options.workers, " is out of range: 1 to ", kMaxWorkers);
  }
  if (options.window < 1 || options.window > kMaxWindow) {
    return Refuse("--window=", options.window, " is out of range: 1 to ", kMaxWindow);
  }
  if (options.srq_depth > kMaxSrqDepth) {
    return Refuse("--srq_depth=", options.srq_depth, " is out of range: at most ", kMaxSrqDepth);
  }
  const uint32_t workers = options.workers;
  if (device.max_srq < workers) {
    return Refuse("--workers=", workers, ": each needs a shared receive queue, and device ",
                  device.name, " has max_srq = ", device.max_srq);
  }
  // A worker has one receive CQ and at least one send CQ.
  if (device.max_cq < 2 * workers) {
    return Refuse("--workers=", workers, ": each needs 2 completion queues or more, and device ",
                  device.name, " has max_cq = ", device.max_cq);
  }
  const uint32_t send_depth = SendDepth(options.window);
  if (send_depth > device.max_qp_wr) {
    return Refuse("--window=", options.window, " needs a send queue of ", send_depth,
                  " requests for each connection, and device ", device.name,
                  " has max_qp_wr = ", device.max_qp_wr);
  }
  if (2 * send_depth > device.max_cqe) {
    return Refuse("--window=", options.window, " needs ", 2 * send_depth,
                  " completion queue entries for each connection, and device ", device.name,
                  " has max_cqe = ", device.max_cqe);
  }
  if (device.max_qp <= kReservedQps) {
    return Refuse("device ", device.name, " has max_qp = ", device.max_qp,
                  ", which leaves none for clients");
  }
  return absl::OkStatus();
}

// Credits that are lent to busy connections: half of all, at least one full window.
uint32_t MinimumSpare(uint32_t srq_depth, uint32_t window) {
  const uint32_t half = srq_depth / 2;
  return std::max(window - 1, half - std::min(half, kReceiveMargin));
}

// The smallest depth that reserves a credit for each connection and leaves enough to lend.
uint32_t DepthFor(uint32_t connections, uint32_t window) {
  return std::bit_ceil(std::max(connections + window - 1 + kReceiveMargin, 2 * connections));
}

absl::StatusOr<uint32_t> PlanSrqDepth(const DeviceLimits& device, const QueueOptions& options) {
  const uint32_t least = options.window + kReceiveMargin;
  const uint32_t most = std::min({device.max_srq_wr, device.max_cqe / 2, kMaxSrqDepth});
  if (options.srq_depth == 0) {
    uint32_t wanted = kDefaultSrqDepth;
    if (options.max_connections > 0) {
      wanted = std::max(
          wanted, DepthFor(DivideUp(options.max_connections, options.workers), options.window));
    }
    wanted = std::min(wanted, most);
    if (wanted < least) {
      return Refuse("--window=", options.window, " needs a shared receive queue of ", least,
                    " entries, and device ", device.name, " allows ", most,
                    " (max_srq_wr = ", device.max_srq_wr, ", max_cqe = ", device.max_cqe, ")");
    }
    return wanted;
  }
  if (options.srq_depth < least) {
    return Refuse("--srq_depth=", options.srq_depth, " is less than ", least,
                  " (--window=", options.window, " and ", kReceiveMargin,
                  "): one client could not be given its window");
  }
  if (options.srq_depth > device.max_srq_wr) {
    return Refuse("--srq_depth=", options.srq_depth, ": device ", device.name,
                  " has max_srq_wr = ", device.max_srq_wr);
  }
  if (options.srq_depth > device.max_cqe / 2) {
    return Refuse("--srq_depth=", options.srq_depth, " needs a completion queue of ",
                  uint64_t{2} * options.srq_depth, " entries, and device ", device.name,
                  " has max_cqe = ", device.max_cqe);
  }
  return options.srq_depth;
}

}  // namespace

absl::StatusOr<QueuePlan> PlanQueues(const DeviceLimits& device, const QueueOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckOptions(device, options));
  QueuePlan plan;
  plan.workers = options.workers;
  plan.window = options.window;
  VERBENA_ASSIGN_OR_RETURN(plan.srq_depth, PlanSrqDepth(device, options));
  plan.receive_cq_depth = 2 * plan.srq_depth;
  plan.send_depth = SendDepth(options.window);
  plan.connections_per_cq = std::min(kConnectionsPerCq, device.max_cqe / (2 * plan.send_depth));
  plan.send_cq_depth = plan.connections_per_cq * 2 * plan.send_depth;

  const uint32_t by_credits = plan.credits() - MinimumSpare(plan.srq_depth, options.window);
  const uint64_t cqs_per_worker = device.max_cq / options.workers - 1;
  const uint64_t by_cqs = cqs_per_worker * plan.connections_per_cq;
  const uint32_t by_qps = device.max_qp - kReservedQps;
  const auto per_worker = static_cast<uint32_t>(
      std::min<uint64_t>({by_credits, by_cqs, by_qps, kMaxConnectionsPerWorker}));
  const auto possible =
      static_cast<uint32_t>(std::min<uint64_t>(by_qps, uint64_t{per_worker} * options.workers));

  if (options.max_connections > possible) {
    if (options.max_connections > by_qps) {
      return Refuse("--max_connections=", options.max_connections, ": device ", device.name,
                    " has max_qp = ", device.max_qp, ", which allows ", by_qps, " connections");
    }
    if (per_worker == by_credits) {
      return Refuse("--max_connections=", options.max_connections, ": ", options.workers,
                    " workers with shared receive queues of ", plan.srq_depth,
                    " and --window=", options.window, " allow ", possible, " connections (device ",
                    device.name, " has max_srq_wr = ", device.max_srq_wr,
                    "); raise --srq_depth or --workers");
    }
    return Refuse("--max_connections=", options.max_connections, ": device ", device.name,
                  " has max_cq = ", device.max_cq, " and max_cqe = ", device.max_cqe,
                  ", which allow ", possible, " connections with --window=", options.window);
  }
  plan.max_connections = options.max_connections > 0 ? options.max_connections
                                                     : std::min(possible, kDefaultMaxConnections);
  // A worker may be given more than its share when clients of the others leave, as far as its
  // queues allow; what is not reserved is there to be lent.
  plan.connections_per_worker = std::min(per_worker, plan.max_connections);
  plan.send_cqs_per_worker = DivideUp(plan.connections_per_worker, plan.connections_per_cq);
  return plan;
}

}  // namespace verbena::net
