// How deep the queues of a client's endpoint are, within what the device can do: arithmetic only.
//
// Thread-safe (values only).
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/verbs/capabilities.h"

namespace verbena::client {

struct EndpointPlan {
  // READs that are ever posted at once, and requests that are ever unanswered at once. The device
  // carries out as many READs at a time as were negotiated (at most max_qp_init_rd_atom) and holds
  // the send queue back meanwhile, which is no error: so many READs can share a doorbell.
  static constexpr uint32_t kMostReads = 64;
  static constexpr uint32_t kMostRequests = 32;
  // The server may send as many messages unasked (probes, changes of the grant).
  static constexpr uint32_t kSpareReceives = 3;

  uint32_t reads = 0;        // posted and not completed
  uint32_t requests = 0;     // unanswered
  uint32_t receives = 0;     // posted: an answer to each request, and the spare ones
  uint32_t send_depth = 0;   // places in the send queue
  uint32_t completions = 0;  // entries of the completion queue

  // For up to `operations` (at least 1) at once on `device`. READs are always signalled, and
  // `reads` places of the send queue are theirs. The others, reads + 2 * requests, are for
  // requests, which are signalled now and then: at least send_depth / 4 (after so many one is) more
  // than there are requests, so that those without a signal cannot fill their part. The completion
  // queue has twice the places of both queues, so that it cannot overrun whatever the device
  // counts. Where the device cannot do that, there are fewer READs and requests (down to one each),
  // and more operations wait for their turn. FailedPrecondition if even that does not fit; names
  // the limit, the device's value and what is needed.
  static absl::StatusOr<EndpointPlan> Make(const verbs::Capabilities& device,
                                           std::string_view device_name, uint32_t operations);
};

// OK if the device can register `bytes` in one piece, else ResourceExhausted that names `what`, the
// limit (max_mr_size) and the device's value, with `remedy` at the end.
absl::Status CheckRegistration(const verbs::Capabilities& device, std::string_view device_name,
                               uint64_t bytes, std::string_view what, std::string_view remedy);

}  // namespace verbena::client
