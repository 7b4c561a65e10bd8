// Messages of the connection manager between two ends, over SOCK_SEQPACKET sockets in the abstract
// namespace (nothing is left in a file system). Both ends run the same build on the same host, so
// a message is a struct; magic and size are checked all the same.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/net_address.h"
#include "common/base/unique_fd.h"

namespace verbena::softverbs {

inline constexpr size_t kConnectData = 56;
inline constexpr size_t kAcceptData = 196;
inline constexpr size_t kRejectData = 148;
// IB CM reject reasons, as rdma_cm reports them.
inline constexpr int kRejectNoResources = 3;
inline constexpr int kRejectNobodyListens = 8;
inline constexpr int kRejectByConsumer = 28;

enum class CmKind : uint32_t {
  kRequest = 1,     // active -> passive; descriptors below
  kReply = 2,       // passive -> active; descriptors below
  kReject = 3,      // passive -> active
  kReady = 4,       // active -> passive: established
  kDisconnect = 5,  // either; answered with kDisconnected
  kDisconnected = 6,
  kMemory = 7,      // either: a memfd under a registration
  kMemoryGone = 8,  // either: no registration of the PD lies in that memfd any more
};

// What goes over the wire, besides descriptors.
struct CmBody {
  static constexpr uint32_t kMagic = 0x56624336;  // changes with the layout of anything shared

  uint32_t magic = kMagic;
  CmKind kind{};
  std::array<uint64_t, 2> process{};
  uint32_t qp_num = 0;
  uint32_t pd = 0;
  uint32_t recv_cq = 0, recv_slot = 0, send_cq = 0, send_slot = 0;
  uint64_t recv_channel = 0, send_channel = 0;  // 0: none
  uint64_t memory = 0;                          // kMemory, kMemoryGone
  sockaddr_storage source{}, target{};          // kRequest, as the active end sees them
  uint32_t reason = 0;                          // kReject
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t flow_control = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t has_srq = 0;
  uint8_t data_length = 0;
  uint8_t reserved = 0;
  std::array<uint8_t, kAcceptData> data{};
};

// A body and its descriptors. kRequest: notify, MR table, kick, segment, then the channels that are
// not 0 (recv, send). kReply: the same without the segment. kMemory: the memfd.
struct CmMessage {
  CmBody body;
  std::vector<UniqueFd> fds;
  int fd_error = 0;  // errno of a descriptor that AddFd could not duplicate: not to be sent then
  pid_t pid = 0;     // of the sender, as the kernel says

  CmMessage() = default;
  explicit CmMessage(CmKind kind) { body.kind = kind; }
  // Adds a duplicate of a descriptor that stays the caller's.
  void AddFd(int fd);
};

// A listening name: "\0verbena-soft:ADDRESS:PORT", or "*" as the address.
class CmListener {
 public:
  // Binds, but does not listen yet. Port 0: a free one, told in *address. errno-style result:
  // EADDRINUSE, EADDRNOTAVAIL.
  static int Bind(NetAddress* address, UniqueFd* socket);
};

// Connects to whoever listens on the address, or on the wildcard of its port. 0, or a positive
// errno: ECONNREFUSED (nobody listens), EAGAIN (its backlog is full).
int CmConnect(const NetAddress& target, UniqueFd* socket);

// 0, EAGAIN (socket full) or another positive errno.
int CmSend(int socket, const CmMessage& message);
// Tells who asks for a connection that this end has no room for it.
void CmRefuse(int socket);
// 1: a message; 0: nothing there; a negative errno: ECONNRESET if the other end is gone or sent
// nonsense, EMFILE if this process could not open what it has sent.
int CmReceive(int socket, CmMessage* message);

}  // namespace verbena::softverbs
