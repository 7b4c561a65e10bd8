// Connection parameters, always filled in whole: a zero-initialised rdma_conn_param means "fail on
// the first missing receive" and "no READs", and makes READs hang on some devices.
//
// Thread-safe (values only).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/verbs/cm.h"
#include "common/verbs/queues.h"
#include "common/verbs/verbs_api.h"

namespace verbena::verbs {

struct ConnectOptions {
  // READs that this side may have outstanding at the peer, and the peer at this side.
  uint8_t initiator_depth = 16;
  uint8_t responder_resources = 16;
  // Repeats of an unanswered packet before the connection fails. 6: seconds on common devices; 7
  // means for ever on some.
  uint8_t retry_count = 6;
  // Repeats for a receiver without a posted receive buffer. 7: for ever. (With credits this is only
  // a backstop.) Each side tells the other how often to repeat.
  uint8_t rnr_retry_count = 7;
  // Time to wait for an acknowledgement: 4.096 us * 2^code (14: 67 ms).
  uint8_t ack_timeout = 14;
  // How long the peer waits before it repeats such a message: 5-bit code, 12 = 0.64 ms. The
  // connection manager leaves it at 0, which means 655 ms.
  uint8_t min_rnr_timer = 12;
  // Type of service of the connection's packets (the upper six bits are the DSCP, by which switches
  // and adapters choose a traffic class). Not set: as the system is configured.
  std::optional<uint8_t> tos = std::nullopt;
};

// What a user may ask for of these.
struct ConnectRange {
  const char* name;
  uint32_t least;
  uint32_t most;
  const char* meaning;

  // "1 to 31 (...)".
  std::string ToString() const;
  // InvalidArgument names the option, its value and the range.
  absl::StatusOr<uint8_t> Check(uint64_t value) const;
};
inline constexpr ConnectRange kTosRange = {"tos", 0, 255,
                                           "the packets' type of service; DSCP times 4"};
// 0 would mean that a lost packet is never repeated.
inline constexpr ConnectRange kAckTimeoutRange = {"ack_timeout", 1, 31,
                                                  "a code: 4.096 us * 2^code, so 14 is 67 ms"};
inline constexpr ConnectRange kRetryCountRange = {
    "retry_count", 0, 7, "repeats of an unanswered packet; 7 is for ever on some devices"};
inline constexpr ConnectRange kRnrTimerRange = {
    "rnr_timer", 0, 31,
    "a code of the InfiniBand specification: 1 is 0.01 ms, 12 is 0.64 ms, "
    "14 is 1.28 ms, 20 is 10 ms, 31 is 492 ms, 0 is 655 ms"};

// The same options within what a device can do. (iWARP wants an initiator depth of at least 1.)
inline ConnectOptions LimitToDevice(ConnectOptions options, const ibv_device_attr& attr) {
  const auto limit = [](uint8_t wanted, int most) {
    return static_cast<uint8_t>(std::clamp(most, 1, int{std::max<uint8_t>(wanted, 1)}));
  };
  options.initiator_depth = limit(options.initiator_depth, attr.max_qp_init_rd_atom);
  options.responder_resources = limit(options.responder_resources, attr.max_qp_rd_atom);
  return options;
}

// The same options within what the peer's connection request offers; `offered` is the event's
// parameters, which are already seen from this side. An accept must not exceed them.
inline ConnectOptions LimitToRequest(ConnectOptions options, const rdma_conn_param& offered) {
  options.initiator_depth = std::min(options.initiator_depth, offered.initiator_depth);
  options.responder_resources = std::min(options.responder_resources, offered.responder_resources);
  return options;
}

// `private_data` is borrowed until the call that uses the result; at most 255 bytes (InfiniBand
// carries 56 with a connect and 196 with an accept).
inline rdma_conn_param MakeConnParam(const ConnectOptions& options,
                                     std::span<const uint8_t> private_data) {
  rdma_conn_param param{};
  param.private_data = private_data.data();
  param.private_data_len = static_cast<uint8_t>(std::min<size_t>(private_data.size(), UINT8_MAX));
  param.responder_resources = options.responder_resources;
  param.initiator_depth = options.initiator_depth;
  param.flow_control = 1;
  param.retry_count = options.retry_count;
  param.rnr_retry_count = options.rnr_retry_count;
  return param;
}

// All options that an id must have before it resolves an address, listens, or accepts: the type of
// service and the ack timeout. Devices and kernels without the timeout keep their own: not an
// error. A type of service that cannot be had is one, since somebody asked for it.
absl::Status ApplyBeforeConnect(CmId& id, const ConnectOptions& options);

// All options that are set on each side once the connection stands: the RNR timer, where the device
// has one.
absl::Status ApplyAfterConnect(const CmId& id, QueuePair& qp, const ConnectOptions& options);

// What a connected queue pair has of these options as the device itself tells (ibv_query_qp), for a
// log: "QP 17: tos 104, ack_timeout 15, retry_count 5, rnr_timer 14, READs 16 out, 128 in, GID
// index 1". iWARP devices have none of them, and their answers mean nothing: "QP 3: iWARP, TCP
// repeats".
std::string DescribeConnection(const CmId& id, const QueuePair& qp);

}  // namespace verbena::verbs
