// Registered memory of this process, and the memory of peers as this process reaches it.
// Thread-safe.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/softverbs/device.h"
#include "common/softverbs/shared_segments.h"

namespace verbena::softverbs {

struct MemoryRegion : ibv_mr {
  uint64_t memory = 0;  // as MrEntry::memory
};

// A file that a range is a shared mapping of.
struct BackingFile {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t offset = 0;  // of the range's first byte
};

// The memfds under this process's registrations.
struct LocalMemory {
  uint64_t id = 0;
  UniqueFd fd;
  uint64_t device = 0;
  uint64_t inode = 0;
  int users = 0;
};

class MemoryRegions {
 public:
  static std::unique_ptr<MemoryRegions> Create();

  // As ibv_reg_mr: nullptr with errno, EFAULT for memory that is not mapped, or not writable where
  // `access` has LOCAL_WRITE.
  MemoryRegion* Register(ProtectionDomain* pd, void* address, size_t length, int access);
  // Invalidates the key, waits for operations under way, forgets the range; tells peers if the PD
  // has nothing left in that memfd.
  int Deregister(MemoryRegion* mr);

  int table_fd() const { return table_mapping_.fd(); }
  const MrTable& table() const { return *static_cast<const MrTable*>(table_mapping_.data()); }

  // Whether a key of this process covers a range of its own memory and has all the rights of `need`
  // (IBV_ACCESS_*; 0: being registered is enough).
  bool CheckLocal(uint32_t lkey, uint64_t address, uint64_t length, uint32_t pd,
                  uint32_t need) const {
    const uint32_t index = MrIndex(lkey);
    if (index >= kMaxMrs) return false;
    const MrEntry& entry = table().entries[index];
    if (entry.tag.load(std::memory_order_acquire) != MrTag(lkey)) return false;
    if (entry.pd.load(std::memory_order_relaxed) != pd) return false;
    const uint64_t begin = entry.address.load(std::memory_order_relaxed);
    const uint64_t size = entry.length.load(std::memory_order_relaxed);
    if (address < begin || length > size || address - begin > size - length) return false;
    return (entry.access.load(std::memory_order_relaxed) & need) == need;
  }

  // Calls `send(id, fd)` for each memfd under the registrations of a PD.
  template <typename Send>
  void ForEachMemory(uint32_t pd, Send send) {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, memory] : memories_) {
      if (pds_of_[id].contains(pd)) send(id, memory->fd.get());
    }
  }

 private:
  MrTable& mutable_table() { return *static_cast<MrTable*>(table_mapping_.data()); }
  // Leaves both alone where the process has no descriptor of the file. `known_fd` is one, or -1.
  void FindMemory(const BackingFile& file, int known_fd, uint64_t* memory, uint64_t* offset);
  // True if it was the PD's last registration in that memory.
  bool ReleaseMemory(uint64_t memory, uint32_t pd);

  SharedMapping table_mapping_;
  std::mutex mutex_;
  uint32_t next_index_ = 1;
  std::vector<uint32_t> free_;  // indices
  uint64_t next_memory_ = 1;
  std::map<uint64_t, std::unique_ptr<LocalMemory>> memories_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> ids_;  // of device and inode: in memories_
  // memory -> PD -> registrations
  std::map<uint64_t, std::map<uint32_t, int>> pds_of_;
};

// A memfd of a peer's, and where this process has mapped it. What is mapped stays so as long as
// anybody holds the object. Thread-safe.
class PeerMemory {
 public:
  PeerMemory(UniqueFd fd, uint64_t size) : fd_(std::move(fd)), size_(size) {}
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  uint64_t size() const { return size_; }
  // Mapped at first use. nullptr if it cannot be mapped (for writing, if asked).
  uint8_t* Map(bool writable);

 private:
  const UniqueFd fd_;
  const uint64_t size_;
  std::mutex mutex_;
  uint8_t* readable_ = nullptr;
  uint8_t* writable_ = nullptr;
};

// A process that connections lead to. Shared by them all, while what they have been given (memory,
// channels) belongs to the links that it came by, and is only listed here so that several links
// share one descriptor and one mapping.
class PeerProcess {
 public:
  // This process.
  static std::shared_ptr<PeerProcess> Self();
  static absl::StatusOr<std::shared_ptr<PeerProcess>> Open(pid_t pid, UniqueFd notify,
                                                           UniqueFd table, UniqueFd kick);

  bool is_self() const { return self_; }
  NotifySegment& notify() { return *notify_; }
  const MrTable& table() const { return *table_; }
  void KickService(uint32_t cq_number);

  // One of the peer's completion channels, open as long as somebody holds it; a duplicate of a
  // known one is closed. nullptr if `fd` is no event counter.
  std::shared_ptr<const UniqueFd> AdoptChannel(uint64_t id, UniqueFd fd);
  // The same for a memfd. nullptr if it is not to be mapped.
  std::shared_ptr<PeerMemory> AdoptMemory(uint64_t id, UniqueFd fd);
  // Memory that some link holds; else nullptr.
  std::shared_ptr<PeerMemory> FindMemory(uint64_t id);

  // Copies through the kernel, for memory that cannot be mapped. False if it refuses (logged).
  bool CopyByKernel(void* local, uint64_t remote, size_t size, bool write);

 private:
  bool self_ = false;
  pid_t pid_ = 0;
  SharedMapping notify_mapping_;
  SharedMapping table_mapping_;
  NotifySegment* notify_ = nullptr;
  const MrTable* table_ = nullptr;
  UniqueFd kick_owned_;
  int kick_ = -1;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<PeerMemory>> memories_;
  std::map<uint64_t, std::weak_ptr<const UniqueFd>> channels_;
  std::atomic<bool> logged_refusal_{false};
};

}  // namespace verbena::softverbs
