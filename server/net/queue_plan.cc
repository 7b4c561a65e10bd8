#include "server/net/queue_plan.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <utility>

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

// Why connections cannot share receive queues; empty if they can.
std::string WhyNoSrq(const DeviceLimits& device, const QueueOptions& options) {
  if (!options.use_srq) return "--srq=off";
  if (!device.no_srq.empty()) return device.no_srq;
  if (device.max_srq < options.workers) {
    return absl::StrCat("max_srq = ", device.max_srq, ", --workers=", options.workers);
  }
  if (device.max_srq_sge < 1) return "max_srq_sge = 0";
  if (device.max_srq_wr < 2) return absl::StrCat("max_srq_wr = ", device.max_srq_wr);
  return "";
}

// What does not depend on the window.
absl::Status CheckDevice(const DeviceLimits& device, const QueueOptions& options) {
  if (options.workers < 1 || options.workers > kMaxWorkers) {
    return Refuse("--workers=", options.workers, " is out of range: 1 to ", kMaxWorkers);
  }
  if (options.window > kMaxWindow) {
    return Refuse("--window=", options.window, " is out of range: 1 to ", kMaxWindow);
  }
  if (options.srq_depth > kMaxReceives) {
    return Refuse("--srq_depth=", options.srq_depth, " is out of range: at most ", kMaxReceives);
  }
  const uint32_t workers = options.workers;
  if (device.max_pd < 1 || device.max_sge < 1) {
    return Refuse("device ", device.name, " has max_pd = ", device.max_pd,
                  " and max_sge = ", device.max_sge, "; the server needs 1 of each");
  }
  // A worker has one receive CQ and at least one send CQ.
  if (device.max_cq < 2 * workers) {
    return Refuse("--workers=", workers, ": each needs 2 completion queues or more, and device ",
                  device.name, " has max_cq = ", device.max_cq);
  }
  // The slice, and each worker's receive buffers, response buffers and staging memory.
  const uint32_t registrations = 1 + (device.stage_reads ? 3 : 2) * workers;
  if (device.max_mr < registrations) {
    return Refuse("--workers=", workers, " needs ", registrations,
                  " registrations of memory, and device ", device.name,
                  " has max_mr = ", device.max_mr);
  }
  if (device.max_qp <= kReservedQps) {
    return Refuse("device ", device.name, " has max_qp = ", device.max_qp,
                  ", which leaves none for clients");
  }
  if (device.descriptors_per_connection > 0 &&
      device.descriptors < device.descriptors_per_connection) {
    return Refuse("`ulimit -n` is ", device.descriptor_limit,
                  ", which leaves no file descriptors for clients (a connection takes up to ",
                  device.descriptors_per_connection, " on device ", device.name, "): raise it");
  }
  return absl::OkStatus();
}

// The plan for one size of the window.
class Planner {
 public:
  Planner(const DeviceLimits& device, const QueueOptions& options, uint32_t window)
      : device_(device), options_(options) {
    plan_.workers = options.workers;
    plan_.window = window;
    plan_.no_srq = WhyNoSrq(device, options);
  }

  absl::StatusOr<QueuePlan> Make() {
    VERBENA_RETURN_IF_ERROR(PlanQueuePair());
    VERBENA_RETURN_IF_ERROR(PlanReceives());
    VERBENA_RETURN_IF_ERROR(PlanConnections());
    VERBENA_RETURN_IF_ERROR(PlanStaging());
    return plan_;
  }

 private:
  absl::Status PlanQueuePair() {
    plan_.send_depth = SendDepth(plan_.window);
    if (plan_.send_depth > device_.max_qp_wr) {
      return Refuse("--window=", plan_.window, " needs a send queue of ", plan_.send_depth,
                    " requests for each connection, and device ", device_.name,
                    " has max_qp_wr = ", device_.max_qp_wr);
    }
    // The send queue is always the longer one.
    plan_.receive_depth = plan_.shared_receives() ? 0 : plan_.window + kOwnMargin;
    if (2 * plan_.send_depth > device_.max_cqe) {
      return Refuse("--window=", plan_.window, " needs ", 2 * plan_.send_depth,
                    " completion queue entries for each connection, and device ", device_.name,
                    " has max_cqe = ", device_.max_cqe);
    }
    plan_.connections_per_cq =
        std::min(kConnectionsPerCq, device_.max_cqe / (2 * plan_.send_depth));
    plan_.send_cq_depth = plan_.connections_per_cq * 2 * plan_.send_depth;
    return absl::OkStatus();
  }

