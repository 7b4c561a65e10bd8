#include "common/verbs/errors.h"

#include <sys/resource.h>

#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"
#include "common/base/text.h"

namespace verbena::verbs {
namespace {

constexpr char kErrnoPayload[] = "verbena/errno";

std::string ErrnoText(int error) {
  char buffer[128];
  // The GNU variant: returns the text, which may or may not be in `buffer`.
  return strerror_r(error, buffer, sizeof(buffer));
}

std::string LockedMemoryLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return FormatSize(limit.rlim_cur);
}

std::string LockedMemoryHint() {
  return absl::StrCat(
      "Registered memory is locked memory, whose limit here is ", LockedMemoryLimit(),
      ": raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, or "
      "`--ulimit memlock=-1` for a container.");
}

constexpr char kNoDeviceHint[] =
    "There is no usable RDMA device: check that `ibv_devices` lists one, that the rdma_ucm and "
    "ib_uverbs kernel modules are loaded, that /dev/infiniband is visible in this container, and "
    "that the provider package (ibverbs-providers) is installed; or use the software fabric "
    "(--fabric=soft) on one host.";

bool Creates(std::string_view call) {
  return call.find("create") != std::string_view::npos ||
         call.find("alloc") != std::string_view::npos ||
         call.find("reg_mr") != std::string_view::npos;
}

// What a user can do about `error` of `call`; empty where nothing better than the text is known.
std::string Remedy(int error, std::string_view call) {
  switch (error) {
    case ENOMEM:
      if (call == "ibv_reg_mr") return LockedMemoryHint();
      if (Creates(call)) {
        return absl::StrCat(
            "The device has no room for it, or locked memory ran out. Ask for less (fewer "
            "connections, shallower queues). ",
            LockedMemoryHint());
      }
      return "A queue is full, or memory ran out.";
    case EPERM:
      if (call == "ibv_reg_mr" || Creates(call)) return LockedMemoryHint();
      return "Not permitted: check the permissions of /dev/infiniband and the container's devices.";
    case EACCES:
      return "Check the permissions of /dev/infiniband/rdma_cm and uverbs* for this user.";
    case ENODEV:
    case ENOSYS:
    case ENXIO:
      return kNoDeviceHint;
    case ENOENT:
      if (call == "rdma_create_event_channel") return kNoDeviceHint;
      return {};
    case EMFILE:
      return "This process has too many open files: raise `ulimit -n` (LimitNOFILE in systemd).";
    case ENFILE:
      return "This machine has too many open files: raise the sysctl fs.file-max.";
    case EAGAIN:
      if (!Creates(call)) return {};
      return "There are too many threads or processes: see `ulimit -u`, and pids.max of the "
             "control "
             "group.";
    case EADDRINUSE:
      return "Another program listens on this port: choose another port or stop that program "
             "(`ss -ltnp` and `rdma resource show cm_id` show who it is).";
    case EADDRNOTAVAIL:
      return "The address is not one of this machine's, or its network has no RDMA device: "
             "`ip address` and `rdma link` list what is there.";
    case EINVAL:
      if (Creates(call)) {
        return "The device refuses these sizes or flags: compare them with `ibv_devinfo -v`.";
      }
      return {};
    case EFAULT:
      return "The memory is not mapped, or mapped read-only.";
    case EOPNOTSUPP:
      return "This device or its driver does not support it.";
    case EBUSY:
      return "Something that depends on the object still exists.";
    case ETIMEDOUT:
      return "No answer: check that the address is right and that the network lets RDMA traffic "
             "(UDP port 4791 for RoCE) through.";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "There is no route to the address over an RDMA device.";
    case ECONNREFUSED:
      return "Nobody listens there: check the address and port, and that the server runs.";
    default:
      return {};
  }
}

}  // namespace

absl::StatusCode ErrnoCode(int error) {
  switch (error) {
    case 0:
      return absl::StatusCode::kOk;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case ENOBUFS:
      return absl::StatusCode::kResourceExhausted;
    case EPERM:
    case EACCES:
      return absl::StatusCode::kPermissionDenied;
    case EBUSY:
    case ENOTCONN:
    case EISCONN:
      return absl::StatusCode::kFailedPrecondition;
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case EAFNOSUPPORT:
      return absl::StatusCode::kUnimplemented;
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EADDRINUSE:
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EINVAL:
    case EFAULT:
    case EADDRNOTAVAIL:
    case ERANGE:
    case E2BIG:
      return absl::StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case EAGAIN:
    case EINTR:
    case ENODEV:  // no device, no fabric: see IsNoDevice
    case ENXIO:
    case ENOSYS:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EPIPE:
    case ESHUTDOWN:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrnoStatus(int error, std::string_view call, std::string_view detail) {
  // A call that failed without saying why must still be a failure.
  if (error == 0) error = EIO;
  std::string text(call);
  if (!detail.empty()) absl::StrAppend(&text, " (", ToAbsl(detail), ")");
  absl::StrAppend(&text, " failed: ", ErrnoText(error), " (errno ", error, ").");
  if (const std::string remedy = Remedy(error, call); !remedy.empty()) {
    absl::StrAppend(&text, " ", remedy);
  }
  // What creates something and finds no thread for it has run out of them.
  const auto code =
      error == EAGAIN && Creates(call) ? absl::StatusCode::kResourceExhausted : ErrnoCode(error);
  absl::Status status(code, text);
  status.SetPayload(kErrnoPayload, absl::Cord(absl::StrCat(error)));
  return status;
}

absl::Status WithoutErrno(absl::Status status) {
  status.ErasePayload(kErrnoPayload);
  return status;
}

std::optional<int> ErrnoOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrnoPayload);
  int error = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &error)) return std::nullopt;
  return error;
}

