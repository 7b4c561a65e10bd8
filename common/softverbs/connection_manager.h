// rdma_cm on the software device: ids, event channels, the connection handshake. One mutex guards
// all of it; connections are rare.
//
//   active                          passive
//   connect:  kRequest        ->    CONNECT_REQUEST event
//                             <-    accept: kReply (QP already in RTS) | reject: kReject
//   QP to RTS, kReady         ->    ESTABLISHED event
//   ESTABLISHED event
//   disconnect: QP to ERR, kDisconnect -> DISCONNECTED event, kDisconnected back
//
// The end of the socket without kDisconnect is the death of the peer's process: the QP goes to ERR
// and the id gets DISCONNECTED.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/base/net_address.h"
#include "common/softverbs/device.h"
#include "common/softverbs/link.h"
#include "common/softverbs/queue_pair.h"

namespace verbena::softverbs {

class CmId;

struct CmEvent : rdma_cm_event {
  std::array<uint8_t, 256> data;
};

class CmChannel : public rdma_event_channel {
 public:
  EventCounter counter;
  std::deque<std::unique_ptr<CmEvent>> queue;
};

class CmId : public rdma_cm_id {
 public:
  enum class State {
    kIdle,
    kBound,
    kListening,
    kAddressResolved,
    kRouteResolved,
    kConnecting,  // active: request sent
    kRequested,   // passive: CONNECT_REQUEST raised
    kAccepted,    // passive: reply sent
    kConnected,
    kDisconnecting,  // kDisconnect sent
    kDisconnected,
    kFailed,  // rejected, unreachable
  };

  CmChannel* cm_channel() { return static_cast<CmChannel*>(channel); }
  QueuePair* queue_pair() { return qp == nullptr ? nullptr : QueuePair::From(qp); }

  State state = State::kIdle;
  uint64_t serial = 0;
  UniqueFd listener;
  uint64_t listener_token = 0;
  std::shared_ptr<Link> link;
  CmMessage request;         // kRequested: what the active end sent
  CmMessage connecting;      // kConnecting: what is sent once the listener has room
  ibv_qp_attr attributes{};  // what the handshake has settled so far
  uint8_t ack_timeout = 14;  // 4.096 us * 2^14 = 67 ms
  uint8_t type_of_service = 0;
  int unacknowledged = 0;  // events handed out
};

// connection_manager.cc: channels, events, ids. connection_handshake.cc: the rest.
class ConnectionManager : public Link::Owner {
 public:
  static ConnectionManager& Get();

  // As the rdma_* functions: 0, or a positive errno (softverbs.cc turns it into -1 and errno).
  CmChannel* CreateChannel();
  void DestroyChannel(CmChannel* channel);
  int GetEvent(CmChannel* channel, rdma_cm_event** event);
  int AckEvent(CmEvent* event);
  int CreateId(CmChannel* channel, rdma_cm_id** id, void* context, rdma_port_space space);
  int DestroyId(CmId* id);
  int BindAddr(CmId* id, const sockaddr* address);
  int Listen(CmId* id, int backlog);
  int ResolveAddr(CmId* id, const sockaddr* source, const sockaddr* target);
  int ResolveRoute(CmId* id);
  int Connect(CmId* id, const rdma_conn_param* param);
  int Accept(CmId* id, const rdma_conn_param* param);
  int Reject(CmId* id, const void* data, uint8_t length);
  int Disconnect(CmId* id);
  int CreateQp(CmId* id, ProtectionDomain* pd, ibv_qp_init_attr* attr);
  int DestroyQp(QueuePair* qp);
  int SetOption(CmId* id, int level, int name, const void* value, size_t length);
  int MigrateId(CmId* id, CmChannel* channel);

  void OnLinkMessage(Link* link, CmMessage message) override;
  void OnLinkClosed(Link* link) override;

 private:
  class ListenHandler;
  ConnectionManager() = default;

  // The caller holds mutex_ for all of these.
  Context* DeviceContext();
  void SetAddress(CmId* id, bool source, const NetAddress& address);
  CmEvent* Raise(CmId* id, rdma_cm_event_type type, int status);
  void RaiseWithParameters(CmId* id, rdma_cm_event_type type, const CmBody& body, size_t length);
  void DropEvents(CmId* id, std::vector<CmId*>* orphans);
  CmId* NewId(CmChannel* channel, void* context, rdma_port_space space);
  CmId* FindId(uint64_t serial);
  void CloseLink(CmId* id);
  int StartConnecting(CmId* id);
  void RetryConnecting(uint64_t serial, int64_t deadline);
  void FillQp(CmMessage* message, QueuePair* qp, int segment_fd);
  void AnnounceMemories(Link* link, uint32_t pd);
  void AcceptSockets(uint64_t listener_serial);
  void HandleRequest(CmId* listener, std::shared_ptr<Link> link, CmMessage message);
  void HandleReply(CmId* id, CmMessage message);
  void HandleReject(CmId* id, const CmMessage& message);
  bool RefuseForWantOfDescriptors(const CmId& listener);
  void DropSilent(const std::shared_ptr<Link>& link);
  void HandleDisconnect(CmId* id);
  void Disconnected(CmId* id);
  void PeerDied(CmId* id);

  std::mutex mutex_;
  std::condition_variable acknowledged_;
  Context* context_ = nullptr;
  uint64_t next_serial_ = 1;
  std::unordered_map<uint64_t, CmId*> ids_;
  std::unordered_map<Link*, uint64_t> id_of_link_;
  // Accepted sockets whose request has not come, with the listener's serial.
  std::unordered_map<Link*, std::pair<std::shared_ptr<Link>, uint64_t>> incoming_;
  std::unordered_map<QueuePair*, uint64_t> id_of_qp_;
  // Held back for RefuseForWantOfDescriptors.
  UniqueFd spare_fd_;
  bool out_of_descriptors_ = false;  // has been logged
};

}  // namespace verbena::softverbs
