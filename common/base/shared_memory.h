// Anonymous memory made with memfd_create and mapped read-write: the memory that is registered with
// an RDMA device. The descriptor stays open as long as the memory, so that the software verbs
// device can pass it to the process at the other end, which then READs without a system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace verbena {

// What the pages of a SharedMemory are.
enum class PageKind {
  kHugeTlb,      // reserved huge pages (MFD_HUGETLB)
  kTransparent,  // 4 KiB pages, or huge ones at the kernel's choice (MADV_HUGEPAGE accepted)
  kSmall,        // 4 KiB pages
};
const char* PageKindName(PageKind kind);

// Owner of a mapping. Move-only; unmaps on destruction. Thread-safe after creation (the bytes
// themselves are the user's business).
class SharedMemory {
 public:
  // `size` bytes (rounded up to whole pages), zeroed. `name` shows in /proc/PID/maps. With
  // `want_huge` huge pages are tried first. ResourceExhausted names the size if there is no memory.
  static absl::StatusOr<SharedMemory> Create(const std::string& name, uint64_t size,
                                             bool want_huge);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<uint8_t> bytes() const { return {data_, size_}; }
  int fd() const { return fd_.get(); }
  PageKind page_kind() const { return kind_; }

  // The file of one of this process's SharedMemory.
  struct File {
    int fd = -1;  // open as long as the memory is
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t offset = 0;  // of the range's first byte in it
  };
  // The one that has the whole range, which must stay as long as the caller uses the descriptor;
  // nullopt if there is none. Quick however much of it there is, while /proc/self/maps and
  // /proc/self/fd take longer with each mapping and descriptor of the process. Thread-safe.
  static std::optional<File> FileOf(const void* address, uint64_t length);

  // After this nobody can map the memory writable any more (F_SEAL_FUTURE_WRITE); this mapping
  // stays writable.
  absl::Status SealFutureWrites();

 private:
  void List();

  UniqueFd fd_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  PageKind kind_ = PageKind::kSmall;
};

}  // namespace verbena