int ReturnToErrno(int returned, int errno_value) {
  if (returned >= 0) return returned;
  if (returned == -1) return errno_value != 0 ? errno_value : EIO;
  return -returned;
}

bool IsNoDevice(const absl::Status& status) {
  const std::optional<int> error = ErrnoOf(status);
  return error == ENODEV || error == ENXIO || error == ENOSYS || error == ENOENT;
}

bool IsNoRoute(const absl::Status& status) {
  const std::optional<int> error = ErrnoOf(status);
  return IsNoDevice(status) || error == ENETUNREACH || error == EHOSTUNREACH ||
         error == EADDRNOTAVAIL;
}

const char* WcStatusText(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "local length error: a message was longer than the receive buffer, or a request than "
             "the device allows";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local queue pair operation error: the device could not carry out the request (is the "
             "link up? `rdma link` and `ip link` tell), or it is not valid for this queue pair";
    case IBV_WC_LOC_EEC_OP_ERR:
      return "local end-to-end context error (not used by reliable connections)";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error: the local buffer is not covered by its memory key, or the "
             "key belongs to another protection domain or is no longer registered";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed: the connection had already failed or was closed, so this request was not "
             "carried out (or its outcome is unknown)";
    case IBV_WC_MW_BIND_ERR:
      return "memory window bind error";
    case IBV_WC_BAD_RESP_ERR:
      return "bad response: the peer's device answered with something that does not belong to the "
             "request";
    case IBV_WC_LOC_ACCESS_ERR:
      return "local access error: the local buffer does not allow this access";
    case IBV_WC_REM_INV_REQ_ERR:
      return "remote invalid request: the peer does not accept this kind of request, or its "
             "receive "
             "buffer is too small";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error: the peer's memory key does not cover the address, does not "
             "allow the access, or has been withdrawn (has the server restarted?)";
    case IBV_WC_REM_OP_ERR:
      return "remote operation error: the peer could not carry out the request, for example "
             "because "
             "it cannot reach its own memory";
    case IBV_WC_RETRY_EXC_ERR:
      return "no answer after all retries: the peer is unreachable or gone (process ended, host "
             "down, cable or switch, firewall)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive buffer posted after all retries: it is overloaded, or "
             "credits "
             "were miscounted";
    case IBV_WC_LOC_RDD_VIOL_ERR:
      return "local RDD violation (not used by reliable connections)";
    case IBV_WC_REM_INV_RD_REQ_ERR:
      return "remote invalid RD request (not used by reliable connections)";
    case IBV_WC_REM_ABORT_ERR:
      return "the peer aborted the request: look at the kernel's log on its host";
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
      return "invalid end-to-end context (not used by reliable connections)";
    case IBV_WC_FATAL_ERR:
      return "fatal transport error: the device cannot go on; look at the kernel's log";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "the peer did not respond in time: it is unreachable or overloaded";
    case IBV_WC_GENERAL_ERR:
      return "general transport error: look at the kernel's log on both hosts";
    default:
      return "unknown completion status";
  }
}

absl::StatusCode WcStatusCode(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return absl::StatusCode::kOk;
    // The network, the peer or a device: another connection may do.
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ACCESS_ERR:  // the key was withdrawn: the server has begun anew
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
    // What some drivers say when the link is down.
    case IBV_WC_LOC_QP_OP_ERR:
      return absl::StatusCode::kUnavailable;
    // Requests that one of the two programs should not have made.
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status WcError(const ibv_wc& wc, std::string_view what) {
  if (wc.status == IBV_WC_SUCCESS) return absl::OkStatus();
  return absl::Status(WcStatusCode(wc.status),
                      absl::StrCat(ToAbsl(what), " failed: ", WcStatusText(wc.status),
                                   " (completion status ", static_cast<int>(wc.status), ", QP ",
                                   wc.qp_num, ", vendor error ", wc.vendor_err, ")"));
}

const char* CmEventText(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return "address resolved";
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "the address could not be resolved to an RDMA device";
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return "route resolved";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "no route over the RDMA network";
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return "connection request";
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return "connection response";
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "the connection could not be made";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "the peer does not answer (not running, wrong address, or a firewall)";
    case RDMA_CM_EVENT_REJECTED:
      return "the peer refused the connection";
    case RDMA_CM_EVENT_ESTABLISHED:
      return "connection established";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "the connection was closed by the peer or broke";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "the RDMA device was removed";
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      return "multicast group joined";
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return "multicast error";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "the address moved to another device";
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return "the connection's time-wait is over";
    default:
      return "unknown connection event";
  }
}

