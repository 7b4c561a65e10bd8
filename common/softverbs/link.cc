#include "common/softverbs/link.h"

#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"

namespace verbena::softverbs {
namespace {

std::mutex g_registry_mutex;
std::vector<std::weak_ptr<Link>>& Registry() {
  static auto& links = *new std::vector<std::weak_ptr<Link>>();
  return links;
}
// Which descriptors are sockets of links and listeners; readable in a forked child without locks.
constexpr size_t kMaxSockets = 1u << 17;
std::atomic<int>* g_sockets = new std::atomic<int>[kMaxSockets] {};

std::vector<std::shared_ptr<Link>> LinksOf(uint32_t pd) {
  std::vector<std::shared_ptr<Link>> links;
  const std::lock_guard lock(g_registry_mutex);
  for (const auto& known : Registry()) {
    if (auto link = known.lock(); link && link->local_pd.load() == pd) links.push_back(link);
  }
  return links;
}

// An initiator that is stopped inside a copy must not hold up its target for ever.
constexpr int64_t kInitiatorWaitNanos = 200'000'000;

}  // namespace

Link::~Link() { Close(); }

absl::Status Link::CreateSegment() {
  auto segment = SharedMapping::Create("verbena-soft-link", sizeof(LinkSegment), false);
  if (!segment.ok()) return segment.status();
  segment_ = std::move(*segment);
  segment_data_ = static_cast<LinkSegment*>(segment_.data());
  return absl::OkStatus();
}

absl::Status Link::AdoptSegment(UniqueFd fd) {
  auto segment = SharedMapping::Open(std::move(fd), sizeof(LinkSegment), true);
  if (!segment.ok()) return segment.status();
  segment_ = std::move(*segment);
  segment_.CloseFd();
  segment_data_ = static_cast<LinkSegment*>(segment_.data());
  return absl::OkStatus();
}

absl::Status Link::SetRemote(CmMessage* message) {
  const CmBody& body = message->body;
  const size_t channels = (body.recv_channel != 0 ? 1u : 0u) + (body.send_channel != 0 ? 1u : 0u);
  if (message->fds.size() != 3 + channels || body.recv_cq >= kMaxCqs || body.send_cq >= kMaxCqs ||
      body.recv_slot >= kMaxQps || body.send_slot >= kMaxQps) {
    return absl::InvalidArgumentError("a peer sent a malformed connection message");
  }
  Device& device = Device::Existing();
  std::shared_ptr<PeerProcess> peer = device.FindPeer(body.process);
  if (peer == nullptr) {
    if (body.process == device.id()) {
      peer = PeerProcess::Self();
    } else {
      auto opened = PeerProcess::Open(message->pid, std::move(message->fds[0]),
                                      std::move(message->fds[1]), std::move(message->fds[2]));
      if (!opened.ok()) return opened.status();
      peer = std::move(*opened);
    }
    device.AddPeer(body.process, peer);
  }
  remote_.qp_num = body.qp_num;
  remote_.pd = body.pd;
  remote_.recv_cq = body.recv_cq;
  remote_.recv_slot = body.recv_slot;
  remote_.send_cq = body.send_cq;
  remote_.send_slot = body.send_slot;
  size_t next = 3;
  if (body.recv_channel != 0) {
    remote_.recv_channel =
        AdoptChannel(*peer, 0, body.recv_channel, std::move(message->fds[next++]));
  }
  if (body.send_channel != 0) {
    remote_.send_channel =
        AdoptChannel(*peer, 1, body.send_channel, std::move(message->fds[next++]));
  }
  const std::lock_guard lock(socket_mutex_);
  peer_ = std::move(peer);
  for (auto& [id, fd] : early_memories_) AdoptMemory(id, std::move(fd));
  early_memories_.clear();
  return absl::OkStatus();
}

int Link::AdoptChannel(PeerProcess& peer, size_t which, uint64_t id, UniqueFd fd) {
  channels_[which] = peer.AdoptChannel(id, std::move(fd));
  return channels_[which] == nullptr ? -1 : channels_[which]->get();
}

// Caller holds socket_mutex_.
void Link::AdoptMemory(uint64_t id, UniqueFd fd) {
  if (auto memory = peer_->AdoptMemory(id, std::move(fd)); memory != nullptr) {
    memories_[id] = std::move(memory);
  }
}

bool Link::Watch() {
  LinkRegistry::RememberSocket(socket_.get(), true);
  LinkRegistry::Add(shared_from_this());
  const std::lock_guard lock(socket_mutex_);
  token_ = Device::Existing().service().Add(socket_.get(), EPOLLIN, shared_from_this());
  return token_ != 0;
}

bool Link::Send(const CmMessage& message) {
  const std::lock_guard lock(socket_mutex_);
  if (!socket_.valid()) return false;
  if (outbox_.empty()) {
    const int error = CmSend(socket_.get(), message);
    if (error == 0) return true;
    if (error != EAGAIN) return false;
  }
  CmMessage copy;
  copy.body = message.body;
  for (const UniqueFd& fd : message.fds) copy.AddFd(fd.get());
  outbox_.push_back(std::move(copy));
  if (token_ != 0) {
    Device::Existing().service().Modify(token_, socket_.get(), EPOLLIN | EPOLLOUT);
  }
  return true;
}

void Link::FlushOutbox() {
  const std::lock_guard lock(socket_mutex_);
  while (!outbox_.empty() && socket_.valid()) {
    if (CmSend(socket_.get(), outbox_.front()) == EAGAIN) return;
    outbox_.pop_front();
  }
  if (socket_.valid() && token_ != 0) {
    Device::Existing().service().Modify(token_, socket_.get(), EPOLLIN);
  }
}

void Link::Close() {
  closed_.store(true);
  const std::lock_guard lock(socket_mutex_);
  if (!socket_.valid()) return;
  if (token_ != 0) Device::Existing().service().Remove(token_, socket_.get());
  token_ = 0;
  LinkRegistry::RememberSocket(socket_.get(), false);
  socket_.Reset();
  outbox_.clear();
}

void Link::RefuseForWantOfDescriptors() {
  const std::lock_guard lock(socket_mutex_);
  if (socket_.valid()) CmRefuse(socket_.get());
}

void Link::Announce(uint64_t memory, int fd) {
  {
    const std::lock_guard lock(socket_mutex_);
    if (!announced_.insert(memory).second) return;
  }
  CmMessage message(CmKind::kMemory);
  message.body.memory = memory;
  message.AddFd(fd);
  Send(message);
}

void Link::Withdraw(uint64_t memory) {
  {
    const std::lock_guard lock(socket_mutex_);
    if (announced_.erase(memory) == 0) return;
    // What a peer that does not read has not been told need not be taken back, nor may it pile up.
    const auto unsent = std::erase_if(outbox_, [&](const CmMessage& message) {
      return message.body.kind == CmKind::kMemory && message.body.memory == memory;
    });
    if (unsent > 0) return;
  }
  CmMessage message(CmKind::kMemoryGone);
  message.body.memory = memory;
  Send(message);
}

// Caller holds socket_mutex_. In the order of the socket, whoever reads it.
void Link::TakeAnnouncement(CmMessage* message) {
  const uint64_t id = message->body.memory;
  if (message->body.kind == CmKind::kMemoryGone) {
    memories_.erase(id);
    std::erase_if(early_memories_, [&](const auto& early) { return early.first == id; });
  } else if (message->body.kind == CmKind::kMemory && message->fds.size() == 1) {
    if (peer_ != nullptr) {
      AdoptMemory(id, std::move(message->fds[0]));
    } else {
      early_memories_.emplace_back(id, std::move(message->fds[0]));
    }
  }
}

// Caller holds socket_mutex_. Takes one message off the socket; memory announcements are dealt
// with here. False if there was nothing.
bool Link::ReceiveOne(CmMessage* message, bool* closed) {
  if (!socket_.valid()) return false;
  const int result = CmReceive(socket_.get(), message);
  if (result < 0) *closed = true;
  if (result == -EMFILE) out_of_descriptors_.store(true);
  if (result <= 0) return false;
  TakeAnnouncement(message);
  return true;
}

void Link::DrainAnnouncements() {
  const std::lock_guard lock(socket_mutex_);
  CmMessage message;
  while (ReceiveOne(&message, &peer_closed_)) {
    if (message.body.kind == CmKind::kMemory) continue;
    inbox_.push_back(std::move(message));
    message = CmMessage();
  }
  if (inbox_.empty() && !peer_closed_) return;
  // The socket may never become readable again, so the service thread is told.
  Device::Existing().service().RunAt(0, [self = weak_from_this()] {
    if (const auto link = self.lock()) link->OnEvents(EPOLLIN);
  });
}

void Link::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) FlushOutbox();
  for (;;) {
    CmMessage message;
    bool closed = false;
    {
      const std::lock_guard lock(socket_mutex_);
      if (!inbox_.empty()) {
        message = std::move(inbox_.front());
        inbox_.pop_front();
      } else if (!ReceiveOne(&message, &closed)) {
        closed = closed || peer_closed_;
        if (!closed || !socket_.valid()) return;
      } else if (message.body.kind == CmKind::kMemory) {
        continue;
      }
    }
    if (closed) {
      if (side_ == 1 && out_of_descriptors()) RefuseForWantOfDescriptors();
      Close();
      owner_->OnLinkClosed(this);
      return;
    }
    owner_->OnLinkMessage(this, std::move(message));
  }
}