  // What one connection with a full window needs.
  bool Suffice(uint32_t receives) const {
    const uint32_t margin = plan_.shared_receives() ? SharedMargin(receives) : kOwnMargin;
    return receives >= plan_.window + margin;
  }

  // Buffers for `connections` of a worker with enough to lend: as many again.
  uint32_t ReceivesFor(uint32_t connections) const {
    if (!plan_.shared_receives()) {
      const uint32_t reserved = connections * (1 + kOwnMargin);
      return std::bit_ceil(std::max(reserved + plan_.window - 1, 2 * reserved));
    }
    return std::bit_ceil(
        std::max(connections + plan_.window - 1 + SharedMargin(UINT32_MAX), 2 * connections));
  }

  absl::Status PlanReceives() {
    const uint32_t by_srq = plan_.shared_receives() ? device_.max_srq_wr : kMaxReceives;
    const uint64_t by_memory =
        device_.max_mr_size == 0 ? kMaxReceives : device_.max_mr_size / kMaxMessage;
    const auto most = static_cast<uint32_t>(
        std::min<uint64_t>({by_srq, device_.max_cqe / 2, by_memory, kMaxReceives}));
    uint32_t& receives = plan_.receives;
    receives = options_.srq_depth;
    if (receives == 0) {
      receives = kDefaultReceives;
      if (options_.max_connections > 0) {
        receives =
            std::max(receives, ReceivesFor(DivideUp(options_.max_connections, options_.workers)));
      }
      receives = std::min(receives, most);
      if (!Suffice(receives)) {
        return Refuse("--window=", plan_.window, " needs more than the ", most,
                      " receives of a worker that device ", device_.name, " allows (", SrqLimit(),
                      "max_cqe = ", device_.max_cqe, ", max_mr_size = ", device_.max_mr_size, ")");
      }
    }
    plan_.receive_cq_depth = 2 * receives;
    if (!Suffice(receives)) {
      return Refuse("--srq_depth=", receives, " is too little for --window=", plan_.window,
                    " and a margin: one client could not be given its window");
    }
    if (receives > by_srq) {
      return Refuse("--srq_depth=", receives, ": device ", device_.name,
                    " has max_srq_wr = ", device_.max_srq_wr);
    }
    if (receives > device_.max_cqe / 2) {
      return Refuse("--srq_depth=", receives, " needs a completion queue of ", 2 * receives,
                    " entries, and device ", device_.name, " has max_cqe = ", device_.max_cqe);
    }
    if (receives > by_memory) {
      return Refuse("--srq_depth=", receives, " needs buffers of ",
                    uint64_t{receives} * kMaxMessage, " bytes in one registration, and device ",
                    device_.name, " has max_mr_size = ", device_.max_mr_size);
    }
    return absl::OkStatus();
  }

  std::string SrqLimit() const {
    return plan_.shared_receives() ? absl::StrCat("max_srq_wr = ", device_.max_srq_wr, ", ") : "";
  }

  // Connections of a worker whose credits and margins leave enough to lend: half of all, at least
  // one full window.
  uint32_t ConnectionsByCredits() const {
    const uint32_t margin = plan_.worker_margin();
    const uint32_t each = 1 + plan_.connection_margin();
    const uint32_t half = plan_.receives / 2;
    const uint32_t lent = std::min(half - std::min(half, margin), plan_.receives - margin - each);
    return (plan_.receives - margin - std::max(plan_.window - 1, lent)) / each;
  }

