/// \file
/// How a client connects and behaves.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace verbena {

/// Plain values; copy freely.
struct Options {
  /// "verbs" (an RDMA adapter), "soft" (the software device, server on this host) or "auto": verbs
  /// if the route to the server has an RDMA device, else soft if the server's address is this
  /// host's, else an error that names both reasons. What was taken is in Connection::fabric().
  std::string fabric = "auto";

  /// For the whole of connecting, name resolution excepted. From 1 ms on, as the next one.
  std::chrono::milliseconds connect_timeout{5000};
  /// For each operation, from submission to callback, whatever the transport retries and however
  /// often the connection is lost and made again. The time counts while somebody polls: it begins
  /// with the first look after the submission, and Poll, PollAndArm and the calls that wait look
  /// for it every few milliseconds. One operation that is late tears the connection down, since the
  /// adapter may still write to its memory; the others in flight are repeated on the next
  /// connection, each within its own time (with `reconnect` off they fail).
  std::chrono::milliseconds operation_timeout{5000};

  /// Whether a connection that is lost is made again, and what was in flight goes on with it (see
  /// Connection). False: the first loss is the end of the Connection.
  bool reconnect = true;

  /// Operations in flight at once (1 to 1024); one more is refused with ResourceExhausted.
  uint32_t depth = 64;

  /// Memory for copies of the server's index; with the whole index in it nearly every GET is one
  /// READ. 0 turns the cache off (so does less than the 36 KiB of a segment): then every GET READs
  /// the bucket first.
  uint64_t cache_bytes = uint64_t{64} << 20;

  /// True: connecting READs the whole index into the cache, as far as there is room, with few large
  /// READs (36 KiB for some 2,000 keys), so that the first GET of each key is one READ, too. Of
  /// connections that share a cache only the first one does it.
  bool preload = false;

  /// False: GETs are SENT to the server and answered by its CPU. For comparison and diagnosis.
  bool one_sided_reads = true;

  // Adapter and network. Deadlines above hold whatever is set here.

  /// Type of service of this side's packets (0 to 255; the DSCP times 4), by which switches and
  /// adapters choose a traffic class (PFC, ECN). Over RoCE the server's packets have it too, unless
  /// the server sets its own. Not set: as the system is configured.
  std::optional<uint32_t> tos;
  /// How long the adapter waits for an acknowledgement before it repeats a packet: 4.096 us *
  /// 2^ack_timeout (1 to 31; 14 is 67 ms). iWARP has TCP's own timers instead.
  uint32_t ack_timeout = 14;
  /// How often it repeats before the connection fails (0 to 7; 7 is for ever on some devices).
  uint32_t retry_count = 6;
  /// How long the server waits before it repeats a message that found no receive posted here: a
  /// code of the InfiniBand specification (0 to 31; 1 is 0.01 ms, 12 is 0.64 ms, 14 is 1.28 ms, 20
  /// is 10 ms, 0 is 655 ms).
  uint32_t rnr_timer = 12;

  /// How long waiting calls poll before they sleep on the completion channel. Polling is fastest
  /// and costs a core while it lasts; 0 sleeps at once. Not negative.
  std::chrono::microseconds poll_time{100};
};

}  // namespace verbena
