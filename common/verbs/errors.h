// The one place where the error conventions of libibverbs and librdmacm become absl::Status, and
// where error numbers, completion statuses and connection events get texts that say what to do.
//
// Three conventions exist in the C libraries:
//   1. 0, or a positive errno (most ibv_* functions)      -> FromReturn
//   2. nullptr with errno set (ibv_* that create objects) -> FromPointer
//   3. -1 with errno set (rdma_*, ibv_get_cq_event, ...)  -> FromMinusOne
// Each adapter reads errno before anything else can change it; details are made by a callable that
// runs only when the call has failed.
//
// Thread-safe.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::verbs {

// The error that `error` (an errno) of the C function `call` means: "ibv_reg_mr (1GiB at ...)
// failed: Cannot allocate memory (errno 12). <what to do>". `detail` may be empty. The errno can be
// asked back with ErrnoOf().
absl::Status ErrnoStatus(int error, std::string_view call, std::string_view detail);

// The status code for an errno.
absl::StatusCode ErrnoCode(int error);

// The errno that a status made here came from; nullopt for any other status.
std::optional<int> ErrnoOf(const absl::Status& status);

// The same status without that, for those who print all that is in it.
absl::Status WithoutErrno(absl::Status status);

// The errno of a return value under convention 1 or 3: 0 stays 0, a positive value is the errno, -1
// means `errno_value` and other negative values are errnos with their sign turned (some providers
// and older librdmacm functions do that). Call first, then this, in two statements: as arguments of
// one call, errno may be read before the function has set it.
int ReturnToErrno(int returned, int errno_value);

namespace internal {
struct NoDetail {
  std::string operator()() const { return {}; }
};
}  // namespace internal

// Convention 1 (and 3: -1 is understood as well). `detail` is a callable that makes a std::string.
template <typename Detail = internal::NoDetail>
absl::Status FromReturn(int returned, const char* call, Detail&& detail = {}) {
  const int error = ReturnToErrno(returned, errno);
  if (error == 0) return absl::OkStatus();
  return ErrnoStatus(error, call, std::forward<Detail>(detail)());
}

// Convention 2.
template <typename T, typename Detail = internal::NoDetail>
absl::StatusOr<T*> FromPointer(T* pointer, const char* call, Detail&& detail = {}) {
  const int error = errno;
  if (pointer != nullptr) return pointer;
  return ErrnoStatus(error, call, std::forward<Detail>(detail)());
}

// Convention 3.
template <typename Detail = internal::NoDetail>
absl::Status FromMinusOne(int returned, const char* call, Detail&& detail = {}) {
  return FromReturn(returned, call, std::forward<Detail>(detail));
}

// Whether a status says that this machine, container or device has no usable RDMA device at all
// (as against a call that failed on a device that is there).
bool IsNoDevice(const absl::Status& status);
// Likewise, or an address that no RDMA device leads to.
bool IsNoRoute(const absl::Status& status);

// A sentence for people about a completion status, with a hint: what happened, what to look at.
const char* WcStatusText(ibv_wc_status status);
// kUnavailable: the network, the peer or a device has failed, and another connection may do.
// kInternal: a request that one of the two programs should not have made.
absl::StatusCode WcStatusCode(ibv_wc_status status);
// The error that a failed completion means. Only wr_id, status, qp_num and vendor_err of `wc` are
// read, since only they are valid then. `what` names the operation ("READ of a bucket"). OK if the
// completion succeeded.
absl::Status WcError(const ibv_wc& wc, std::string_view what);

// A sentence for people about a connection manager event.
const char* CmEventText(rdma_cm_event_type type);
// The error that an event means for someone who waits for a connection or uses one; kOk for events
// that report progress.
absl::StatusCode CmEventCode(rdma_cm_event_type type);
// `status` is rdma_cm_event::status: a negative errno, or for RDMA_CM_EVENT_REJECTED a reason.
// `what` names the target ("127.0.0.1:7000"). OK for events that report progress.
absl::Status CmEventError(rdma_cm_event_type type, int status, std::string_view what);

// rdma_cm_event::status of a rejected connection (InfiniBand's reject reasons, which librdmacm uses
// for every transport).
inline constexpr int kRejectedNoResources = 3;       // descriptors or memory
inline constexpr int kRejectedTimeout = 4;           // it heard no answer from this side
inline constexpr int kRejectedStaleConnection = 10;  // it has this queue pair from another time
inline constexpr int kRejectedByConsumer = 28;       // the server called rdma_reject
inline constexpr int kRejectedNoListener = 8;        // nobody listens on that port

// A sentence about an asynchronous event of a device.
const char* AsyncEventText(ibv_event_type type);

}  // namespace verbena::verbs
