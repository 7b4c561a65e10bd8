#include "common/softverbs/device.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/softverbs/completion_queue.h"
#include "common/softverbs/link.h"
#include "common/softverbs/memory_regions.h"
#include "common/softverbs/queue_pair.h"
#include "common/softverbs/receive_queue.h"
#include "common/softverbs/softverbs.h"
#include "common/softverbs/switches.h"

namespace verbena::softverbs {
namespace {

std::atomic<Device*> g_device{nullptr};
std::atomic<bool> g_dead_after_fork{false};
std::mutex g_start_mutex;

template <size_t N>
void CopyName(char (&target)[N], const char* text) {
  std::strncpy(target, text, N - 1);
}

}  // namespace

class Device::KickHandler : public EpollHandler {
 public:
  explicit KickHandler(Device* device) : device_(device) {}
  void OnEvents(uint32_t) override { device_->ServePending(); }

 private:
  Device* device_;
};

bool UnusableAfterFork() { return g_dead_after_fork.load(std::memory_order_relaxed); }

Device* Device::Get() {
  if (UnusableAfterFork()) {
    errno = ENODEV;
    return nullptr;
  }
  if (Device* device = g_device.load(std::memory_order_acquire); device != nullptr) return device;
  const std::lock_guard lock(g_start_mutex);
  if (Device* device = g_device.load(std::memory_order_acquire); device != nullptr) return device;
  // One that could not be started is kept for the next attempt.
  static Device* unstarted = nullptr;
  if (unstarted == nullptr) unstarted = new Device();
  if (!unstarted->Start()) {
    errno = errno != 0 ? errno : ENODEV;
    return nullptr;
  }
  Device* const device = std::exchange(unstarted, nullptr);
  g_device.store(device, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, [] {
    // The child has no service thread. Its copies of the sockets would hide the parent's death.
    g_dead_after_fork.store(true, std::memory_order_relaxed);
    LinkRegistry::CloseSocketsAfterFork();
  });
  return device;
}

Device& Device::Existing() { return *g_device.load(std::memory_order_acquire); }

Device::Device() : cqs_(kMaxCqs, nullptr) {
  const bool iwarp = CurrentSwitches().iwarp;
  abi_.node_type = iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
  abi_.transport_type = iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  CopyName(abi_.name, "vsoft0");
  CopyName(abi_.dev_name, "vsoft0");
  CopyName(abi_.dev_path, "/sys/class/infiniband_verbs/vsoft0");
  CopyName(abi_.ibdev_path, "/sys/class/infiniband/vsoft0");
}

bool Device::Start() {
  if (getrandom(id_.data(), sizeof(id_), 0) != static_cast<ssize_t>(sizeof(id_))) return false;
  next_qp_num_ = static_cast<uint32_t>(id_[0]);
  auto notify = SharedMapping::Create("verbena-soft-notify", sizeof(NotifySegment), false);
  if (!notify.ok()) {
    LogError("softverbs: ", notify.status().ToString());
    return false;
  }
  notify_ = std::move(*notify);
  regions_ = MemoryRegions::Create();
  kick_ = EventCounter::CreateShared();
  if (regions_ == nullptr || !kick_.valid() || !service_.valid()) return false;
  fcntl(kick_.fd(), F_SETFL, O_NONBLOCK);  // for those who signal
  if (const absl::Status status = service_.Start(); !status.ok()) {
    LogError("softverbs: ", status.message());
    errno = EAGAIN;
    return false;
  }
  return service_.Add(kick_.fd(), EPOLLIN, std::make_shared<KickHandler>(this)) != 0;
}

void Device::KickService(uint32_t cq_number) {
  notify().service[cq_number / 64].fetch_or(uint64_t{1} << (cq_number % 64));
  kick_.Signal();
}

void Device::ServePending() {
  // Once: a peer that keeps signalling must not keep this thread here. Taken before the words are
  // looked at, so that a bit which this round misses is signalled again.
  (void)kick_.TryTake();
  auto& words = notify().service;
  for (uint32_t w = 0; w < words.size(); ++w) {
    if (words[w].load() == 0) continue;
    for (uint64_t bits = words[w].exchange(0); bits != 0; bits &= bits - 1) {
      const uint32_t number = w * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
      const std::lock_guard lock(object_mutex);
      if (cqs_[number] != nullptr) cqs_[number]->Progress();
    }
  }
}

void Device::WatchCq(uint32_t cq_number, int64_t when) {
  service_.RunAt(when, [this, cq_number] {
    const std::lock_guard lock(object_mutex);
    if (cqs_[cq_number] != nullptr) cqs_[cq_number]->OnWatchTimer();
  });
}

bool Device::AddCq(CompletionQueue* cq, uint32_t* number) {
  const std::lock_guard lock(object_mutex);
  for (uint32_t i = 0; i < kMaxCqs; ++i) {
    if (cqs_[i] == nullptr) {
      cqs_[i] = cq;
      *number = i;
      notify().cqs[i].control.store(static_cast<uint32_t>(ArmState::kIdle));
      return true;
    }
  }
  errno = ENOMEM;
  return false;
}

void Device::RemoveCq(uint32_t number) {
  const std::lock_guard lock(object_mutex);
  cqs_[number] = nullptr;
}

bool Device::AddQp(QueuePair* qp, uint32_t* qp_num) {
  const std::lock_guard lock(object_mutex);
  if (qps_.size() >= kMaxQps) {
    errno = ENOMEM;
    return false;
  }
  do {
    *qp_num = ++next_qp_num_ & 0xffffff;  // 24 bits, as on the wire; 0 and 1 are special
  } while (*qp_num < 2 || qps_.contains(*qp_num));
  qps_[*qp_num] = qp;
  return true;
}

void Device::RemoveQp(uint32_t qp_num) {
  const std::lock_guard lock(object_mutex);
  qps_.erase(qp_num);
}

QueuePair* Device::FindQp(uint32_t qp_num) {
  const auto it = qps_.find(qp_num);
  return it == qps_.end() ? nullptr : it->second;
}

std::shared_ptr<PeerProcess> Device::FindPeer(const ProcessId& id) {
  const std::lock_guard lock(peers_mutex_);
  std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [known, peer] : peers_) {
    if (known == id) return peer.lock();
  }
  return nullptr;
}