  absl::Status PlanConnections() {
    const uint32_t by_credits = ConnectionsByCredits();
    const uint64_t by_cqs =
        uint64_t{device_.max_cq / options_.workers - 1} * plan_.connections_per_cq;
    const uint32_t by_qps = device_.max_qp - kReservedQps;
    const uint64_t by_descriptors = device_.descriptors_per_connection == 0
                                        ? UINT32_MAX
                                        : device_.descriptors / device_.descriptors_per_connection;
    const uint64_t of_device = std::min<uint64_t>(by_qps, by_descriptors);
    const auto per_worker = static_cast<uint32_t>(
        std::min<uint64_t>({by_credits, by_cqs, of_device, kMaxConnectionsPerWorker}));
    const auto possible = static_cast<uint32_t>(
        std::min<uint64_t>(of_device, uint64_t{per_worker} * options_.workers));
    const uint32_t asked = options_.max_connections;
    if (asked > by_qps) {
      return Refuse("--max_connections=", asked, ": device ", device_.name,
                    " has max_qp = ", device_.max_qp, ", which allows ", by_qps, " connections");
    }
    if (asked > by_descriptors) {
      return Refuse("--max_connections=", asked, ": `ulimit -n` is ", device_.descriptor_limit,
                    ", which leaves file descriptors for ", by_descriptors,
                    " connections (each takes up to ", device_.descriptors_per_connection,
                    " on device ", device_.name, "): raise it");
    }
    if (asked > possible && per_worker == by_credits) {
      return Refuse("--max_connections=", asked, ": ", options_.workers, " workers with ",
                    plan_.receives, " receives each and --window=", plan_.window, " allow ",
                    possible, " connections (device ", device_.name, " has ", SrqLimit(),
                    "max_cqe = ", device_.max_cqe, ", max_mr_size = ", device_.max_mr_size,
                    "); raise --srq_depth or --workers");
    }
    if (asked > possible) {
      return Refuse("--max_connections=", asked, ": device ", device_.name,
                    " has max_cq = ", device_.max_cq, " and max_cqe = ", device_.max_cqe,
                    ", which allow ", possible, " connections with --window=", plan_.window);
    }
    plan_.max_connections = asked > 0 ? asked : std::min(possible, kDefaultMaxConnections);
    // A worker may be given more than its share when clients of the others leave, as far as its
    // queues allow; what is not reserved is there to be lent.
    plan_.connections_per_worker = std::min(per_worker, plan_.max_connections);
    plan_.send_cqs_per_worker = DivideUp(plan_.connections_per_worker, plan_.connections_per_cq);
    return absl::OkStatus();
  }

  // One piece is enough to go on with, though not to go fast.
  absl::Status PlanStaging() {
    if (!device_.stage_reads) return absl::OkStatus();
    const uint64_t fit =
        device_.max_mr_size == 0 ? UINT32_MAX : device_.max_mr_size / kStagingPiece;
    const uint32_t asked = options_.staging_pieces;
    if (fit < std::max(asked, 1u)) {
      return Refuse(
          "device ", device_.name, " needs staging memory for READs, of ",
          std::max(asked, 1u) * kStagingPiece,
          " bytes at least in one registration, and has max_mr_size = ", device_.max_mr_size);
    }
    plan_.staging_pieces =
        asked > 0 ? asked : static_cast<uint32_t>(std::min<uint64_t>(kDefaultStagingPieces, fit));
    return absl::OkStatus();
  }

  const DeviceLimits& device_;
  const QueueOptions& options_;
  QueuePlan plan_;
};

}  // namespace

std::string QueuePlan::Describe() const {
  const std::string receiving = shared_receives()
                                    ? absl::StrCat("SRQ ", receives)
                                    : absl::StrCat("no SRQ (", no_srq, "): ", receives,
                                                   " receives for queues of ", receive_depth);
  return absl::StrCat(
      receiving, ", CQ ", receive_cq_depth, " (receive) and ", send_cq_depth, " (send, for ",
      connections_per_cq, " connections), QP ", send_depth, "; window ", window,
      staging_pieces == 0 ? ""
                          : absl::StrCat("; READs land in staging memory, ", staging_pieces, " x ",
                                         FormatSize(kStagingPiece), " per worker"));
}

DeviceLimits LimitsOf(std::string name, const ibv_device_attr& attr) {
  const auto limit = [](int value) { return static_cast<uint32_t>(std::max(value, 0)); };
  return {.name = std::move(name),
          .max_qp = limit(attr.max_qp),
          .max_qp_wr = limit(attr.max_qp_wr),
          .max_sge = limit(attr.max_sge),
          .max_cq = limit(attr.max_cq),
          .max_cqe = limit(attr.max_cqe),
          .max_srq = limit(attr.max_srq),
          .max_srq_wr = limit(attr.max_srq_wr),
          .max_srq_sge = limit(attr.max_srq_sge),
          .max_mr = limit(attr.max_mr),
          .max_mr_size = attr.max_mr_size,
          .max_pd = limit(attr.max_pd)};
}

absl::StatusOr<QueuePlan> PlanQueues(const DeviceLimits& device, const QueueOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckDevice(device, options));
  if (options.window > 0) return Planner(device, options, options.window).Make();
  // The largest window up to the default that fits and that half of the receives can serve.
  for (uint32_t window = kDefaultWindow; window > 1; --window) {
    absl::StatusOr<QueuePlan> plan = Planner(device, options, window).Make();
    if (plan.ok() && window - 1 <= plan->receives / 2) return plan;
  }
  return Planner(device, options, 1).Make();
}

}  // namespace verbena::net
