#include "common/base/shared_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace verbena {
namespace {

constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kHugePage = 2 * kMiB;

absl::Status NoMemory(const std::string& name, uint64_t size, const char* call) {
  const int error = errno;
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot get ", FormatSize(size), " of memory for ", name, ": ", call, ": ",
                   std::strerror(error), error == EMFILE ? " (raise `ulimit -n`)" : ""));
}

// Whether the kernel gives transparent huge pages to the mapping at `data`, asked of the kernel
// itself: madvise() succeeds also where /sys/kernel/mm/transparent_hugepage/shmem_enabled forbids
// them, and newer kernels have settings for each size besides.
bool MayGetHugePages(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  const std::string start = absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(data)), "-");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (absl::StartsWith(line, start)) found = true;
    if (found && absl::StartsWith(line, "THPeligible:")) {
      return absl::EndsWith(line, " 1");
    }
  }
  return false;
}

// All SharedMemory of this process by its first byte. Never destroyed, since memory may outlive
// other statics. The lock is held over a fork, so that the child finds it free.
struct Listed {
  uint64_t size;
  SharedMemory::File file;
};
std::mutex& list_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::map<uintptr_t, Listed>& list() {
  static std::map<uintptr_t, Listed>& all = []() -> std::map<uintptr_t, Listed>& {
    pthread_atfork([] { list_mutex().lock(); }, [] { list_mutex().unlock(); },
                   [] { list_mutex().unlock(); });
    return *new std::map<uintptr_t, Listed>;
  }();
  return all;
}

}  // namespace

void SharedMemory::List() {
  struct stat status;
  if (fstat(fd_.get(), &status) != 0) return;
  const std::lock_guard lock(list_mutex());
  list()[reinterpret_cast<uintptr_t>(data_)] = {
      size_, {.fd = fd_.get(), .device = status.st_dev, .inode = status.st_ino, .offset = 0}};
}

std::optional<SharedMemory::File> SharedMemory::FileOf(const void* address, uint64_t length) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(list_mutex());
  auto next = list().upper_bound(begin);
  if (next == list().begin()) return std::nullopt;
  const auto& [at, found] = *std::prev(next);
  const uint64_t offset = begin - at;
  if (offset > found.size || length > found.size - offset) return std::nullopt;
  File file = found.file;
  file.offset = offset;
  return file;
}

const char* PageKindName(PageKind kind) {
  switch (kind) {
    case PageKind::kHugeTlb:
      return "huge (2 MiB, reserved)";
    case PageKind::kTransparent:
      return "transparent huge pages";
    case PageKind::kSmall:
      break;
  }
  return "4 KiB";
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, uint64_t size,
                                                  bool want_huge) {
  SharedMemory memory;
  const auto map = [&](unsigned flags, uint64_t page) -> const char* {
    memory.size_ = AlignUp(size, page);
    memory.fd_ = UniqueFd(memfd_create(name.c_str(), flags | MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory.fd_.valid()) return "memfd_create";
    if (ftruncate(memory.fd_.get(), static_cast<off_t>(memory.size_)) != 0) return "ftruncate";
    void* data =
        mmap(nullptr, memory.size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_.get(), 0);
    if (data == MAP_FAILED) return "mmap";
    memory.data_ = static_cast<uint8_t*>(data);
    // Whoever is passed the descriptor must be able to trust that the pages stay.
    if (fcntl(memory.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
      munmap(data, memory.size_);
      memory.data_ = nullptr;
      return "fcntl(F_ADD_SEALS)";
    }
    return nullptr;
  };
  // mmap of a hugetlb file reserves its pages, so success means that they are there.
  if (want_huge && map(MFD_HUGETLB | MFD_HUGE_2MB, kHugePage) == nullptr) {
    memory.kind_ = PageKind::kHugeTlb;
    memory.List();
    return memory;
  }
  if (const char* failed = map(0, kSmallPage); failed != nullptr) {
    return NoMemory(name, size, failed);
  }
  if (want_huge && madvise(memory.data_, memory.size_, MADV_HUGEPAGE) == 0 &&
      MayGetHugePages(memory.data_)) {
    memory.kind_ = PageKind::kTransparent;
  }
  memory.List();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      kind_(other.kind_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(kind_, other.kind_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  {
    // First: the next mapping may have the same address.
    const std::lock_guard lock(list_mutex());
    list().erase(reinterpret_cast<uintptr_t>(data_));
  }
  munmap(data_, size_);
}

absl::Status SharedMemory::SealFutureWrites() {
  if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot seal shared memory against writers: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace verbena