void Link::FireIfArmed(uint32_t cq, int channel, bool solicited) {
  std::atomic<uint32_t>& control = peer_->notify().cqs[cq].control;
  uint32_t seen = control.load();
  if (seen == static_cast<uint32_t>(ArmState::kIdle) ||
      seen == static_cast<uint32_t>(ArmState::kFired)) {
    return;
  }
  if (seen == static_cast<uint32_t>(ArmState::kArmedSolicited) && !solicited) return;
  if (channel < 0) return;
  if (control.compare_exchange_strong(seen, static_cast<uint32_t>(ArmState::kFired))) {
    EventCounter::SignalFd(channel);
  }
}

void Link::NotifyReceiver(bool solicited) {
  peer_->notify().cqs[remote_.recv_cq].MarkReady(remote_.recv_slot);
  FireIfArmed(remote_.recv_cq, remote_.recv_channel, solicited);
}

void Link::NotifySender(bool error) {
  peer_->notify().cqs[remote_.send_cq].MarkReady(remote_.send_slot);
  FireIfArmed(remote_.send_cq, remote_.send_channel, error);
}

void Link::RaiseFault(Fault kind, uint64_t messages) {
  uint64_t none = 0;
  theirs().fault.compare_exchange_strong(none, FaultWord(kind, messages));
  NotifyReceiver(true);
  KickReceiver();
}

