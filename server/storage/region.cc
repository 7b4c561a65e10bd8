#include "server/storage/region.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/relaxed_copy.h"
#include "common/base/sizes.h"
#include "common/base/threads.h"
#include "common/layout/bucket.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena::storage {
namespace {

constexpr uint64_t kTouchChunk = 16 * kMiB;
constexpr unsigned kMaxTouchThreads = 16;
constexpr uint64_t kSmallestPage = 4096;
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

absl::Status CheckSliceSize(uint64_t size) {
  if (size >= kMinSliceSize && size <= layout::kMaxSliceSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a memory of ", FormatSize(size), " is out of range: it must be between ",
                   FormatSize(kMinSliceSize), " and ", FormatSize(layout::kMaxSliceSize)));
}

// A random number that is not 0.
absl::StatusOr<uint64_t> RandomWord() {
  uint64_t word = 0;
  while (word == 0) {
    const ssize_t got = getrandom(&word, sizeof(word), 0);
    if (got != sizeof(word) && errno != EINTR) {
      return absl::InternalError(
          absl::StrCat("cannot get random bytes: getrandom: ", std::strerror(errno)));
    }
  }
  return word;
}

// Makes the kernel provide the pages of a chunk. False if there is no memory for them.
bool TouchChunk(uint8_t* data, uint64_t size) {
  if (madvise(data, size, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // Before Linux 5.14. The memory is still zero and private, so writing zeros changes nothing.
  for (uint64_t offset = 0; offset < size; offset += kSmallestPage) {
    static_cast<volatile uint8_t*>(data)[offset] = 0;
  }
  return true;
}

// Touches all pages with several threads; the caller's thread reports progress.
class Toucher {
 public:
  Toucher(std::span<uint8_t> memory, const RegionOptions& options)
      : memory_(memory), options_(options) {}

  bool Run() {
    std::vector<std::thread> threads;
    const uint64_t chunks = (memory_.size() + kTouchChunk - 1) / kTouchChunk;
    const uint64_t count = std::min<uint64_t>(Threads(), chunks);
    threads.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      absl::StatusOr<std::thread> thread = MakeThread("touching memory", [this] { Work(); });
      if (!thread.ok()) break;  // fewer do
      threads.push_back(*std::move(thread));
    }
    if (threads.empty()) Work();
    {
      std::unique_lock lock(mutex_);
      while (done_ < memory_.size() && !failed_) {
        changed_.wait_for(lock, kProgressInterval);
        Report(lock);
      }
    }
    for (std::thread& thread : threads) thread.join();
    return !failed_;
  }

 private:
  unsigned Threads() const {
    if (options_.touch_threads > 0) return static_cast<unsigned>(options_.touch_threads);
    return std::clamp(std::thread::hardware_concurrency(), 1u, kMaxTouchThreads);
  }

  void Work() {
    for (;;) {
      const uint64_t begin = next_.fetch_add(kTouchChunk, std::memory_order_relaxed);
      if (begin >= memory_.size()) return;
      const uint64_t size = std::min(kTouchChunk, memory_.size() - begin);
      const bool touched = TouchChunk(memory_.data() + begin, size);
      const std::lock_guard lock(mutex_);
      done_ += size;
      failed_ |= !touched;
      if (failed_ || done_ == memory_.size()) changed_.notify_one();
      if (failed_) return;
    }
  }

  // The callback runs without the lock, so that it cannot hold up the threads.
  void Report(std::unique_lock<std::mutex>& lock) {
    if (!options_.progress) return;
    const uint64_t done = done_;
    lock.unlock();
    options_.progress(done, memory_.size());
    lock.lock();
  }

  const std::span<uint8_t> memory_;
  const RegionOptions& options_;
  std::atomic<uint64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t done_ = 0;
  bool failed_ = false;
};

// Prefers `node` for pages that are not there yet. May be forbidden (containers without
// CAP_SYS_NICE), which is no reason not to start.
bool BindToNode(std::span<uint8_t> memory, int node) {
  constexpr int kPreferred = 1;  // MPOL_PREFERRED of <linux/mempolicy.h>
  constexpr int kMaxNode = 1024;
  if (node < 0 || node >= kMaxNode) return false;
  uint64_t mask[kMaxNode / 64] = {};
  mask[node / 64] = uint64_t{1} << (node % 64);
  return syscall(SYS_mbind, memory.data(), memory.size(), kPreferred, mask, kMaxNode, 0) == 0;
}

}  // namespace

absl::StatusOr<Region> Region::Create(const RegionOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckSliceSize(options.size));
  Region region;
  VERBENA_ASSIGN_OR_RETURN(
      region.memory_,
      SharedMemory::Create(options.name, AlignUp(options.size, kMiB), options.want_huge_pages));
  region.bytes_ = region.memory_.bytes();
  if (options.numa_node >= 0) region.numa_bound_ = BindToNode(region.bytes_, options.numa_node);
  if (options.pre_touch && !Toucher(region.bytes_, options).Run()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot get ", FormatSize(region.size()), " of memory for ", options.name,
                     ": the system has not that much left; choose a smaller size"));
  }
  VERBENA_RETURN_IF_ERROR(region.WriteHeader());
  VERBENA_RETURN_IF_ERROR(region.memory_.SealFutureWrites());
  return region;
}

absl::StatusOr<Region> Region::Format(std::span<uint8_t> memory) {
  VERBENA_RETURN_IF_ERROR(CheckSliceSize(memory.size()));
  if (reinterpret_cast<uintptr_t>(memory.data()) % layout::kBucketSize != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the memory of a region must start at a multiple of ", layout::kBucketSize, " bytes"));
  }
  Region region;
  region.bytes_ = memory;
  VERBENA_RETURN_IF_ERROR(region.WriteHeader());
  return region;
}

absl::Status Region::WriteHeader() {
  layout::RegionHeader header{};
  header.magic = layout::kRegionMagic;
  header.layout_version = layout::kLayoutVersion;
  VERBENA_ASSIGN_OR_RETURN(header.epoch, RandomWord());
  VERBENA_ASSIGN_OR_RETURN(header.hash_seed, RandomWord());
  header.slice_size = size();
  header.directory_offset = AlignUp(layout::kRegionHeaderSize, layout::kDirectoryPageSize);
  header.directory_depth = layout::DirectoryDepthFor(size());
  const uint64_t directory_size = sizeof(layout::DirectoryEntry) << header.directory_depth;
  header.heap_begin = AlignUp(header.directory_offset + directory_size, layout::kPageSize);
  header.heap_end = size() / layout::kPageSize * layout::kPageSize;
  header_ = header;
  CopyToShared(base(), &header, sizeof(header));
  return absl::OkStatus();
}

std::span<uint64_t> Region::directory() const {
  return {reinterpret_cast<uint64_t*>(At(header_.directory_offset)),
          size_t{1} << directory_depth()};
}

}  // namespace verbena::storage
