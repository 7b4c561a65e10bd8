#include "common/base/shared_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
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
  return absl::ResourceExhaustedError(absl::StrCat("cannot get ", FormatSize(size),
                                                   " of memory for ", name, ": ", call, ": ",
                                                   std::strerror(errno)));
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

}  // namespace

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
    return memory;
  }
  if (const char* failed = map(0, kSmallPage); failed != nullptr) {
    return NoMemory(name, size, failed);
  }
  if (want_huge && madvise(memory.data_, memory.size_, MADV_HUGEPAGE) == 0 &&
      MayGetHugePages(memory.data_)) {
    memory.kind_ = PageKind::kTransparent;
  }
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
  if (data_ != nullptr) munmap(data_, size_);
}

absl::Status SharedMemory::SealFutureWrites() {
  if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot seal shared memory against writers: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace verbena