void LinkRegistry::Add(const std::shared_ptr<Link>& link) {
  const std::lock_guard lock(g_registry_mutex);
  std::erase_if(Registry(), [](const auto& known) { return known.expired(); });
  Registry().push_back(link);
}

void LinkRegistry::AnnounceMemory(uint32_t pd, uint64_t memory, int fd) {
  for (const auto& link : LinksOf(pd)) link->Announce(memory, fd);
}

void LinkRegistry::WithdrawMemory(uint32_t pd, uint64_t memory) {
  for (const auto& link : LinksOf(pd)) link->Withdraw(memory);
}

void LinkRegistry::WaitForInitiators(uint32_t pd) {
  std::vector<std::pair<std::shared_ptr<Link>, uint64_t>> busy;
  {
    const std::lock_guard lock(g_registry_mutex);
    for (const auto& known : Registry()) {
      auto link = known.lock();
      if (!link || link->local_pd.load() != pd || link->segment_data() == nullptr) continue;
      const uint64_t seen = link->theirs().busy.load();
      if ((seen & 1) != 0) busy.emplace_back(std::move(link), seen);
    }
  }
  if (busy.empty()) return;
  const int64_t deadline = MonotonicNanos() + kInitiatorWaitNanos;
  for (const auto& [link, seen] : busy) {
    while (link->theirs().busy.load() == seen && !link->closed()) {
      if (MonotonicNanos() > deadline) {
        LogWarn("softverbs: a peer is still inside an operation on memory being deregistered");
        return;
      }
      sched_yield();
    }
  }
}

void LinkRegistry::RememberSocket(int fd, bool open) {
  if (fd >= 0 && static_cast<size_t>(fd) < kMaxSockets) {
    g_sockets[static_cast<size_t>(fd)].store(open ? 1 : 0, std::memory_order_relaxed);
  }
}

void LinkRegistry::CloseSocketsAfterFork() {
  for (size_t fd = 0; fd < kMaxSockets; ++fd) {
    if (g_sockets[fd].load(std::memory_order_relaxed) != 0) close(static_cast<int>(fd));
  }
}

}  // namespace verbena::softverbs
