#include "common/softverbs/memory_regions.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/base/shared_memory.h"
#include "common/softverbs/link.h"

namespace verbena::softverbs {
namespace {

// What lies behind a range of this process's memory.
struct Mapping {
  bool readable = true;  // all of it is there, for reading at least
  bool writable = true;
  bool of_file = false;  // it is a shared mapping of `file`
  BackingFile file;
  int fd = -1;  // on the file, where it is known
};

// Adds a line of /proc/self/maps that covers `covered`, which the range has from `address` on.
void AddLine(uint64_t address, uint64_t covered, uint64_t from, const char* flags,
             const BackingFile& of, Mapping* mapping) {
  mapping->readable &= flags[0] == 'r';
  mapping->writable &= flags[1] == 'w';
  const uint64_t offset = of.offset + (covered - from);
  const bool shared = from <= covered && flags[3] == 's' && of.inode != 0;
  if (covered == address) {
    mapping->of_file = shared;
    mapping->file = {of.device, of.inode, offset};
  } else {
    mapping->of_file &= shared && of.device == mapping->file.device &&
                        of.inode == mapping->file.inode &&
                        offset == mapping->file.offset + (covered - address);
  }
}

// Nearly all that is registered is SharedMemory. Else this looks in /proc/self/maps, which touches
// no page of a range that may be large, but takes longer the more the process has mapped. The range
// may span several lines of one file with consecutive offsets (madvise splits them). Where there is
// nothing to look at, all is taken to be there.
Mapping FindMapping(uint64_t address, uint64_t length) {
  Mapping mapping;
  const std::optional<SharedMemory::File> known =
      SharedMemory::FileOf(reinterpret_cast<const void*>(address), length);
  if (known.has_value()) {
    mapping.of_file = true;
    mapping.file = {known->device, known->inode, known->offset};
    mapping.fd = known->fd;
    return mapping;
  }
  FILE* maps = length == 0 ? nullptr : std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return mapping;
  uint64_t covered = address;
  const uint64_t end = address + length;
  char* line = nullptr;
  size_t capacity = 0;
  while (covered < end && mapping.readable && getline(&line, &capacity, maps) > 0) {
    uint64_t from, to;
    BackingFile of;
    unsigned major, minor;
    char flags[8];
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64, &from, &to,
                    flags, &of.offset, &major, &minor, &of.inode) != 7) {
      continue;
    }
    if (to <= covered) continue;
    of.device = makedev(major, minor);
    // A stack that has not grown that far is there when it is used.
    if (from > covered && std::strstr(line, "[stack]") == nullptr) break;
    AddLine(address, covered, from, flags, of, &mapping);
    covered = to;
  }
  std::free(line);
  std::fclose(maps);
  if (covered < end) {
    mapping = {};
    mapping.readable = mapping.writable = false;
  }
  return mapping;
}

UniqueFd Duplicate(int fd) {
  return UniqueFd(static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0)));
}

// A descriptor of our own on the file, if the process has one open. Plain system calls: other
// threads open and close the descriptors that this merely looks at, which is harmless.
UniqueFd FindOpenFile(const BackingFile& file) {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return {};
  UniqueFd found;
  while (const dirent* entry = readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    struct stat status;
    if (entry->d_name[0] == '.' || syscall(SYS_fstat, fd, &status) != 0) continue;
    if (status.st_dev == file.device && status.st_ino == file.inode) {
      found = Duplicate(fd);
      break;
    }
  }
  closedir(directory);
  return found;
}

// After this, every initiator that does not yet show `busy` sees the cleared tag. Initiators have
// registered for it in MemoryRegions::Create.
void BarrierAcrossProcesses() {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0) {
    // Not available: a store that is a millisecond old has left every store buffer.
    usleep(1000);
  }
}

}  // namespace

std::unique_ptr<MemoryRegions> MemoryRegions::Create() {
  auto table = SharedMapping::Create("verbena-soft-mrs", sizeof(MrTable), true);
  if (!table.ok()) {
    LogError("softverbs: ", table.status().ToString());
    return nullptr;
  }
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
  auto regions = std::make_unique<MemoryRegions>();
  regions->table_mapping_ = std::move(*table);
  return regions;
}

