#include "server/storage/allocator.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <mutex>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"

namespace verbena::storage {
namespace {

constexpr uint32_t kMostCached = 64;
// A cache holds at most this many bytes of a class, and classes of which that is not even two
// blocks are not cached.
constexpr uint64_t kMostCachedBytes = 64 * kKiB;

constexpr uint32_t CountCachedClasses() {
  uint32_t size_class = 0;
  while (kMostCachedBytes / layout::BlockSize(size_class) >= 2) ++size_class;
  return size_class;
}
constexpr uint32_t kCachedClasses = CountCachedClasses();
static_assert(layout::BlockSize(kCachedClasses - 1) == 32 * kKiB);

}  // namespace

// Cache lines of its own, since each worker writes to its one all the time. The lock is free but
// for a FlushCaches of another worker.
struct alignas(128) Allocator::Cache {
  struct Magazine {
    uint32_t count = 0;
    std::array<uint64_t, kMostCached> offsets;
  };

  SpinLock lock;
  // Written by the owning worker only. Wraps below 0 where a worker frees what others allocated;
  // the sum over all workers is right.
  std::atomic<uint64_t> used_bytes{0};
  std::array<Magazine, kCachedClasses> magazines;

  void AddUsed(uint64_t bytes) {
    used_bytes.store(used_bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
};

Allocator::Allocator(const Region& region, int workers)
    : heap_bytes_(region.heap_end() - region.heap_begin()),
      workers_(workers),
      heap_(region),
      caches_(std::make_unique<Cache[]>(static_cast<size_t>(workers))) {}

Allocator::~Allocator() = default;

uint32_t Allocator::CacheCapacity(uint32_t size_class) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(kMostCached, kMostCachedBytes / layout::BlockSize(size_class)));
}

Block Allocator::Allocate(int worker, uint64_t bytes) {
  assert(worker >= 0 && worker < workers_ && bytes > 0);
  Cache& cache = caches_[static_cast<size_t>(worker)];
  const uint32_t size_class = layout::SizeClassFor(bytes);
  uint64_t offset = size_class < kCachedClasses ? AllocateCached(cache, size_class)
                                                : AllocateCentrally(bytes, size_class);
  if (offset == 0) {
    FlushCaches();
    offset = AllocateCentrally(bytes, size_class);
    if (offset == 0) return {};
  }
  cache.AddUsed(size_class == layout::kRunClass ? PageHeap::RunBytes(bytes)
                                                : layout::BlockSize(size_class));
  return {offset, size_class};
}

uint64_t Allocator::AllocateCached(Cache& cache, uint32_t size_class) {
  const std::lock_guard lock(cache.lock);
  Cache::Magazine& magazine = cache.magazines[size_class];
  if (magazine.count == 0) {
    // Half of the room, so that frees do not empty it at once.
    magazine.count = static_cast<uint32_t>(heap_.AllocateBlocks(
        size_class, std::span(magazine.offsets).first(CacheCapacity(size_class) / 2)));
    NoticeTaken();
    if (magazine.count == 0) return 0;
  }
  return magazine.offsets[--magazine.count];
}

uint64_t Allocator::AllocateCentrally(uint64_t bytes, uint32_t size_class) {
  uint64_t offset = 0;
  if (size_class == layout::kRunClass) {
    offset = heap_.AllocateRun(bytes);
  } else {
    heap_.AllocateBlocks(size_class, std::span(&offset, 1));
  }
  NoticeTaken();
  return offset;
}

void Allocator::Free(int worker, Block block) {
  assert(worker >= 0 && worker < workers_ && block);
  Cache& cache = caches_[static_cast<size_t>(worker)];
  if (block.size_class == layout::kRunClass) {
    cache.AddUsed(-heap_.FreeRun(block.offset));
    NoticeFreed();
    return;
  }
  cache.AddUsed(-layout::BlockSize(block.size_class));
  if (block.size_class >= kCachedClasses) {
    FreeCentrally(block.size_class, std::span(&block.offset, 1));
    return;
  }
  const std::lock_guard lock(cache.lock);
  // See BeginWindow.
  if (block.offset - window_begin_.load(std::memory_order_relaxed) <
      window_size_.load(std::memory_order_relaxed)) {
    FreeCentrally(block.size_class, std::span(&block.offset, 1));
    return;
  }
  Cache::Magazine& magazine = cache.magazines[block.size_class];
  if (magazine.count == CacheCapacity(block.size_class)) {
    // The older half goes; the younger is more likely to be in the processor's cache.
    const uint32_t half = magazine.count / 2;
    FreeCentrally(block.size_class, std::span(magazine.offsets).first(half));
    std::copy(magazine.offsets.begin() + half, magazine.offsets.begin() + magazine.count,
              magazine.offsets.begin());
    magazine.count -= half;
  }
  magazine.offsets[magazine.count++] = block.offset;
}

void Allocator::FreeCentrally(uint32_t size_class, std::span<const uint64_t> offsets) {
  heap_.FreeBlocks(size_class, offsets);
  NoticeFreed();
}

void Allocator::SetCompactionNotice(uint64_t bytes, std::function<void()> notice) {
  notice_after_ = bytes;
  next_notice_.store(heap_.freed_bytes() + bytes, std::memory_order_relaxed);
  notice_ = std::move(notice);
}

void Allocator::NoticeFreed() {
  if (notice_ == nullptr) return;
  const uint64_t freed = heap_.freed_bytes();
  if (freed < next_notice_.load(std::memory_order_relaxed)) return;
  next_notice_.store(freed + notice_after_, std::memory_order_relaxed);
  notice_();
}

// Whoever frees a block of the window holds the lock of his cache. If he had it before FlushCaches
// did, the block may have gone into the cache, and is flushed. If he has it afterwards, he sees the
// window, since it was stored before FlushCaches took that lock. So once FlushCaches has returned
// no cache has a block of the window, until EndWindow. (Whoever sees one half of the window only
// takes another block for one of it, at worst, and gives it back centrally, which is always right.)
void Allocator::BeginWindow(HeapWindow window) {
  window_begin_.store(window.begin, std::memory_order_relaxed);
  window_size_.store(window.end - window.begin, std::memory_order_relaxed);
  FlushCaches();
}

PageHeap::Released Allocator::EndWindow(bool in_vain) {
  window_size_.store(0, std::memory_order_relaxed);
  return heap_.ReleaseWindow(in_vain);
}

uint64_t Allocator::AllocateSegment() {
  if (const uint64_t offset = heap_.AllocateSegment(); offset != 0) return offset;
  FlushCaches();
  return heap_.AllocateSegment();
}

void Allocator::FlushCache(int worker) {
  Cache& cache = caches_[static_cast<size_t>(worker)];
  const std::lock_guard lock(cache.lock);
  for (uint32_t size_class = 0; size_class < kCachedClasses; ++size_class) {
    Cache::Magazine& magazine = cache.magazines[size_class];
    if (magazine.count == 0) continue;
    FreeCentrally(size_class, std::span(magazine.offsets).first(magazine.count));
    magazine.count = 0;
  }
}

void Allocator::FlushCaches() {
  for (int worker = 0; worker < workers_; ++worker) FlushCache(worker);
}

absl::Status Allocator::OutOfMemory(absl::string_view what, uint64_t bytes) const {
  const uint64_t used = UsedBytes() + heap_.Usage().segments * layout::kSegmentSize;
  const uint64_t left = heap_bytes_ - std::min(used, heap_bytes_);
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: ", FormatSize(bytes), " asked for ", what, ", ", FormatSize(left), " of ",
      FormatSize(heap_bytes_), " left", left >= bytes ? " in pieces that do not fit" : ""));
}

