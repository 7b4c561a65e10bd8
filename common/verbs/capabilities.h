// What a device can do and what it needs, where devices differ: asked of its transport and of
// ibv_query_device, never guessed from its name. One place for it, so that code and tests ask for a
// property ("does a READ's sink need REMOTE_WRITE?") and not for a kind of device.
//
// What cannot be asked is not here, above all whether access flags protect anything: some devices
// let a peer read whatever is registered in the protection domain of its queue pair, whatever the
// flags say. Only the protection domain can be relied on, everywhere.
//
// A value type; thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/verbs/device.h"

namespace verbena::verbs {

// How long a sender that found no receive posted waits is set by the receiver (ibv_modify_qp,
// IBV_QP_MIN_RNR_TIMER). iWARP has no such thing.
inline bool HasRnrTimer(ibv_transport_type transport) { return transport != IBV_TRANSPORT_IWARP; }

// Ports have a table of GIDs by which peers are addressed. iWARP addresses them by IP alone,
// whatever its drivers put there.
inline bool HasGids(ibv_transport_type transport) { return transport != IBV_TRANSPORT_IWARP; }

class Capabilities {
 public:
  static absl::StatusOr<Capabilities> Of(const DeviceView& device);
  Capabilities(ibv_transport_type transport, const ibv_device_attr& limits)
      : iwarp_(transport == IBV_TRANSPORT_IWARP), limits_(limits) {}

  // What ibv_query_device said.
  const ibv_device_attr& limits() const { return limits_; }

  // Transport.

  // iWARP answers a READ with tagged messages to a key that the reader named: the reader's buffer
  // must allow REMOTE_WRITE. Nowhere else may it.
  bool read_sink_needs_remote_write() const { return iwarp_; }
  // Access flags for memory that READs of this side land in.
  int read_sink_access() const {
    return IBV_ACCESS_LOCAL_WRITE | (read_sink_needs_remote_write() ? IBV_ACCESS_REMOTE_WRITE : 0);
  }
  // Pieces of memory that one READ may be scattered over. An iWARP READ names one sink (its drivers
  // may report success all the same and leave the second piece unwritten); a device that states
  // none is taken at one.
  uint32_t read_scatter_elements() const;
  // SEND and WRITE may carry four bytes that arrive in the completion. iWARP has none.
  bool immediate_data() const { return !iwarp_; }
  // A SEND that finds no receive posted is held back and tried again. On iWARP it ends the
  // connection, and its sender may even see success.
  bool waits_for_receives() const { return !iwarp_; }
  // The passive side may not send before the active side has (RFC 5044).
  bool client_must_send_first() const { return iwarp_; }
  // rdma_connect may open a TCP connection before it returns, and rdma_destroy_id waits until a
  // connection that is being opened stands or has failed: both may take far longer than somebody
  // would wait.
  bool connecting_blocks() const { return iwarp_; }
  // Lost packets are repeated by the device, as often and as soon as retry_count and the ack
  // timeout say. On iWARP they are TCP's business, which has its own timers.
  bool transport_retries() const { return !iwarp_; }
  // A READ that the peer's device refuses completes with a status that says so. On iWARP the
  // connection ends, and the READ is flushed like the rest.
  bool refused_reads_have_a_status() const { return !iwarp_; }
  bool gids() const { return !iwarp_; }

  // Objects.

  // Shared receive queues, and how many receives one holds at most.
  bool shared_receive_queues() const { return limits_.max_srq > 0 && limits_.max_srq_wr > 0; }
  // COMPARE_AND_SWAP and FETCH_AND_ADD, atomic among operations of this device at least.
  bool atomics() const { return limits_.atomic_cap != IBV_ATOMIC_NONE; }

 private:
  bool iwarp_;
  ibv_device_attr limits_;
};

}  // namespace verbena::verbs
