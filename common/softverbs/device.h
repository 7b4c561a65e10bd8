// The process's one software device: its shared segments, its service thread and the tables that
// find objects by number.
//
// lock order (outermost first; a thread never takes a lock to the left of one that it holds):
//   ConnectionManager::mutex -> Device::object_mutex -> CompletionQueue::progress_lock ->
//   QueuePair::rx_lock -> QueuePair::sq_lock -> Link::socket_mutex -> PeerProcess::mutex
//   ConnectionManager::mutex -> MemoryRegions::mutex -> the registry of links -> Link::socket_mutex
//   ... QueuePair::sq_lock -> ReceiveQueue::lock -> CompletionQueue::lock ->
//   CompletionChannel::mutex, Context::async mutex, ServiceThread::mutex
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/softverbs/event_counter.h"
#include "common/softverbs/service_thread.h"
#include "common/softverbs/shared_segments.h"

namespace verbena::softverbs {

class CompletionQueue;
class MemoryRegions;
class PeerProcess;
class QueuePair;

inline constexpr int kMaxCqe = 4 * 1024 * 1024;
inline constexpr int kMaxWr = 32768;
inline constexpr int kMaxSge = 16;
inline constexpr uint32_t kMaxInline = 256;
inline constexpr int kMaxRdAtomic = 16;
inline constexpr uint32_t kMaxMessage = 1u << 30;

// What tells two processes apart: random, made when the device starts.
using ProcessId = std::array<uint64_t, 2>;

class Device {
 public:
  // The singleton, started on first use; nullptr with errno set if the system refuses (logged), or
  // in a child after fork, where the device is dead.
  static Device* Get();
  // As Get, but never starts it. For objects that exist: the device does too.
  static Device& Existing();

  ibv_device* abi() { return &abi_; }
  const ProcessId& id() const { return id_; }
  NotifySegment& notify() { return *static_cast<NotifySegment*>(notify_.data()); }
  int notify_fd() const { return notify_.fd(); }
  // What peers signal after setting a bit of NotifySegment::service.
  int kick_fd() const { return kick_.fd(); }
  ServiceThread& service() { return service_; }
  MemoryRegions& regions() { return *regions_; }

  // Asks this process's service thread to progress a CQ.
  void KickService(uint32_t cq_number);

  // Calls a CQ's OnWatchTimer at `when`, if it still lives.
  void WatchCq(uint32_t cq_number, int64_t when);

  // Object tables. Whoever uses an object found here holds object_mutex while it does.
  std::mutex object_mutex;
  // nullptr and errno ENOMEM if all numbers are taken.
  bool AddCq(CompletionQueue* cq, uint32_t* number);
  void RemoveCq(uint32_t number);
  bool AddQp(QueuePair* qp, uint32_t* qp_num);
  void RemoveQp(uint32_t qp_num);
  QueuePair* FindQp(uint32_t qp_num);  // caller holds object_mutex
  uint32_t NewPdId() { return next_pd_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t NewChannelId() { return next_channel_.fetch_add(1, std::memory_order_relaxed); }

  // The peers that live connections lead to, this process included.
  std::shared_ptr<PeerProcess> FindPeer(const ProcessId& id);
  void AddPeer(const ProcessId& id, const std::shared_ptr<PeerProcess>& peer);

 private:
  Device();
  ~Device() = delete;  // lives as long as the process
  bool Start();
  void ServePending();
  class KickHandler;

  ibv_device abi_{};
  ProcessId id_{};
  SharedMapping notify_;
  EventCounter kick_;
  ServiceThread service_;
  std::unique_ptr<MemoryRegions> regions_;
  std::vector<CompletionQueue*> cqs_;
  std::unordered_map<uint32_t, QueuePair*> qps_;
  uint32_t next_qp_num_ = 0;
  std::atomic<uint32_t> next_pd_{1};
  std::atomic<uint64_t> next_channel_{1};
  std::mutex peers_mutex_;
  std::vector<std::pair<ProcessId, std::weak_ptr<PeerProcess>>> peers_;
};

struct ProtectionDomain : ibv_pd {
  uint32_t id = 0;
  // MRs, QPs and SRQs in it.
  std::atomic<int> users{0};
};

// An opened device. Everything else hangs on one.
class Context : public ibv_context {
 public:
  static Context* Open(ibv_device* device);
  ~Context();

  static Context* From(ibv_context* context) { return static_cast<Context*>(context); }

  // Queues an event for ibv_get_async_event.
  void RaiseAsync(const ibv_async_event& event);
  int GetAsync(ibv_async_event* event);
  // Forgets queued events of an object (the union's pointer) that is about to go.
  void DropAsync(const void* object);

  // PDs, CQs and channels in it.
  std::atomic<int> users{0};

 private:
  Context() = default;

  EventCounter async_;
  std::mutex async_mutex_;
  std::vector<ibv_async_event> async_queue_;
};

}  // namespace verbena::softverbs
