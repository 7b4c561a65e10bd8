#include "client/src/segment_map.h"

#include <utility>

namespace verbena::client {

using layout::DirectoryEntry;
using layout::KeyHash;

SegmentMap::SegmentMap(const SliceShape& shape, uint32_t frames)
    : shape_(shape), directory_depth_(shape.directory_depth), frames_(frames) {
  tables_.push_back(std::make_unique<const Table>(1));
  current_.store(tables_.back().get(), std::memory_order_release);
}

uint32_t SegmentMap::NextFrame() {
  if (frames_ == 0) return 0;
  const uint32_t frame = next_frame_;
  next_frame_ = next_frame_ + 1 == frames_ ? 0 : next_frame_ + 1;
  return frame;
}

const SegmentMap::Table& SegmentMap::Grow(unsigned depth) {
  const Table& table = *tables_.back();
  auto larger = std::make_unique<const Table>(depth);
  for (size_t i = 0; i < size_t{1} << depth; ++i) {
    const Entry& from = table.entries[i >> (depth - table.depth)];
    Entry& to = larger->entries[i];
    const SegmentRef ref = Load(from);
    to.offset.store(ref.offset, std::memory_order_relaxed);
    to.frame.store(ref.frame, std::memory_order_relaxed);
    to.depth = from.depth;
  }
  tables_.push_back(std::move(larger));
  // Whoever sees the table sees what is in it.
  current_.store(tables_.back().get(), std::memory_order_release);
  return *tables_.back();
}

void SegmentMap::LearnOne(uint64_t index, DirectoryEntry entry) {
  const unsigned depth = entry.depth();
  if (depth > kMaxKeptDepth) return;
  const Table& table = depth > tables_.back()->depth ? Grow(depth) : *tables_.back();
  const uint64_t prefix = index >> (directory_depth_ - depth);
  const uint64_t begin = prefix << (table.depth - depth);
  const uint64_t end = (prefix + 1) << (table.depth - depth);
  SegmentRef ref = Load(table.entries[begin]);
  if (ref.offset == entry.segment_offset() && table.entries[begin].depth == depth) return;
  // A segment that was split keeps its place and so its frame.
  if (ref.offset != entry.segment_offset()) ref.frame = NextFrame();
  for (uint64_t i = begin; i < end; ++i) {
    table.entries[i].frame.store(ref.frame, std::memory_order_relaxed);
    table.entries[i].offset.store(entry.segment_offset(), std::memory_order_relaxed);
    table.entries[i].depth = depth;
  }
}

void SegmentMap::Learn(uint64_t first, std::span<const uint64_t> words) {
  const std::lock_guard lock(mutex_);
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
    return {entry.segment_offset(), frame};
  }
  // Not undone by another thread, with an older entry, before it is read back.
  const std::lock_guard lock(mutex_);
  LearnOne(EntryIndex(hash), entry);
  return Get(hash);
}

std::vector<SegmentRef> SegmentMap::Segments(size_t most) const {
  std::vector<SegmentRef> segments;
  const Table& table = *current_.load(std::memory_order_acquire);
  for (size_t i = 0; i < size_t{1} << table.depth && segments.size() < most; ++i) {
    const SegmentRef ref = Load(table.entries[i]);
    if (ref.offset == 0 || (!segments.empty() && segments.back().offset == ref.offset)) continue;
    segments.push_back(ref);
  }
  return segments;
}

}  // namespace verbena::client