void Device::AddPeer(const ProcessId& id, const std::shared_ptr<PeerProcess>& peer) {
  const std::lock_guard lock(peers_mutex_);
  peers_.emplace_back(id, peer);
}

Context* Context::Open(ibv_device* device) {
  auto counter = EventCounter::Create();
  if (!counter.valid()) return nullptr;
  auto* context = new Context();
  context->async_ = std::move(counter);
  context->device = device;
  context->cmd_fd = -1;
  context->async_fd = context->async_.fd();
  context->num_comp_vectors = 1;
  pthread_mutex_init(&context->mutex, nullptr);
  context->abi_compat = nullptr;  // the plain ibv_context: extended verbs use their fallbacks
  context->ops.poll_cq = CompletionQueue::PollVerb;
  context->ops.req_notify_cq = CompletionQueue::ReqNotifyVerb;
  context->ops.post_srq_recv = SharedReceiveQueue::PostVerb;
  context->ops.post_send = QueuePair::PostSendVerb;
  context->ops.post_recv = QueuePair::PostRecvVerb;
  return context;
}

Context::~Context() { pthread_mutex_destroy(&mutex); }

void Context::RaiseAsync(const ibv_async_event& event) {
  const std::lock_guard lock(async_mutex_);
  async_queue_.push_back(event);
  async_.Signal();
}

int Context::GetAsync(ibv_async_event* event) {
  for (;;) {
    if (async_.Take() != 0) return -1;
    const std::lock_guard lock(async_mutex_);
    if (async_queue_.empty()) continue;
    *event = async_queue_.front();
    async_queue_.erase(async_queue_.begin());
    switch (event->event_type) {
      case IBV_EVENT_CQ_ERR:
        static_cast<CompletionQueue*>(event->element.cq)->async_reported++;
        break;
      case IBV_EVENT_SRQ_LIMIT_REACHED:
      case IBV_EVENT_SRQ_ERR:
        static_cast<SharedReceiveQueue*>(event->element.srq)->async_reported++;
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        static_cast<QueuePair*>(event->element.qp)->async_reported++;
        break;
      default:
        break;
    }
    return 0;
  }
}

void Context::DropAsync(const void* object) {
  const std::lock_guard lock(async_mutex_);
  const auto dropped = std::erase_if(
      async_queue_, [&](const ibv_async_event& event) { return event.element.cq == object; });
  for (size_t i = 0; i < dropped; ++i) (void)async_.TryTake();
}

}  // namespace verbena::softverbs
