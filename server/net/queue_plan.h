// The arithmetic of queues: how deep they are, and how many connections fit, from a device's limits
// and the server's flags. Pure functions, thread-safe.
//
// What the plan promises, so that no queue can ever overrun:
//   - a worker's receive CQ has 2 x its receive buffers, since every receive may be completed;
//   - a send CQ has 2 x the sum of the send depths of the connections that it serves, since an
//     unsignalled request completes too when it fails;
//   - the sum of the grants of a worker's connections and the margins is at most its receive
//     buffers: one grant (and without an SRQ one margin) is reserved for each connection that may
//     come, the rest is lent to the busy ones.
//
// A flag that the user has set is taken as it is or refused, with the device's limit. What he has
// left to the server (0) shrinks until it fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

struct ibv_device_attr;

namespace verbena::net {

// Bytes of a request or response at most. An odd number of cache lines, so that the heads of
// neighbouring buffers do not fall into the same cache set.
inline constexpr uint32_t kMaxMessage = 193 * 64;
// Values up to this many bytes travel inside a request, whatever its key.
inline constexpr uint32_t kEagerLimit = 8192;

inline constexpr uint32_t kDefaultMaxConnections = 8192;
inline constexpr uint32_t kDefaultReceives = 4096;  // per worker
inline constexpr uint32_t kDefaultWindow = 32;
inline constexpr uint32_t kMaxWindow = 1024;
inline constexpr uint32_t kMaxReceives = 1U << 20;
inline constexpr uint32_t kMaxWorkers = 256;
// Connections of one worker that a wr_id can tell apart.
inline constexpr uint32_t kMaxConnectionsPerWorker = 65535;

// Messages that a client is sent without having asked: probes and changes of its grant. It keeps
// this many receives more than it has requests unanswered.
inline constexpr uint32_t kSpareReceives = 3;
// Receives that are posted beyond what is granted. Honest clients never use them. In a shared
// receive queue of `depth`; fewer than half of them left is an alarm.
constexpr uint32_t SharedMargin(uint32_t depth) {
  if (depth >= 3 * 16) return 16;
  return depth >= 3 ? depth / 3 : 1;
}
// In a connection's own receive queue: one is enough to see that a client sends too much.
inline constexpr uint32_t kOwnMargin = 1;
// READs of a large value that are in flight at once on a connection, and bytes of each at most:
// together 80 us of a link of 100 Gbit/s, far more than a round trip. What a READ has brought a
// worker hashes in some 20 us, and between two of them it looks for other clients' requests.
inline constexpr uint32_t kReadsInFlight = 4;
inline constexpr uint64_t kReadPiece = 256 * 1024;

// Where a device's READ sinks need REMOTE_WRITE, the READs of large values land in pieces of
// staging memory, a READ in each, and are copied from there. The size of a piece: large enough that
// a READ's own cost and its round trip do not count (four of them under way are 1 MiB: 80 us of a
// link of 100 Gbit/s), small enough to be still in the processor's cache when it is copied, which
// takes the worker tens of microseconds. And pieces of a worker: a connection has at most
// kReadsInFlight, so eight of them can have all that they may, and eight that have been cut off,
// which hold theirs until they are given up, are needed to make others wait. A worker copies one
// piece at a time, so more would make nothing faster. 8 MiB, against the 60 MiB of its message
// buffers.
inline constexpr uint64_t kStagingPiece = 256 * 1024;
inline constexpr uint32_t kDefaultStagingPieces = 32;

// What a device can do, from ibv_query_device, and what the process may do with it.
struct DeviceLimits {
  std::string name;
  uint32_t max_qp = 0;
  uint32_t max_qp_wr = 0;
  uint32_t max_sge = 0;
  uint32_t max_cq = 0;
  uint32_t max_cqe = 0;
  uint32_t max_srq = 0;
  uint32_t max_srq_wr = 0;
  uint32_t max_srq_sge = 0;
  uint32_t max_mr = 0;
  uint64_t max_mr_size = 0;  // bytes; 0: not known
  uint32_t max_pd = 0;
  // READs may not land in the slice (verbs::Capabilities::read_sink_needs_remote_write).
  bool stage_reads = false;
  // Why shared receive queues are not to be used although the device names some; empty: no reason.
  std::string no_srq{};
  // File descriptors that a connection takes at most (0: none, no limit), and those to be had.
  uint32_t descriptors_per_connection = 0;
  uint64_t descriptors = 0;
  uint64_t descriptor_limit = 0;  // RLIMIT_NOFILE, for people
};

// What ibv_query_device says of the device `name`; nothing about file descriptors and staging.
DeviceLimits LimitsOf(std::string name, const ibv_device_attr& attr);

// What the user asks for; 0 leaves it to the server, except for `workers`.
struct QueueOptions {
  uint32_t workers = 1;
  uint32_t max_connections = 0;  // 0: kDefaultMaxConnections or what fits, whichever is less
  uint32_t srq_depth = 0;  // receives per worker; 0: kDefaultReceives, or more if needed, or what
                           // fits
  uint32_t window = 0;     // 0: kDefaultWindow, or what fits
  bool use_srq = true;     // false: each connection has a receive queue of its own
  // Of staging memory per worker, where READs are staged; 0: kDefaultStagingPieces, or what fits.
  uint32_t staging_pieces = 0;
};

struct QueuePlan {
  uint32_t workers = 0;
  uint32_t window = 0;
  // Empty: a worker's connections share a receive queue. Else each has its own, filled out of the
  // same number of buffers, and this is the reason: "max_srq = 0", ...
  std::string no_srq{};
  uint32_t receives = 0;             // buffers per worker; the depth of its SRQ
  uint32_t receive_cq_depth = 0;     // per worker
  uint32_t receive_depth = 0;        // of a connection's own receive queue; 0 with an SRQ
  uint32_t send_depth = 0;           // per connection
  uint32_t send_cq_depth = 0;        // of each send CQ
  uint32_t connections_per_cq = 0;   // that share a send CQ
  uint32_t send_cqs_per_worker = 0;  // at most; made as connections come
  uint32_t connections_per_worker = 0;
  uint32_t max_connections = 0;  // of the device
  // Of kStagingPiece bytes, per worker, for READs to land in; 0: they land in the slice.
  uint32_t staging_pieces = 0;

  bool shared_receives() const { return no_srq.empty(); }
  // Receives beyond the grants: of a worker, and of each of its connections.
  uint32_t worker_margin() const { return shared_receives() ? SharedMargin(receives) : 0; }
  uint32_t connection_margin() const { return shared_receives() ? 0 : kOwnMargin; }
  uint64_t staging_bytes() const { return staging_pieces * kStagingPiece; }  // per worker
  // Credits that are lent to busy connections.
  uint32_t spare_credits() const {
    return receives - worker_margin() - connections_per_worker * (1 + connection_margin());
  }
  // For people, one line.
  std::string Describe() const;
};

// InvalidArgument names the flag, the value asked for, the device and its limit.
absl::StatusOr<QueuePlan> PlanQueues(const DeviceLimits& device, const QueueOptions& options);

}  // namespace verbena::net
