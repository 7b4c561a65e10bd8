#include "client/src/segment_map.h"

#include <algorithm>

namespace verbena::client {

using layout::DirectoryEntry;
using layout::KeyHash;

SegmentMap::SegmentMap(const SliceShape& shape, uint32_t frames)
    : shape_(shape), directory_depth_(shape.directory_depth), frames_(frames), table_(1) {}

uint32_t SegmentMap::NextFrame() {
  if (frames_ == 0) return 0;
  const uint32_t frame = next_frame_;
  next_frame_ = next_frame_ + 1 == frames_ ? 0 : next_frame_ + 1;
  return frame;
}

void SegmentMap::Grow(unsigned depth) {
  std::vector<SegmentRef> larger(size_t{1} << depth);
  const unsigned shift = depth - depth_;
  for (size_t i = 0; i < larger.size(); ++i) larger[i] = table_[i >> shift];
  table_ = std::move(larger);
  depth_ = depth;
}

void SegmentMap::LearnOne(uint64_t index, DirectoryEntry entry) {
  const unsigned depth = entry.depth();
  if (depth > kMaxKeptDepth) return;
  if (depth > depth_) Grow(depth);
  const uint64_t prefix = index >> (directory_depth_ - depth);
  const uint64_t begin = prefix << (depth_ - depth);
  const uint64_t end = (prefix + 1) << (depth_ - depth);
  SegmentRef ref = table_[begin];
  if (ref.offset == entry.segment_offset() && ref.depth == depth) return;
  // A segment that was split keeps its place and so its frame.
  if (ref.offset != entry.segment_offset()) ref.frame = NextFrame();
  ref.offset = entry.segment_offset();
  ref.depth = depth;
  std::fill(table_.begin() + static_cast<ptrdiff_t>(begin),
            table_.begin() + static_cast<ptrdiff_t>(end), ref);
}

void SegmentMap::Learn(uint64_t first, std::span<const uint64_t> words) {
  DirectoryEntry last;
  for (size_t i = 0; i < words.size(); ++i) {
    const DirectoryEntry entry{words[i]};
    if (entry == last) continue;
    last = entry;
    if (MakesSense(entry)) LearnOne(first + i, entry);
  }
}

SegmentRef SegmentMap::Resolve(KeyHash hash, DirectoryEntry entry) {
  if (!MakesSense(entry)) return {};
  if (entry.depth() > kMaxKeptDepth) {
    // No frame of its own: any will do, since copies say themselves what they serve.
    const uint32_t frame =
        frames_ == 0 ? 0 : static_cast<uint32_t>((hash.prefix() >> 8) % uint64_t{frames_});
    return {entry.segment_offset(), frame, entry.depth()};
  }
  LearnOne(EntryIndex(hash), entry);
  return *Find(hash);
}

}  // namespace verbena::client