void MemoryRegions::FindMemory(const BackingFile& file, int known_fd, uint64_t* memory,
                               uint64_t* offset) {
  const auto known = ids_.find({file.device, file.inode});
  if (known != ids_.end()) {
    *memory = known->second;
    *offset = file.offset;
    return;
  }
  UniqueFd fd = known_fd >= 0 ? Duplicate(known_fd) : FindOpenFile(file);
  if (!fd.valid()) return;
  auto entry = std::make_unique<LocalMemory>();
  entry->id = *memory = next_memory_++;
  entry->fd = std::move(fd);
  entry->device = file.device;
  entry->inode = file.inode;
  *offset = file.offset;
  ids_[{file.device, file.inode}] = entry->id;
  memories_[entry->id] = std::move(entry);
}

bool MemoryRegions::ReleaseMemory(uint64_t memory, uint32_t pd) {
  if (memory == 0) return false;
  auto& pds = pds_of_[memory];
  if (--pds[pd] > 0) return false;
  pds.erase(pd);
  if (pds.empty()) {
    pds_of_.erase(memory);
    const auto gone = memories_.find(memory);
    ids_.erase({gone->second->device, gone->second->inode});
    memories_.erase(gone);
  }
  return true;
}

MemoryRegion* MemoryRegions::Register(ProtectionDomain* pd, void* address, size_t length,
                                      int access) {
  const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  const auto begin = reinterpret_cast<uint64_t>(address);
  if ((remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0) || begin + length < begin) {
    errno = EINVAL;
    return nullptr;
  }
  // As the kernel does for an adapter when it pins the pages.
  const Mapping mapping = FindMapping(begin, length);
  if (!mapping.readable || ((access & IBV_ACCESS_LOCAL_WRITE) != 0 && !mapping.writable)) {
    errno = EFAULT;
    return nullptr;
  }
  auto mr = std::make_unique<MemoryRegion>();
  {
    const std::lock_guard lock(mutex_);
    uint32_t index;
    // Indices rest for a while before they are used again, so that old keys stay wrong.
    if (next_index_ < kMaxMrs) {
      index = next_index_++;
    } else if (!free_.empty()) {
      index = free_.front();
      free_.erase(free_.begin());
    } else {
      errno = ENOMEM;
      return nullptr;
    }
    MrEntry& entry = mutable_table().entries[index];
    uint64_t offset = 0;
    if (mapping.of_file) FindMemory(mapping.file, mapping.fd, &mr->memory, &offset);
    if (mr->memory != 0) ++pds_of_[mr->memory][pd->id];
    // `length` of the entry's last life tells nothing; the generation is kept in `offset`'s place
    // while the entry is free.
    const uint32_t generation = static_cast<uint32_t>(entry.offset.load() + 1) & 0xff;
    const uint32_t key = index << 8 | generation;
    entry.address.store(begin, std::memory_order_relaxed);
    entry.length.store(length, std::memory_order_relaxed);
    entry.pd.store(pd->id, std::memory_order_relaxed);
    entry.access.store(static_cast<uint32_t>(access), std::memory_order_relaxed);
    entry.memory.store(mr->memory, std::memory_order_relaxed);
    entry.offset.store(offset, std::memory_order_relaxed);
    entry.tag.store(MrTag(key), std::memory_order_release);
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->handle = index;
    mr->lkey = mr->rkey = key;
    // Under the lock, as Deregister's farewell: peers hear of both in the order of the counts, so
    // that what they hear last is true.
    if (mr->memory != 0) {
      LinkRegistry::AnnounceMemory(pd->id, mr->memory, memories_[mr->memory]->fd.get());
    }
  }
  pd->users.fetch_add(1);
  return mr.release();
}

int MemoryRegions::Deregister(MemoryRegion* mr) {
  auto* pd = static_cast<ProtectionDomain*>(mr->pd);
  MrEntry& entry = mutable_table().entries[MrIndex(mr->rkey)];
  entry.tag.store(0);
  BarrierAcrossProcesses();
  LinkRegistry::WaitForInitiators(pd->id);
  {
    const std::lock_guard lock(mutex_);
    entry.offset.store(mr->rkey & 0xff, std::memory_order_relaxed);
    free_.push_back(MrIndex(mr->rkey));
    if (ReleaseMemory(mr->memory, pd->id)) LinkRegistry::WithdrawMemory(pd->id, mr->memory);
  }
  pd->users.fetch_sub(1);
  delete mr;
  return 0;
}

std::shared_ptr<PeerProcess> PeerProcess::Self() {
  Device& device = Device::Existing();
  auto peer = std::make_shared<PeerProcess>();
  peer->self_ = true;
  peer->pid_ = getpid();
  peer->notify_ = &device.notify();
  peer->table_ = &device.regions().table();
  peer->kick_ = device.kick_fd();
  return peer;
}

