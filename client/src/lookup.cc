#include "client/src/lookup.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace verbena::client {

using layout::Bucket;
using layout::BucketHeader;
using layout::DirectoryEntry;
using layout::ItemState;
using layout::Slot;

Lookup::Step Lookup::StartUncached(LookupContext& context) {
  ++context.counters.cache_misses;
  return segment_.offset == 0 ? ReadDirectory(context) : ReadPrimary();
}

void Lookup::CollectCachedOverflow(LookupContext& context, const Bucket* copy) {
  // Bounded, since copies may lead in circles.
  for (uint32_t i = 0; candidate_count_ == 0 && i < layout::kOverflowBuckets; ++i) {
    const uint32_t link = BucketCache::Link(*copy);
    if (link == 0 || link > layout::kOverflowBuckets) return;
    copy = context.cache.Find(segment_.frame, BucketCache::OverflowIndex(link), hash_);
    if (copy == nullptr) return;
    Collect(*copy);
  }
}

Lookup::Step Lookup::StartAt(LookupContext& context, Slot slot, std::string_view key,
                             ReadSink* sink) {
  Reset(key, sink);
  located_ = true;
  candidates_[0] = slot;
  candidate_count_ = 1;
  return TryCandidates(context);
}

Lookup::Step Lookup::ReadDirectory(LookupContext& context) {
  ++context.counters.directory_reads;
  in_space_ = false;
  const uint64_t page = SegmentMap::PageOf(context.segments.EntryIndex(hash_));
  return Read(State::kDirectory, context.shape.directory_offset + page * layout::kDirectoryPageSize,
              layout::kDirectoryPageSize, sink_->block.data());
}

Lookup::Step Lookup::ReadPrimary() {
  cached_ = false;
  doubtful_ = false;
  in_space_ = false;
  chain_ = 0;
  return Read(State::kPrimary, segment_.offset + layout::BucketOffset(hash_.bucket()),
              layout::kBucketSize, &sink_->bucket);
}

Lookup::Step Lookup::ReadOverflow() {
  in_space_ = false;
  return Read(State::kOverflow, segment_.offset + layout::OverflowOffset(link_),
              layout::kBucketSize, &sink_->bucket);
}

Lookup::Step Lookup::RefreshDirectory(LookupContext& context) {
  if (++refreshes_ > kMaxRefreshes) return {.action = Action::kAskServer};
  return ReadDirectory(context);
}

Lookup::Step Lookup::TryOtherCandidates(LookupContext& context) {
  while (next_candidate_ < candidate_count_) {
    slot_ = candidates_[next_candidate_++];
    length_ = context.shape.FirstRead(slot_);
    if (length_ == 0) {
      doubtful_ = true;
      continue;
    }
    state_ = State::kBlock;
    in_space_ = length_ > ReadSink::kBlockBytes;
    if (in_space_ && space_.size() < length_) {
      return {.action = Action::kNeedSpace, .length = static_cast<uint32_t>(length_)};
    }
    return Read(State::kBlock, slot_.offset(), length_,
                in_space_ ? space_.data() : sink_->block.data());
  }
  if (cached_) {
    ++context.counters.cache_stale;
    return ReadPrimary();
  }
  return EndOfCandidates();
}

// All matching slots of the last bucket have been tried in vain (or there were none).
Lookup::Step Lookup::EndOfCandidates() {
  if (located_) return {.action = Action::kAskServer};
  if (link_ != 0) return ReadOverflow();
  if (!doubtful_) {
    in_space_ = false;
    return Read(State::kHeaderAgain, segment_.offset + layout::BucketOffset(hash_.bucket()),
                sizeof(BucketHeader), &sink_->header);
  }
  if (++rounds_ >= kMaxRounds) return {.action = Action::kAskServer};
  return ReadPrimary();
}

Lookup::Step Lookup::OnOtherRead(LookupContext& context) {
  switch (state_) {
    case State::kBlock:
      return OnBlock(context);
    case State::kDirectory:
      return OnDirectory(context);
    case State::kPrimary:
      return OnPrimary(context);
    case State::kOverflow:
      return OnOverflow(context);
    case State::kPieces:
      return OnPieces(context);
    case State::kHeaderAgain:
      return OnHeaderAgain(context);
  }
  return {.action = Action::kAskServer};
}

