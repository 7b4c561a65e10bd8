#include "common/verbs/cm.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/verbs/errors.h"
#include "common/verbs/poll_fd.h"

namespace verbena::verbs {

absl::StatusOr<CmChannel> CmChannel::Create(VerbsApi& api) {
  VERBENA_ASSIGN_OR_RETURN(rdma_event_channel* const channel,
                           FromPointer(api.CmCreateEventChannel(), "rdma_create_event_channel"));
  CmChannel owner(internal::Handle<rdma_event_channel>(api, channel));
  VERBENA_RETURN_IF_ERROR(SetNonBlocking(channel->fd));
  return owner;
}

absl::StatusOr<std::optional<CmEvent>> CmChannel::TryGetEvent() {
  rdma_cm_event* event = nullptr;
  const int returned = handle_.api()->CmGetEvent(handle_.get(), &event);
  const int error = ReturnToErrno(returned, errno);
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return std::nullopt;
  if (error != 0) return ErrnoStatus(error, "rdma_get_cm_event", "");
  return CmEvent(*handle_.api(), event);
}

absl::StatusOr<std::optional<CmEvent>> CmChannel::WaitEvent(int timeout_ms) {
  return WaitForEvent(fd(), timeout_ms, [this] { return TryGetEvent(); });
}

absl::StatusOr<CmId> CmId::Create(CmChannel& channel, void* context) {
  rdma_cm_id* id = nullptr;
  VERBENA_RETURN_IF_ERROR(FromMinusOne(
      channel.api().CmCreateId(channel.get(), &id, context, RDMA_PS_TCP), "rdma_create_id"));
  return CmId(internal::Handle<rdma_cm_id>(channel.api(), id));
}

NetAddress CmId::local_address() const { return NetAddress(rdma_get_local_addr(handle_.get())); }

NetAddress CmId::peer_address() const { return NetAddress(rdma_get_peer_addr(handle_.get())); }

absl::Status CmId::Bind(const NetAddress& address) {
  NetAddress copy = address;
  return FromMinusOne(api().CmBindAddr(get(), copy.addr()), "rdma_bind_addr",
                      [&] { return address.ToString(); });
}

absl::Status CmId::Listen(int backlog) {
  return FromMinusOne(api().CmListen(get(), backlog), "rdma_listen",
                      [&] { return local_address().ToString(); });
}

absl::Status CmId::ResolveAddress(const NetAddress& target, int timeout_ms) {
  NetAddress copy = target;
  return FromMinusOne(api().CmResolveAddr(get(), nullptr, copy.addr(), timeout_ms),
                      "rdma_resolve_addr", [&] { return target.ToString(); });
}

absl::Status CmId::ResolveRoute(int timeout_ms) {
  return FromMinusOne(api().CmResolveRoute(get(), timeout_ms), "rdma_resolve_route",
                      [&] { return peer_address().ToString(); });
}

absl::Status CmId::Connect(const rdma_conn_param& param) {
  rdma_conn_param copy = param;
  return FromMinusOne(api().CmConnect(get(), &copy), "rdma_connect",
                      [&] { return peer_address().ToString(); });
}

absl::Status CmId::Accept(const rdma_conn_param& param) {
  rdma_conn_param copy = param;
  return FromMinusOne(api().CmAccept(get(), &copy), "rdma_accept",
                      [&] { return peer_address().ToString(); });
}

absl::Status CmId::Reject(std::span<const uint8_t> private_data) {
  if (private_data.size() > UINT8_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("private data of a rejection has ",
                                                   private_data.size(), " bytes, at most 255 fit"));
  }
  return FromMinusOne(
      api().CmReject(get(), private_data.data(), static_cast<uint8_t>(private_data.size())),
      "rdma_reject", [&] { return peer_address().ToString(); });
}

absl::Status CmId::Disconnect() {
  return FromMinusOne(api().CmDisconnect(get()), "rdma_disconnect",
                      [&] { return peer_address().ToString(); });
}

absl::Status CmId::SetOption(int level, int name, void* value, size_t length, const char* what) {
  return FromMinusOne(api().CmSetOption(get(), level, name, value, length), "rdma_set_option",
                      [&] { return what; });
}

absl::Status CmId::SetAckTimeout(uint8_t code) {
  if (code > 31) {
    return absl::InvalidArgumentError(
        absl::StrCat("ack timeout code ", code, " is out of range (0 to 31)"));
  }
  return SetOption(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code, sizeof(code), "ack timeout");
}

absl::Status CmId::SetTypeOfService(uint8_t tos) {
  return SetOption(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos), "type of service");
}

absl::Status CmId::SetReuseAddress(bool reuse) {
  int value = reuse ? 1 : 0;
  return SetOption(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, sizeof(value),
                   "reuse address");
}

absl::Status CmId::SetIpv6Only(bool only) {
  int value = only ? 1 : 0;
  return SetOption(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value, sizeof(value), "IPv6 only");
}

absl::Status CmId::Migrate(CmChannel& channel) {
  return FromMinusOne(api().CmMigrateId(get(), channel.get()), "rdma_migrate_id");
}

CmEvent::CmEvent(VerbsApi& api, rdma_cm_event* event) : event_(api, event) {
  if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    request_ = internal::Handle<rdma_cm_id>(api, event->id);
  }
}

CmEvent& CmEvent::operator=(CmEvent&& other) noexcept {
  if (this != &other) {
    Finish();
    request_ = std::move(other.request_);
    event_ = std::move(other.event_);
  }
  return *this;
}

std::span<const uint8_t> CmEvent::private_data() const {
  const rdma_conn_param& conn = event_.get()->param.conn;
  if (conn.private_data == nullptr) return {};
  return {static_cast<const uint8_t*>(conn.private_data), conn.private_data_len};
}

CmId CmEvent::TakeRequest() { return CmId(std::move(request_)); }

void CmEvent::Finish() noexcept {
  event_.Reset();
  request_.Reset();
}

}  // namespace verbena::verbs
