// The arithmetic of queues: how deep they are, and how many connections fit, from a device's limits
// and the server's flags. Pure functions, thread-safe.
//
// What the plan promises, so that no queue can ever overrun:
//   - a worker's receive CQ has 2 x the depth of its SRQ, since every receive may be completed;
//   - a send CQ has 2 x the sum of the send depths of the connections that it serves, since an
//     unsignalled request completes too when it fails;
//   - the sum of the grants of a worker's connections is at most the depth of its SRQ, less a
//     margin: one is reserved for each connection that may come, the rest is lent to the busy ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace verbena::net {

// Bytes of a request or response at most. An odd number of cache lines, so that the heads of
// neighbouring buffers do not fall into the same cache set.
inline constexpr uint32_t kMaxMessage = 193 * 64;
// Values up to this many bytes travel inside a request, whatever its key.
inline constexpr uint32_t kEagerLimit = 8192;

inline constexpr uint32_t kDefaultMaxConnections = 8192;
inline constexpr uint32_t kDefaultSrqDepth = 4096;  // per worker
inline constexpr uint32_t kDefaultWindow = 32;
inline constexpr uint32_t kMaxWindow = 1024;
inline constexpr uint32_t kMaxSrqDepth = 1U << 20;
inline constexpr uint32_t kMaxWorkers = 256;
// Connections of one worker that a wr_id can tell apart.
inline constexpr uint32_t kMaxConnectionsPerWorker = 65535;

// Messages that a client is sent without having asked: probes and changes of its grant. It keeps
// this many receives more than it has requests unanswered.
inline constexpr uint32_t kSpareReceives = 3;
// Receives that are posted beyond what is granted. Honest clients never use them, so fewer than
// half of them left is an alarm.
inline constexpr uint32_t kReceiveMargin = 16;
// READs of a large value that are in flight at once on a connection, and bytes of each at most.
inline constexpr uint32_t kReadsInFlight = 4;
inline constexpr uint64_t kReadPiece = 1024 * 1024;

// What a device can do, from ibv_query_device.
struct DeviceLimits {
  std::string name;
  uint32_t max_qp = 0;
  uint32_t max_qp_wr = 0;
  uint32_t max_cq = 0;
  uint32_t max_cqe = 0;
  uint32_t max_srq = 0;
  uint32_t max_srq_wr = 0;
  uint64_t max_mr_size = 0;  // bytes; 0: not known
};

// What the user asks for.
struct QueueOptions {
  uint32_t workers = 1;
  uint32_t max_connections = 0;  // 0: kDefaultMaxConnections or what fits, whichever is less
  uint32_t srq_depth = 0;        // per worker; 0: kDefaultSrqDepth, or more if needed, or what fits
  uint32_t window = kDefaultWindow;
};

struct QueuePlan {
  uint32_t workers = 0;
  uint32_t window = 0;
  uint32_t srq_depth = 0;            // per worker
  uint32_t receive_cq_depth = 0;     // per worker
  uint32_t send_depth = 0;           // per connection
  uint32_t send_cq_depth = 0;        // of each send CQ
  uint32_t connections_per_cq = 0;   // that share a send CQ
  uint32_t send_cqs_per_worker = 0;  // at most; made as connections come
  uint32_t connections_per_worker = 0;
  uint32_t max_connections = 0;  // of the device

  // Requests that a worker's clients may have unanswered together.
  uint32_t credits() const { return srq_depth - kReceiveMargin; }
  // Of these, the ones that are lent to busy connections.
  uint32_t spare_credits() const { return credits() - connections_per_worker; }
};

// InvalidArgument names the flag, the value asked for, the device and its limit.
absl::StatusOr<QueuePlan> PlanQueues(const DeviceLimits& device, const QueueOptions& options);

}  // namespace verbena::net
