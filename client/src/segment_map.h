// What the client knows of the directory: which segment a hash leads to.
//
// Kept not as a copy of the directory but at the depth of the deepest segment seen, which is much
// smaller (a few KiB for a million keys) and stays in the processor's cache. Entries may be stale:
// the segments' own headers tell. Also deals out home frames of the bucket cache to segments.
// Allocates only when it meets a segment deeper than all before. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/src/slice_shape.h"
#include "common/layout/directory.h"
#include "common/layout/key_hash.h"

namespace verbena::client {

struct SegmentRef {
  uint64_t offset = 0;  // from the slice's base; 0: not known
  uint32_t frame = 0;   // home in the bucket cache
  uint32_t depth = 0;   // local depth as the directory said
};

class SegmentMap {
 public:
  // Segments deeper than this (from about a terabyte on) are not kept: their directory entry is
  // read anew each time. Bounds the map to 64 MiB whatever a directory claims.
  static constexpr unsigned kMaxKeptDepth = 22;

  // `frames`: of the bucket cache; 0 without one.
  SegmentMap(const SliceShape& shape, uint32_t frames);

  // The segment of a hash, or nullptr if not known. Valid until the next Learn.
  const SegmentRef* Find(layout::KeyHash hash) const {
    const SegmentRef& ref = table_[hash.directory_index(depth_)];
    return ref.offset != 0 ? &ref : nullptr;
  }

  // The same by value; offset 0 if not known.
  SegmentRef Get(layout::KeyHash hash) const { return table_[hash.directory_index(depth_)]; }

  // Takes in `words`, entries of the directory from index `first` on. Entries that make no sense
  // are skipped.
  void Learn(uint64_t first, std::span<const uint64_t> words);

  // The segment that the entry of `hash` names; offset 0 if the entry makes no sense. Works for
  // segments that are too deep to be kept, too.
  SegmentRef Resolve(layout::KeyHash hash, layout::DirectoryEntry entry);

  // Where in the slice the entry of `hash` lies; and the page around it, which is what is read.
  uint64_t EntryIndex(layout::KeyHash hash) const { return hash.directory_index(directory_depth_); }
  static uint64_t PageOf(uint64_t index) { return index / layout::kEntriesPerDirectoryPage; }

 private:
  bool MakesSense(layout::DirectoryEntry entry) const {
    return entry.depth() <= directory_depth_ && shape_.IsSegment(entry.segment_offset());
  }
  void LearnOne(uint64_t index, layout::DirectoryEntry entry);
  void Grow(unsigned depth);
  uint32_t NextFrame();

  SliceShape shape_;
  unsigned directory_depth_;
  uint32_t frames_;
  uint32_t next_frame_ = 0;
  unsigned depth_ = 0;             // of table_, at most kMaxKeptDepth
  std::vector<SegmentRef> table_;  // 2^depth_
};

}  // namespace verbena::client