namespace {

// Why the peer's connection manager has refused, where it was not the program's doing: on
// InfiniBand and RoCE a number that the specification lists, on iWARP an errno with its sign
// turned.
std::string RejectText(int reason) {
  if (reason < 0) return absl::StrCat(ErrnoText(-reason), " (errno ", -reason, ")");
  const auto text = [reason]() -> const char* {
    switch (reason) {
      case 1:
      case 2:
      case 3:
      case 27:
        return "it has no room for another one";
      case kRejectedTimeout:
        return "it heard no answer from this side";
      case 5:
      case 9:
      case 31:
        return "it does not know this kind of request";
      case 6:
      case 7:
      case 30:
        return "it takes the request for part of another one";
      case kRejectedStaleConnection:
        return "it has this queue pair from an earlier connection";
      case 12:
      case 13:
      case 18:
      case 19:
        return "it knows no such address (GID or LID)";
      case 14:
      case 15:
      case 16:
      case 17:
      case 20:
      case 21:
      case 22:
      case 23:
      case 32:
      case 33:
        return "it cannot answer on this path (service or traffic class, rate, hops)";
      case 24:
      case 25:
        return "it wants to be asked at another port";
      case 26:
        return "its MTU is smaller than the path's";
      case 29:
        return "it does not take the number of RNR retries";
      default:
        return "for a reason that is not known";
    }
  }();
  return absl::StrCat(text, " (reason ", reason, ")");
}

}  // namespace

absl::StatusCode CmEventCode(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return absl::StatusCode::kUnavailable;
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kOk;
  }
}

absl::Status CmEventError(rdma_cm_event_type type, int status, std::string_view what) {
  const absl::StatusCode code = CmEventCode(type);
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  std::string text = absl::StrCat(ToAbsl(what), ": ", CmEventText(type));
  if (status == -EMFILE || status == -ENFILE) {
    // The event is one of those that tell of a peer, but this is about here.
    return ErrnoStatus(-status, "connecting to", what);
  }
  if (type == RDMA_CM_EVENT_REJECTED) {
    if (status == kRejectedNoListener || status == -ECONNREFUSED) {
      absl::StrAppend(&text, ": nobody listens on that port");
    } else if (status == kRejectedNoResources) {
      absl::StrAppend(&text,
                      ": that process, or its machine, has no room for another connection "
                      "(see its log, and `ulimit -n` there)");
    } else if (status != kRejectedByConsumer) {
      absl::StrAppend(&text, ": ", RejectText(status));
    }
    return absl::Status(code, text);
  }
  if (status != 0) {
    const int error = status < 0 ? -status : status;
    absl::StrAppend(&text, ": ", ErrnoText(error), " (errno ", error, ")");
    if (const std::string remedy = Remedy(error, ""); !remedy.empty()) {
      absl::StrAppend(&text, ". ", remedy);
    }
    absl::Status result(code, text);
    result.SetPayload(kErrnoPayload, absl::Cord(absl::StrCat(error)));
    return result;
  }
  return absl::Status(code, text);
}

const char* AsyncEventText(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return "completion queue error (overrun): completions were lost";
    case IBV_EVENT_QP_FATAL:
      return "fatal error of a queue pair";
    case IBV_EVENT_QP_REQ_ERR:
      return "a peer sent an invalid request";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "a peer tried an access that is not allowed";
    case IBV_EVENT_COMM_EST:
      return "communication established before the connection event";
    case IBV_EVENT_SQ_DRAINED:
      return "send queue drained";
    case IBV_EVENT_PATH_MIG:
      return "path migrated";
    case IBV_EVENT_PATH_MIG_ERR:
      return "path migration failed";
    case IBV_EVENT_DEVICE_FATAL:
      return "fatal error of the device";
    case IBV_EVENT_PORT_ACTIVE:
      return "port active";
    case IBV_EVENT_PORT_ERR:
      return "port down";
    case IBV_EVENT_LID_CHANGE:
      return "port's local identifier changed";
    case IBV_EVENT_PKEY_CHANGE:
      return "port's partition keys changed";
    case IBV_EVENT_SM_CHANGE:
      return "subnet manager changed";
    case IBV_EVENT_SRQ_ERR:
      return "shared receive queue error";
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return "shared receive queue fell under its limit";
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return "queue pair takes no more receives from its shared receive queue";
    case IBV_EVENT_CLIENT_REREGISTER:
      return "subnet manager asks for registration again";
    case IBV_EVENT_GID_CHANGE:
      return "port's addresses changed";
    case IBV_EVENT_WQ_FATAL:
      return "fatal error of a work queue";
    default:
      return "unknown asynchronous event";
  }
}

}  // namespace verbena::verbs
