#include "tests/fuzz/soft_targets.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/net_address.h"
#include "common/base/unique_fd.h"
#include "common/softverbs/cm_socket.h"
#include "common/softverbs/shared_segments.h"
#include "tests/conformance/endpoint.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/tape.h"

namespace verbena::fuzz {
namespace {

using conformance::Api;
using conformance::Endpoint;
using conformance::Event;
using softverbs::CmBody;
using softverbs::CmKind;
using softverbs::CmMessage;

// Nothing is to be waited for longer than that, also with a sanitizer on a busy machine.
constexpr int kPatienceMs = 60'000;

constexpr conformance::Options kSmall{
    .max_send_wr = 4, .max_recv_wr = 4, .cqe = 16, .buffer = 4096};

UniqueFd Memfd(size_t size, bool sealed) {
  UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Check(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(size)) == 0, "a memfd can be had");
  if (sealed) fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return fd;
}

// What a peer may send along. Made once: what is in them stays as it is, zeros.
const std::vector<UniqueFd>& Descriptors() {
  static const auto* const all = [] {
    auto* fds = new std::vector<UniqueFd>;
    fds->push_back(Memfd(sizeof(softverbs::NotifySegment), true));
    fds->push_back(Memfd(sizeof(softverbs::MrTable), true));
    fds->emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    fds->push_back(Memfd(sizeof(softverbs::LinkSegment), true));
    fds->push_back(Memfd(100, true));
    fds->push_back(Memfd(sizeof(softverbs::LinkSegment), false));
    fds->emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
    return fds;
  }();
  return *all;
}

// A message that could be, and then some bytes of it from the tape.
CmMessage TakeMessage(Tape& tape, CmKind usual) {
  const uint8_t choice = tape.Byte();
  CmMessage message(choice < 0xc0 ? usual : static_cast<CmKind>(tape.UpTo(8)));
  CmBody& body = message.body;
  body.process = {tape.Byte(), 1};
  body.responder_resources = body.initiator_depth = 4;
  const sockaddr_in address = conformance::Loopback(1);
  std::memcpy(&body.source, &address, sizeof(address));
  std::memcpy(&body.target, &address, sizeof(address));
  for (int changes = choice % 4; changes > 0; --changes) {
    const size_t at = tape.UpTo(sizeof(body) - 1);
    const size_t size = 1 + tape.UpTo(7);
    tape.Fill({reinterpret_cast<uint8_t*>(&body) + at, std::min(size, sizeof(body) - at)});
  }
  // The descriptors that belong to it, or any.
  const bool segment = message.body.kind == CmKind::kRequest;
  size_t count = segment ? 4 : message.body.kind == CmKind::kReply ? 3 : 0;
  if (message.body.kind == CmKind::kMemory) count = 1;
  if ((choice & 0x10) != 0) count = tape.UpTo(8);
  for (size_t i = 0; i < count; ++i) {
    const size_t usual_fd = message.body.kind == CmKind::kMemory ? 3 : i;
    const bool other = (choice & 0x20) != 0 && tape.Byte() % 4 == 0;
    const size_t index = other ? tape.Byte() : usual_fd;
    message.AddFd(Descriptors()[index % Descriptors().size()].get());
  }
  return message;
}

// The hostile end of a connection's socket.
class HostilePeer {
 public:
  explicit HostilePeer(UniqueFd socket) : socket_(std::move(socket)) {}

