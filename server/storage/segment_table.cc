#include "server/storage/segment_table.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sizes.h"

namespace verbena::storage {

absl::StatusOr<SegmentTable> SegmentTable::Create(const Region& region) {
  const uint64_t bytes = region.heap_pages() * kSegmentsPerPage * sizeof(SegmentData);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot reserve ", FormatSize(bytes), " of address space for the index's locks: mmap: ",
        std::strerror(errno), "; choose a smaller memory size, or allow overcommit"));
  }
  return SegmentTable(static_cast<SegmentData*>(data), bytes, region.heap_begin());
}

SegmentTable::SegmentTable(SegmentTable&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      heap_begin_(other.heap_begin_) {}

SegmentTable::~SegmentTable() {
  // SegmentData needs no destruction.
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace verbena::storage
