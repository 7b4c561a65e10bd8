// What the client knows of the directory: which segment a hash leads to.
//
// Kept not as a copy of the directory but at the depth of the deepest segment seen, which is much
// smaller (a few KiB for a million keys) and stays in the processor's cache. Entries may be stale:
// the segments' own headers tell. Also deals out home frames of the bucket cache to segments.
//
// Thread-safe. Readers take no lock: a table is published with all it contains when a segment is
// met that is deeper than all before, and tables are kept as long as the map (each is twice as
// large as the one before, so all together at most twice as large as the last). A reader may use an
// older table, or see the offset of one segment with the frame of another: the segment's header
// tells that it is the wrong one, and copies in a frame say themselves what they serve.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/src/slice_shape.h"
#include "common/layout/directory.h"
#include "common/layout/key_hash.h"

namespace verbena::client {

struct SegmentRef {
  uint64_t offset = 0;  // from the slice's base; 0: not known
  uint32_t frame = 0;   // home in the bucket cache
};

class SegmentMap {
 public:
  // Segments deeper than this (from about a terabyte on) are not kept: their directory entry is
  // read anew each time. Bounds the map to 128 MiB whatever a directory claims.
  static constexpr unsigned kMaxKeptDepth = 22;

  // `frames`: of the bucket cache; 0 without one.
  SegmentMap(const SliceShape& shape, uint32_t frames);

  // The segment of a hash; offset 0 if not known.
  SegmentRef Get(layout::KeyHash hash) const {
    const Table& table = *current_.load(std::memory_order_acquire);
    return Load(table.entries[hash.bits >> table.shift]);
  }

  // Its home frame alone; 0 if it is not known.
  uint32_t FrameOf(layout::KeyHash hash) const {
    const Table& table = *current_.load(std::memory_order_acquire);
    return table.entries[hash.bits >> table.shift].frame.load(std::memory_order_relaxed);
  }

  // Takes in `words`, entries of the directory from index `first` on. Entries that make no sense
  // are skipped.
  void Learn(uint64_t first, std::span<const uint64_t> words);

  // The segment that the entry of `hash` names; offset 0 if the entry makes no sense. Works for
  // segments that are too deep to be kept, too.
  SegmentRef Resolve(layout::KeyHash hash, layout::DirectoryEntry entry);

  // All segments that are known, in the order of the hashes that they serve, at most `most`.
  std::vector<SegmentRef> Segments(size_t most) const;

  // Where in the slice the entry of `hash` lies; and the page around it, which is what is read.
  uint64_t EntryIndex(layout::KeyHash hash) const { return hash.directory_index(directory_depth_); }
  static uint64_t PageOf(uint64_t index) { return index / layout::kEntriesPerDirectoryPage; }

  // Whether an entry can be one of this slice's directory.
  bool MakesSense(layout::DirectoryEntry entry) const {
    return entry.depth() <= directory_depth_ && shape_.IsSegment(entry.segment_offset());
  }

 private:
  struct Entry {
    std::atomic<uint64_t> offset{0};
    std::atomic<uint32_t> frame{0};
    uint32_t depth = 0;  // local depth as the directory said; for writers, under the mutex
  };
  struct Table {
    explicit Table(unsigned table_depth)
        : depth(table_depth),
          shift(64 - table_depth),
          entries(new Entry[size_t{1} << table_depth]) {}
    const unsigned depth;  // 1 to kMaxKeptDepth
    const unsigned shift;
    const std::unique_ptr<Entry[]> entries;  // 2^depth
  };

  static SegmentRef Load(const Entry& entry) {
    return {entry.offset.load(std::memory_order_relaxed),
            entry.frame.load(std::memory_order_relaxed)};
  }
  // Under the mutex:
  void LearnOne(uint64_t index, layout::DirectoryEntry entry);
  const Table& Grow(unsigned depth);
  uint32_t NextFrame();

  const SliceShape shape_;
  const unsigned directory_depth_;
  const uint32_t frames_;
  std::atomic<const Table*> current_;  // tables_.back()

  std::mutex mutex_;  // of writers; guards what follows, and Entry::depth
  uint32_t next_frame_ = 0;
  std::vector<std::unique_ptr<const Table>> tables_;
};

}  // namespace verbena::client