absl::StatusOr<std::shared_ptr<PeerProcess>> PeerProcess::Open(pid_t pid, UniqueFd notify,
                                                               UniqueFd table, UniqueFd kick) {
  if (!EventCounter::IsEventCounter(kick.get())) {
    return absl::InvalidArgumentError("the peer's kick descriptor is no event counter");
  }
  auto notify_mapping = SharedMapping::Open(std::move(notify), sizeof(NotifySegment), true);
  if (!notify_mapping.ok()) return notify_mapping.status();
  auto table_mapping = SharedMapping::Open(std::move(table), sizeof(MrTable), false);
  if (!table_mapping.ok()) return table_mapping.status();
  auto peer = std::make_shared<PeerProcess>();
  peer->pid_ = pid;
  peer->notify_mapping_ = std::move(*notify_mapping);
  peer->table_mapping_ = std::move(*table_mapping);
  peer->notify_mapping_.CloseFd();
  peer->table_mapping_.CloseFd();
  peer->notify_ = static_cast<NotifySegment*>(peer->notify_mapping_.data());
  peer->table_ = static_cast<const MrTable*>(peer->table_mapping_.data());
  peer->kick_owned_ = std::move(kick);
  peer->kick_ = peer->kick_owned_.get();
  return peer;
}

void PeerProcess::KickService(uint32_t cq_number) {
  notify_->service[cq_number / 64].fetch_or(uint64_t{1} << (cq_number % 64));
  EventCounter::SignalFd(kick_);
}

namespace {

// The object listed under `id`, or `fresh`, which is listed from now on. Entries that nobody holds
// any more are struck out, so that the list is never longer than what is alive.
template <typename T>
std::shared_ptr<T> FindOrList(std::map<uint64_t, std::weak_ptr<T>>* listed, uint64_t id,
                              std::shared_ptr<T> fresh) {
  std::erase_if(*listed, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<T>& known = (*listed)[id];
  if (auto held = known.lock(); held != nullptr) return held;
  known = fresh;
  return fresh;
}

}  // namespace

std::shared_ptr<const UniqueFd> PeerProcess::AdoptChannel(uint64_t id, UniqueFd fd) {
  if (!fd.valid() || !EventCounter::IsEventCounter(fd.get())) return nullptr;
  auto fresh = std::make_shared<const UniqueFd>(std::move(fd));
  const std::lock_guard lock(mutex_);
  return FindOrList(&channels_, id, std::move(fresh));
}

std::shared_ptr<PeerMemory> PeerProcess::AdoptMemory(uint64_t id, UniqueFd fd) {
  struct stat status;
  if (self_ || !fd.valid() || fstat(fd.get(), &status) != 0) return nullptr;
  // Memory that its owner can take away while we copy would end this process with SIGBUS. It is
  // left to the kernel to copy (CopyByKernel), which reports an error instead.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
  auto fresh = std::make_shared<PeerMemory>(std::move(fd), static_cast<uint64_t>(status.st_size));
  const std::lock_guard lock(mutex_);
  return FindOrList(&memories_, id, std::move(fresh));
}

std::shared_ptr<PeerMemory> PeerProcess::FindMemory(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto it = memories_.find(id);
  return it == memories_.end() ? nullptr : it->second.lock();
}

uint8_t* PeerMemory::Map(bool writable) {
  const std::lock_guard lock(mutex_);
  uint8_t*& data = writable ? writable_ : readable_;
  if (data == nullptr) {
    const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void* mapped = mmap(nullptr, size_, protection, MAP_SHARED, fd_.get(), 0);
    if (mapped == MAP_FAILED) return nullptr;
    madvise(mapped, size_, MADV_HUGEPAGE);
    data = static_cast<uint8_t*>(mapped);
  }
  return data;
}

PeerMemory::~PeerMemory() {
  if (readable_ != nullptr) munmap(readable_, size_);
  if (writable_ != nullptr) munmap(writable_, size_);
}

bool PeerProcess::CopyByKernel(void* local, uint64_t remote, size_t size, bool write) {
  auto* at = static_cast<uint8_t*>(local);
  while (size > 0) {
    iovec here = {at, size};
    iovec there = {reinterpret_cast<void*>(remote), size};
    const ssize_t n = write ? process_vm_writev(pid_, &here, 1, &there, 1, 0)
                            : process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (n <= 0) {
      if (!logged_refusal_.exchange(true)) {
        LogError("softverbs: memory of process ", pid_, " lies in no memfd, and process_vm_",
                 write ? "write" : "read", "v says: ", std::strerror(errno));
      }
      return false;
    }
    at += n;
    remote += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace verbena::softverbs