uint64_t Allocator::UsedBytes() const {
  uint64_t sum = 0;
  for (int worker = 0; worker < workers_; ++worker) {
    sum += caches_[static_cast<size_t>(worker)].used_bytes.load(std::memory_order_relaxed);
  }
  return sum;
}

std::array<uint64_t, layout::kSizeClasses> Allocator::BlocksInUse() const {
  std::array<uint64_t, layout::kSizeClasses> blocks = heap_.Usage().class_blocks;
  for (int worker = 0; worker < workers_; ++worker) {
    Cache& cache = caches_[static_cast<size_t>(worker)];
    const std::lock_guard lock(cache.lock);
    for (uint32_t size_class = 0; size_class < kCachedClasses; ++size_class) {
      blocks[size_class] -=
          std::min<uint64_t>(blocks[size_class], cache.magazines[size_class].count);
    }
  }
  return blocks;
}

absl::Status Allocator::Validate() const {
  VERBENA_RETURN_IF_ERROR(heap_.Validate());
  const HeapUsage usage = heap_.Usage();
  uint64_t slab_bytes = 0;
  for (uint32_t size_class = 0; size_class < layout::kSizeClasses; ++size_class) {
    uint64_t blocks = usage.class_blocks[size_class];
    for (int worker = 0; size_class < kCachedClasses && worker < workers_; ++worker) {
      const uint64_t cached = caches_[static_cast<size_t>(worker)].magazines[size_class].count;
      if (cached > blocks) {
        return absl::InternalError(absl::StrCat("class ", size_class, ": more blocks cached (",
                                                cached, ") than given out (", blocks, ")"));
      }
      blocks -= cached;
    }
    slab_bytes += blocks * layout::BlockSize(size_class);
  }
  // What is not in slabs is in runs.
  if (slab_bytes > UsedBytes() || (usage.run_pages == 0 && slab_bytes != UsedBytes())) {
    return absl::InternalError(absl::StrCat("blocks in use come to ", slab_bytes, " bytes, but ",
                                            UsedBytes(), " are counted"));
  }
  return absl::OkStatus();
}

}  // namespace verbena::storage
