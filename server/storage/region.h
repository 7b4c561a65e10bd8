// One slice of the server's memory: the bytes that clients READ (common/layout).
//
//   0                  RegionHeader, 4 KiB
//   4 KiB              directory, 8 << D bytes
//   heap_begin         heap: 1 MiB pages, managed by Allocator
//   heap_end <= size
//
// A Region owns (or borrows) the memory, formats it and knows where its parts are. It is registered
// with the devices once, by whoever owns the server; nothing here knows about devices.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/shared_memory.h"
#include "common/layout/directory.h"
#include "common/layout/region_header.h"

namespace verbena::storage {

// The smallest slice: header and directory, a page for segments and a few for items.
inline constexpr uint64_t kMinSliceSize = 4 * layout::kPageSize;

struct RegionOptions {
  // Shows in /proc/PID/maps.
  std::string name = "verbena";
  // Bytes, at least kMinSliceSize; rounded up to whole MiB.
  uint64_t size = 0;
  bool want_huge_pages = true;
  // Writes to every page before Create returns, so that no operation waits for the kernel later.
  bool pre_touch = true;
  // Threads that pre-touch; 0 takes one per processor, at most 16.
  int touch_threads = 0;
  // NUMA node that the memory should come from, -1 for any. A wish: see Region::numa_bound().
  int numa_node = -1;
  // Called while pre-touching, from the thread that called Create, with the bytes that are done
  // and the bytes in all; about ten times a second and once at the end.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// Move-only. Thread-safe after creation, but for the bytes themselves.
class Region {
 public:
  // Gets memory (memfd), touches it, formats it and seals it against future writers: from then on
  // other processes can map it for reading only. InvalidArgument for a size out of range,
  // ResourceExhausted if the memory cannot be had; both name the size.
  static absl::StatusOr<Region> Create(const RegionOptions& options);

  // Formats memory of the caller's, which must be zeroed, outlive the Region and start at a
  // multiple of 128 bytes. InvalidArgument if it is too small or not aligned.
  static absl::StatusOr<Region> Format(std::span<uint8_t> memory);

  Region() = default;
  Region(Region&&) noexcept = default;
  Region& operator=(Region&&) noexcept = default;

  uint8_t* base() const { return bytes_.data(); }
  uint64_t size() const { return bytes_.size(); }
  std::span<uint8_t> bytes() const { return bytes_; }
  uint8_t* At(uint64_t offset) const { return bytes_.data() + offset; }

  // The memory's file descriptor (sealed), -1 for memory of the caller's.
  int fd() const { return memory_.fd(); }
  PageKind page_kind() const { return memory_.page_kind(); }
  bool numa_bound() const { return numa_bound_; }

  // A copy of the header; it does not change as long as the Region lives.
  const layout::RegionHeader& header() const { return header_; }
  uint64_t epoch() const { return header_.epoch; }
  uint64_t hash_seed() const { return header_.hash_seed; }
  unsigned directory_depth() const { return static_cast<unsigned>(header_.directory_depth); }
  uint64_t heap_begin() const { return header_.heap_begin; }
  uint64_t heap_end() const { return header_.heap_end; }
  uint64_t heap_pages() const { return (heap_end() - heap_begin()) / layout::kPageSize; }

  // The directory's 2^D words, all 0 until the index sets them. Shared with remote readers: to be
  // accessed with the functions of common/base/relaxed_copy.h.
  std::span<uint64_t> directory() const;

 private:
  absl::Status WriteHeader();

  SharedMemory memory_;
  std::span<uint8_t> bytes_;
  layout::RegionHeader header_{};
  bool numa_bound_ = false;
};

}  // namespace verbena::storage
