#include "common/softverbs/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace verbena::softverbs {
namespace {

// Leaves errno as it is.
absl::Status Failed(const char* what, const char* call) {
  const int error = errno;
  absl::Status failed = absl::ResourceExhaustedError(
      absl::StrCat("shared segment ", what, ": ", call, ": ", std::strerror(error)));
  errno = error;
  return failed;
}

}  // namespace

absl::StatusOr<SharedMapping> SharedMapping::Create(const char* name, size_t size,
                                                    bool peers_read_only) {
  SharedMapping mapping;
  mapping.fd_ = UniqueFd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!mapping.fd_.valid()) return Failed(name, "memfd_create");
  if (ftruncate(mapping.fd_.get(), static_cast<off_t>(size)) != 0) return Failed(name, "ftruncate");
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.fd_.get(), 0);
  if (data == MAP_FAILED) return Failed(name, "mmap");
  mapping.data_ = data;
  mapping.size_ = size;
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | (peers_read_only ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(mapping.fd_.get(), F_ADD_SEALS, seals) != 0) return Failed(name, "F_ADD_SEALS");
  return mapping;
}

absl::StatusOr<SharedMapping> SharedMapping::Open(UniqueFd fd, size_t size, bool writable) {
  struct stat status;
  if (!fd.valid() || fstat(fd.get(), &status) != 0 || status.st_size < static_cast<off_t>(size)) {
    return absl::InvalidArgumentError("a peer sent a shared segment that is too small");
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("a peer sent a shared segment that could shrink");
  }
  SharedMapping mapping;
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* data = mmap(nullptr, size, protection, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Failed("of a peer", "mmap");
  mapping.data_ = data;
  mapping.size_ = size;
  mapping.fd_ = std::move(fd);
  return mapping;
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace verbena::softverbs
