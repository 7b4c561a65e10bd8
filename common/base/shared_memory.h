// Anonymous memory made with memfd_create and mapped read-write: the memory that is registered with
// an RDMA device. The descriptor stays open as long as the memory, so that the software verbs
// device can pass it to the process at the other end, which then READs without a system call.
#pragma once

#include <cstddef>
#include <cstdint>
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

  // After this nobody can map the memory writable any more (F_SEAL_FUTURE_WRITE); this mapping
  // stays writable.
  absl::Status SealFutureWrites();

 private:
  UniqueFd fd_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  PageKind kind_ = PageKind::kSmall;
};

}  // namespace verbena