  // Returns whether the message announces memory, which is only kept.
  bool Send(Tape& tape, CmKind usual) {
    if (tape.Byte() < 0xf0) {
      const CmMessage message = TakeMessage(tape, usual);
      softverbs::CmSend(socket_.get(), message);
      return message.body.kind == CmKind::kMemory;
    }
    std::array<uint8_t, sizeof(CmBody) + 8> bytes;
    const std::span<uint8_t> some = std::span(bytes).first(1 + tape.UpTo(bytes.size() - 1));
    tape.Fill(some);
    send(socket_.get(), some.data(), some.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return false;
  }
  void Close() { socket_.Reset(); }

  // Waits for the device to close its end, or for an event of `channel`.
  void AwaitEventOrEnd(rdma_event_channel* channel) {
    std::array<pollfd, 2> entries = {pollfd{channel->fd, POLLIN, 0},
                                     pollfd{socket_.get(), POLLRDHUP, 0}};
    int ready;
    do {
      ready = poll(entries.data(), entries.size(), kPatienceMs);
    } while (ready < 0 && errno == EINTR);
    Check(ready > 0, "a first message is acted upon");
  }

 private:
  UniqueFd socket_;
};

// Takes events until one tells that the connection has ended or was never made.
void AwaitEnd(rdma_event_channel* channel) {
  for (;;) {
    const Event event = conformance::NextEvent(channel, kPatienceMs);
    Check(event.get() != nullptr, "the application is told that the other end is gone");
    switch (event->event) {
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED:
      case RDMA_CM_EVENT_DISCONNECTED:
        return;
      default:
        break;
    }
  }
}

NetAddress LoopbackAddress(uint16_t port) {
  const sockaddr_in address = conformance::Loopback(port);
  return NetAddress(reinterpret_cast<const sockaddr*>(&address));
}

// --- A listener, and a client of no good. ---

struct Listener {
  rdma_event_channel* channel = Api().CmCreateEventChannel();
  rdma_cm_id* id = conformance::ListenOnFreePort(channel);
};

void AttackListener(Tape& tape) {
  static const auto& listener = *new Listener;
  Check(listener.id != nullptr, "a listener can be had");
  UniqueFd socket;
  const int error =
      softverbs::CmConnect(LoopbackAddress(conformance::PortOf(listener.id)), &socket);
  Check(error == 0, "the listener goes on");
  HostilePeer peer(std::move(socket));
  if (peer.Send(tape, CmKind::kRequest)) return;
  peer.AwaitEventOrEnd(listener.channel);
  if (!conformance::Readable(listener.channel->fd, 0)) return;
  std::optional<Event> request = conformance::NextEvent(listener.channel, kPatienceMs);
  Check((*request)->event == RDMA_CM_EVENT_CONNECT_REQUEST, "a request comes first");
  rdma_cm_id* const id = (*request)->id;
  request.reset();
  const uint8_t choice = tape.Byte();
  if (choice >= 0xe0) {
    Check(Api().CmReject(id, "no", 2) == 0, "a request can be rejected");
    Check(Api().CmDestroyId(id) == 0, "an id can be destroyed");
    return;
  }
  Endpoint endpoint(id, kSmall);
  rdma_conn_param param = conformance::ConnParam(kSmall);
  if (Api().CmAccept(id, &param) != 0) return;
  for (int more = choice % 4; more > 0; --more) peer.Send(tape, CmKind::kReady);
  peer.Close();
  AwaitEnd(listener.channel);
}

// --- A client, and a server of no good. ---

struct FalseServer {
  FalseServer() {
    NetAddress address = LoopbackAddress(0);
    Check(softverbs::CmListener::Bind(&address, &socket) == 0 && listen(socket.get(), 16) == 0,
          "an address can be had");
    port = address.port();
  }

  rdma_event_channel* channel = Api().CmCreateEventChannel();
  UniqueFd socket;
  uint16_t port = 0;
};

void AttackClient(Tape& tape) {
  static const auto& server = *new FalseServer;
  rdma_cm_id* const id = conformance::ResolvedId(server.channel, server.port);
  Check(id != nullptr, "an address is resolved");
  Endpoint endpoint(id, kSmall);
  rdma_conn_param param = conformance::ConnParam(kSmall);
  Check(Api().CmConnect(id, &param) == 0, "a client connects");
  HostilePeer peer(UniqueFd(accept4(server.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  for (int more = 1 + tape.Byte() % 4; more > 0; --more) peer.Send(tape, CmKind::kReply);
  peer.Close();
  AwaitEnd(server.channel);
}

}  // namespace

void SoftSetup(std::span<const uint8_t> input) {
  Tape tape(input);
  if (tape.Byte() % 2 == 0) {
    AttackListener(tape);
  } else {
    AttackClient(tape);
  }
}

}  // namespace verbena::fuzz
