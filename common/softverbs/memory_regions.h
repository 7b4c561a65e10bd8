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
  // Invalidates the key, waits for operations under way, forgets the range.
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
  // Leaves both alone where the process has no descriptor of the file.
  void FindMemory(const BackingFile& file, uint64_t* memory, uint64_t* offset);
  void ReleaseMemory(uint64_t memory, uint32_t pd);

  SharedMapping table_mapping_;
  std::mutex mutex_;
  uint32_t next_index_ = 1;
  std::vector<uint32_t> free_;  // indices
  uint64_t next_memory_ = 1;
  std::map<uint64_t, std::unique_ptr<LocalMemory>> memories_;
  // memory -> PD -> registrations
  std::map<uint64_t, std::map<uint32_t, int>> pds_of_;
};

// A process that connections lead to. Shared by them all.
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

  // Keeps the descriptor of one of the peer's completion channels; duplicates are closed.
  int AdoptChannel(uint64_t id, UniqueFd fd);
  // Keeps a memfd of the peer's for mapping; duplicates are closed.
  void AdoptMemory(uint64_t id, UniqueFd fd);

  // Where `memory` lies in this process; mapped at first use. nullptr if unknown or not mappable
  // (for writing, if asked).
  uint8_t* MapMemory(uint64_t memory, bool writable, uint64_t* size);

  // Copies through the kernel, for memory that cannot be mapped. False if it refuses (logged).
  bool CopyByKernel(void* local, uint64_t remote, size_t size, bool write);

 private:
  struct Memory {
    UniqueFd fd;
    uint64_t size = 0;
    uint8_t* readable = nullptr;
    uint8_t* writable = nullptr;
    ~Memory();
  };

  bool self_ = false;
  pid_t pid_ = 0;
  SharedMapping notify_mapping_;
  SharedMapping table_mapping_;
  NotifySegment* notify_ = nullptr;
  const MrTable* table_ = nullptr;
  UniqueFd kick_owned_;
  int kick_ = -1;
  std::mutex mutex_;
  std::map<uint64_t, Memory> memories_;
  std::map<uint64_t, UniqueFd> channels_;
  std::atomic<bool> logged_refusal_{false};
};

}  // namespace verbena::softverbs