Lookup::Step Lookup::OnDirectory(LookupContext& context) {
  const uint64_t index = context.segments.EntryIndex(hash_);
  const uint64_t first = index - index % layout::kEntriesPerDirectoryPage;
  std::array<uint64_t, layout::kEntriesPerDirectoryPage> words;
  std::memcpy(words.data(), sink_->block.data(), sizeof(words));
  context.segments.Learn(first, words);
  segment_ = context.segments.Resolve(hash_, DirectoryEntry{words[index - first]});
  if (segment_.offset == 0) return {.action = Action::kAskServer};
  return ReadPrimary();
}

void Lookup::TakeLink(uint32_t link) {
  const bool possible = link <= layout::kOverflowBuckets && chain_ < layout::kOverflowBuckets;
  link_ = possible ? static_cast<uint8_t>(link) : 0;
  if (link != 0 && !possible) doubtful_ = true;
}

Lookup::Step Lookup::OnPrimary(LookupContext& context) {
  const Bucket& bucket = sink_->bucket;
  if (!bucket.header.Covers(hash_)) return RefreshDirectory(context);
  cover_ = bucket.header;
  TakeLink(bucket.header.link());
  if (bucket.header.link() == link_) {
    context.cache.Store(segment_.frame, hash_.bucket(), hash_, cover_, bucket);
  }
  Collect(bucket);
  return TryCandidates(context);
}

Lookup::Step Lookup::OnOverflow(LookupContext& context) {
  const Bucket& bucket = sink_->bucket;
  const uint32_t index = BucketCache::OverflowIndex(link_);
  ++chain_;
  TakeLink(bucket.header.link());
  if (bucket.header.link() == link_) {
    context.cache.Store(segment_.frame, index, hash_, cover_, bucket);
  }
  Collect(bucket);
  return TryCandidates(context);
}

Lookup::Step Lookup::OnBlockNotAccepted(LookupContext& context, ItemState state,
                                        uint64_t item_size) {
  const bool more = state == ItemState::kInvalid && slot_.size_class() == layout::kRunClass &&
                    item_size > length_;
  if (!more || item_size > context.shape.max_item_size ||
      !context.shape.InHeap(slot_.offset(), item_size)) {
    return NotAccepted(context);
  }
  // A run: the first piece is here and claims to hold the key.
  state_ = State::kPieces;
  have_ = length_;
  length_ = item_size;
  if (space_.size() < length_) {
    return {.action = Action::kNeedSpace, .length = static_cast<uint32_t>(length_)};
  }
  return OnSpace(context, space_);
}

Lookup::Step Lookup::OnSpace(LookupContext&, std::span<uint8_t> space) {
  assert(space.size() >= length_);
  space_ = space;
  in_space_ = true;
  if (state_ == State::kBlock) return Read(State::kBlock, slot_.offset(), length_, space_.data());
  std::memcpy(space_.data(), sink_->block.data(), have_);
  return NextPiece();
}

Lookup::Step Lookup::NextPiece() {
  const uint64_t begin = have_;
  const uint64_t piece = std::min(length_ - have_, kPieceBytes);
  have_ += piece;
  return Read(State::kPieces, slot_.offset() + begin, piece, space_.data() + begin);
}

Lookup::Step Lookup::OnPieces(LookupContext& context) {
  if (have_ < length_) return NextPiece();
  uint64_t item_size = 0;
  const ItemState state = layout::JudgeItem(space_.data(), length_, slot_.offset(), key_,
                                            context.shape.hash_seed, &item_size);
  return state == ItemState::kAccepted ? Found(space_.data()) : NotAccepted(context);
}

Lookup::Step Lookup::OnHeaderAgain(LookupContext& context) {
  if (!sink_->header.Covers(hash_)) return RefreshDirectory(context);
  return {.action = Action::kAbsent};
}

Lookup::Step Lookup::NotAccepted(LookupContext& context) {
  ++context.counters.read_retries;
  doubtful_ = true;
  return TryCandidates(context);
}

}  // namespace verbena::client
