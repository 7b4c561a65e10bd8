// One connection between two QPs: the shared segment with its rings, the peer, and the socket that
// set it up (over which later registrations are announced and whose end tells of a peer's death).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "common/softverbs/cm_socket.h"
#include "common/softverbs/event_counter.h"
#include "common/softverbs/memory_regions.h"
#include "common/softverbs/service_thread.h"
#include "common/softverbs/shared_segments.h"

namespace verbena::softverbs {

// Where the other end's QP is, as its owner told us.
struct RemoteQp {
  uint32_t qp_num = 0;
  uint32_t pd = 0;
  uint32_t recv_cq = 0, recv_slot = 0;
  uint32_t send_cq = 0, send_slot = 0;
  int recv_channel = -1, send_channel = -1;  // the Link's, -1: the CQ has no channel
};

class Link : public EpollHandler, public std::enable_shared_from_this<Link> {
 public:
  // What a link's owner (the connection manager) does with messages and with the end of the
  // socket. Called on the service thread without locks.
  struct Owner {
    virtual ~Owner() = default;
    virtual void OnLinkMessage(Link* link, CmMessage message) = 0;
    virtual void OnLinkClosed(Link* link) = 0;
  };

  Link(Owner* owner, int side, UniqueFd socket)
      : owner_(owner), side_(side), socket_(std::move(socket)) {}
  ~Link() override;

  // The active end makes the segment, the passive end gets it with the request.
  absl::Status CreateSegment();
  absl::Status AdoptSegment(UniqueFd fd);
  int segment_fd() const { return segment_.fd(); }
  // Peer and remote QP out of a request or reply. Once, before the QP may send.
  absl::Status SetRemote(CmMessage* message);

  // Starts listening to the socket on the service thread.
  bool Watch();
  // Sends a message; kept and sent later if the socket is full. False if the link is closed.
  bool Send(const CmMessage& message);
  // Closes the socket; the peer sees the end. Idempotent.
  void Close();
  bool closed() const { return closed_.load(); }

  // Tells the peer about a memfd under registrations of this link's PD, once each.
  void Announce(uint64_t memory, int fd);
  // Tells the peer that a memfd which it has been told about lies under none any more.
  void Withdraw(uint64_t memory);
  // Reads the socket for announcements on the caller's thread; other messages wait for the service
  // thread. For an initiator that meets a key whose memory it does not know.
  void DrainAnnouncements();

  void OnEvents(uint32_t events) override;

  // --- The data path (valid once SetRemote has succeeded). ---
  LinkSide& mine() { return segment_data()->sides[side_index()]; }
  LinkSide& theirs() { return segment_data()->sides[1 - side_index()]; }
  Direction& out() { return segment_data()->directions[side_index()]; }
  Direction& in() { return segment_data()->directions[1 - side_index()]; }
  PeerProcess& peer() { return *peer_; }
  const RemoteQp& remote() const { return remote_; }

  // Tells the other end's receive side that there are messages (or a fault).
  void NotifyReceiver(bool solicited);
  // Tells the other end's send side that messages were completed, refused, or that we are in ERR.
  void NotifySender(bool error);
  // As above, by the peer's service thread, for when its application does not poll.
  void KickReceiver() { peer_->KickService(remote_.recv_cq); }
  void KickSender() { peer_->KickService(remote_.send_cq); }
  // Makes the other end go to ERR once it has received `messages` messages.
  void RaiseFault(Fault kind, uint64_t messages);

  // Whether the link has ended since this process could not open what the peer has sent.
  bool out_of_descriptors() const { return out_of_descriptors_.load(); }

  // PD of this end's QP, 0 before there is one (LinkRegistry).
  std::atomic<uint32_t> local_pd{0};

 private:
  size_t side_index() const { return static_cast<size_t>(side_); }
  LinkSegment* segment_data() const { return segment_data_; }
  int AdoptChannel(PeerProcess& peer, size_t which, uint64_t id, UniqueFd fd);
  bool ReceiveOne(CmMessage* message, bool* closed);
  void FlushOutbox();
  void RefuseForWantOfDescriptors();
  void AdoptMemory(uint64_t id, UniqueFd fd);
  void TakeAnnouncement(CmMessage* message);
  void FireIfArmed(uint32_t cq, int channel, bool solicited);

  Owner* owner_;
  const int side_;
  SharedMapping segment_;
  LinkSegment* segment_data_ = nullptr;
  std::shared_ptr<PeerProcess> peer_;
  RemoteQp remote_;

  std::mutex socket_mutex_;  // Link::socket_mutex
  UniqueFd socket_;
  uint64_t token_ = 0;
  std::deque<CmMessage> inbox_;   // read by an initiator, not yet handled
  std::deque<CmMessage> outbox_;  // not yet sent
  std::set<uint64_t> announced_;
  // What the peer has announced by this link and not withdrawn; let go of with the link at the
  // latest. Translations hold on to what they point into (QueuePair::Translation), so no copy
  // depends on this, nor on what the peer says when.
  std::map<uint64_t, std::shared_ptr<PeerMemory>> memories_;
  std::array<std::shared_ptr<const UniqueFd>, 2> channels_;    // remote_'s, for receives and sends
  std::vector<std::pair<uint64_t, UniqueFd>> early_memories_;  // announced before SetRemote
  bool peer_closed_ = false;
  std::atomic<bool> closed_{false};
  std::atomic<bool> out_of_descriptors_{false};

  friend class LinkRegistry;
};

// All links of this process, for what concerns registrations.
class LinkRegistry {
 public:
  static void Add(const std::shared_ptr<Link>& link);
  // Tells the peers connected in a PD about a memfd, or that there is no registration left in it.
  static void AnnounceMemory(uint32_t pd, uint64_t memory, int fd);
  static void WithdrawMemory(uint32_t pd, uint64_t memory);
  // Waits until no peer connected in a PD is inside an operation that began earlier. Bounded, for
  // peers that are stopped.
  static void WaitForInitiators(uint32_t pd);
  // Notes that a descriptor is (or no longer is) a socket that a forked child must close: a copy
  // in the child would hide the death of this process and keep its ports taken.
  static void RememberSocket(int fd, bool open);
  static void CloseSocketsAfterFork();
};

}  // namespace verbena::softverbs
