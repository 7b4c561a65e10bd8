#include "client/src/lookup.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "client/src/slot_marks.h"
#include "common/base/relaxed_copy.h"

namespace verbena::client {

using layout::Bucket;
using layout::BucketHeader;
using layout::DirectoryEntry;
using layout::ItemState;
using layout::Slot;

std::array<LookupContext::BlockBounds, 256> LookupContext::BlockBoundsOf(const SliceShape& shape) {
  std::array<BlockBounds, 256> blocks{};
  const uint64_t heap = shape.heap_end - shape.heap_begin;
  for (uint32_t code = 0; code < blocks.size(); ++code) {
    const uint64_t length = layout::FirstReadSizeOrZero(code);
    if (length < sizeof(layout::ItemHeader) || length > ReadSink::kBlockBytes || length > heap)
      continue;
    blocks[code] = {.span = heap - length + 1, .length = length};
  }
  return blocks;
}

constinit Bucket Lookup::no_copy{};

void Lookup::Reset(std::string_view key) {
  key_ = key;
  space_ = {};
  at_ = {};
}

Lookup::Step Lookup::Read(State state, uint64_t offset, uint64_t length, void* target) {
  state_ = state;
  return {.action = Action::kRead,
          .in_space = at_.in_space,
          .length = static_cast<uint32_t>(length),
          .offset = offset,
          .target = static_cast<uint8_t*>(target)};
}

void Lookup::LeaveWarm(LookupContext& context) {
  Reset(key_);
  segment_ = context.segments.Get(hash_);
  at_.cached = true;
  state_ = State::kBlock;
}

Lookup::Step Lookup::Start(LookupContext& context) {
  Reset(key_);
  segment_ = context.segments.Get(hash_);
  if (segment_.offset == 0 || !context.cache.enabled()) return StartUncached(context);
  copy_ = context.cache.Find(segment_.frame, hash_.bucket(), hash_);
  if (copy_ == nullptr) return StartUncached(context);
  ++context.counters.cache_hits;
  at_.cached = true;
  Collect(*copy_);
  // The overflow buckets are looked at only where the primary one has no candidate.
  if (at_.candidate_count == 0) CollectCachedOverflow(context);
  return TryCandidates(context);
}

void Lookup::Collect(const Bucket& bucket) {
  uint8_t count = 0;
  for (uint32_t mask = MatchSlots(bucket, hash_.fingerprint()); mask != 0; mask &= mask - 1) {
    const Slot slot{LoadRelaxed(&bucket.slots[static_cast<size_t>(std::countr_zero(mask))].bits)};
    if (!slot.empty()) candidates_[count++] = slot;
  }
  at_.candidate_count = count;
  at_.next_candidate = 0;
}

Lookup::Step Lookup::StartUncached(LookupContext& context) {
  ++context.counters.cache_misses;
  return segment_.offset == 0 ? ReadDirectory(context) : ReadPrimary();
}

void Lookup::CollectCachedOverflow(LookupContext& context) {
  // Bounded, since copies may lead in circles.
  for (uint32_t i = 0; at_.candidate_count == 0 && i < layout::kOverflowBuckets; ++i) {
    const uint32_t link = BucketCache::Link(*copy_);
    if (link == 0 || link > layout::kOverflowBuckets) return;
    Bucket* const next =
        context.cache.Find(segment_.frame, BucketCache::OverflowIndex(link), hash_);
    if (next == nullptr) return;
    copy_ = next;
    Collect(*copy_);
  }
}

Lookup::Step Lookup::StartAt(LookupContext& context, Slot slot, std::string_view key) {
  Reset(key);
  at_.by_slot = true;
  candidates_[0] = slot;
  at_.candidate_count = 1;
  return TryCandidates(context);
}

Lookup::Step Lookup::StartAt(LookupContext& context, const LocatedItem& item,
                             std::string_view key) {
  Reset(key);
  at_.by_slot = true;
  slot_ = item.slot;
  expected_ = item.header;
  length_ = expected_.size();
  const bool possible = expected_.check != 0 && expected_.key_len == key.size() &&
                        layout::IsValidClass(slot_.size_class()) &&
                        length_ <= context.shape.max_item_size &&
                        context.shape.InHeap(slot_.offset(), length_);
  if (!possible) return {.action = Action::kAskServer};
  if (length_ <= ReadSink::kBlockBytes) {
    return Read(State::kLocatedBlock, slot_.offset(), length_, sink_->block.data());
  }
  return StartPieces(context, 0);
}

Lookup::Step Lookup::ReadDirectory(LookupContext& context) {
  ++context.counters.directory_reads;
  at_.in_space = false;
  const uint64_t page = SegmentMap::PageOf(context.segments.EntryIndex(hash_));
  return Read(State::kDirectory, context.shape.directory_offset + page * layout::kDirectoryPageSize,
              layout::kDirectoryPageSize, sink_->block.data());
}

Lookup::Step Lookup::ReadPrimary() {
  at_.cached = false;
  at_.doubtful = false;
  at_.in_space = false;
  at_.chain = 0;
  return Read(State::kPrimary, segment_.offset + layout::BucketOffset(hash_.bucket()),
              layout::kBucketSize, &sink_->bucket);
}

Lookup::Step Lookup::ReadOverflow() {
  at_.in_space = false;
  return Read(State::kOverflow, segment_.offset + layout::OverflowOffset(at_.link),
              layout::kBucketSize, &sink_->bucket);
}

Lookup::Step Lookup::RefreshDirectory(LookupContext& context) {
  if (++at_.refreshes > kMaxRefreshes) return {.action = Action::kAskServer};
  return ReadDirectory(context);
}

Lookup::Step Lookup::TryCandidates(LookupContext& context) {
  while (at_.next_candidate < at_.candidate_count) {
    slot_ = candidates_[at_.next_candidate++];
    if (at_.cached && SlotMarks::IsStruck(slot_)) {
      BucketCache::Forgive(copy_, slot_);
      slot_ = SlotMarks::Forgive(slot_);
      at_.struck = true;
    }
    length_ = context.shape.FirstRead(slot_);
    if (length_ == 0) {
      at_.doubtful = at_.doubtful || !at_.cached;
      continue;
    }
    state_ = State::kBlock;
    at_.in_space = length_ > ReadSink::kBlockBytes;
    if (at_.in_space && !split() && space_.size() < length_) {
      return {.action = Action::kNeedSpace, .length = static_cast<uint32_t>(length_)};
    }
    return Read(State::kBlock, slot_.offset(), length_,
                at_.in_space && !split() ? space_.data() : sink_->block.data());
  }
  if (at_.cached) {
    // Without a READ in vain it was a miss: the copy has no such slot, or it is withheld.
    if (at_.doubtful) {
      ++context.counters.cache_stale;
    } else {
      --context.counters.cache_hits;
      ++context.counters.cache_misses;
    }
    return segment_.offset == 0 ? ReadDirectory(context) : ReadPrimary();
  }
  return EndOfCandidates();
}

// All matching slots of the last bucket have been tried in vain (or there were none).
Lookup::Step Lookup::EndOfCandidates() {
  if (at_.by_slot) return {.action = Action::kAskServer};
  if (at_.link != 0) return ReadOverflow();
  if (!at_.doubtful) {
    at_.in_space = false;
    return Read(State::kHeaderAgain, segment_.offset + layout::BucketOffset(hash_.bucket()),
                sizeof(BucketHeader), &sink_->header);
  }
  if (++at_.rounds >= kMaxRounds) return {.action = Action::kAskServer};
  return ReadPrimary();
}

Lookup::Step Lookup::OnRead(LookupContext& context) {
  switch (state_) {
    case State::kWarm:
      LeaveWarm(context);
      return OnBlock(context);
    case State::kBlock:
      return OnBlock(context);
    case State::kDirectory:
      return OnDirectory(context);
    case State::kPrimary:
      return OnPrimary(context);
    case State::kOverflow:
      return OnOverflow(context);
    case State::kLocatedBlock:
      return OnLocatedBlock(context);
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
  const bool possible = link <= layout::kOverflowBuckets && at_.chain < layout::kOverflowBuckets;
  at_.link = possible ? static_cast<uint8_t>(link) : 0;
  if (link != 0 && !possible) at_.doubtful = true;
}

Lookup::Step Lookup::OnPrimary(LookupContext& context) {
  const Bucket& bucket = sink_->bucket;
  if (!bucket.header.Covers(hash_)) return RefreshDirectory(context);
  cover_ = bucket.header;
  TakeLink(bucket.header.link());
  if (bucket.header.link() == at_.link) {
    context.cache.Store(segment_.frame, hash_.bucket(), hash_, cover_, bucket, at_.struck);
  }
  Collect(bucket);
  return TryCandidates(context);
}

Lookup::Step Lookup::OnOverflow(LookupContext& context) {
  const Bucket& bucket = sink_->bucket;
  const uint32_t index = BucketCache::OverflowIndex(at_.link);
  ++at_.chain;
  TakeLink(bucket.header.link());
  if (bucket.header.link() == at_.link) {
    context.cache.Store(segment_.frame, index, hash_, cover_, bucket, at_.struck);
  }
  Collect(bucket);
  return TryCandidates(context);
}

Lookup::Step Lookup::OnBlock(LookupContext& context) {
  uint64_t item_size = 0;
  const uint8_t* const bytes = block();
  const ItemState state =
      layout::JudgeItem(bytes, length_, slot_.offset(), key_, context.hash_seed, &item_size);
  if (state == ItemState::kAccepted) return Found(bytes);
  return OnBlockNotAccepted(context, state, item_size);
}

Lookup::Step Lookup::OnBlockNotAccepted(LookupContext& context, ItemState state,
                                        uint64_t item_size) {
  const bool more = state == ItemState::kInvalid && slot_.size_class() == layout::kRunClass &&
                    item_size > length_;
  if (!more || item_size > context.shape.max_item_size ||
      !context.shape.InHeap(slot_.offset(), item_size)) {
    return NotAccepted(context);
  }
  // A run: its begin is here and claims to hold the key.
  std::memcpy(&expected_, sink_->block.data(), sizeof(expected_));
  const uint64_t have = length_;
  length_ = item_size;
  return StartPieces(context, have);
}

// Reads the rest of an item of which the first `have` bytes are in the sink.
Lookup::Step Lookup::StartPieces(LookupContext& context, uint64_t have) {
  state_ = State::kPieces;
  at_.in_flight = 0;
  have_ = have;
  asked_ = have;
  if (space_.size() < length_) {
    return {.action = Action::kNeedSpace, .length = static_cast<uint32_t>(length_)};
  }
  return OnSpace(context, space_);
}

Lookup::Step Lookup::OnSpace(LookupContext& context, std::span<uint8_t> space) {
  assert(space.size() >= length_);
  space_ = space;
  at_.in_space = true;
  if (state_ == State::kBlock) return Read(State::kBlock, slot_.offset(), length_, space_.data());
  BeginBody(context);
  if (have_ > 0) {
    std::memcpy(space_.data(), sink_->block.data(), have_);
    body_hash_->Add(space_.subspan(sizeof(layout::ItemHeader), have_ - sizeof(layout::ItemHeader)));
  }
  return NextPiece();
}

// Pieces end at multiples of their size.
uint64_t Lookup::PieceEnd(uint64_t begin) const {
  return std::min(length_, (begin / kPieceBytes + 1) * kPieceBytes);
}

Lookup::Step Lookup::NextPiece() {
  const uint64_t begin = asked_;
  asked_ = PieceEnd(begin);
  ++at_.in_flight;
  uint8_t* const target = split() ? split_.data() + (begin - head_size()) : space_.data() + begin;
  return Read(State::kPieces, slot_.offset() + begin, asked_ - begin, target);
}

Lookup::Step Lookup::OnPieces(LookupContext& context) {
  // The first piece begins with the header, which is not of the body.
  const uint64_t begin = std::max(have_, sizeof(layout::ItemHeader));
  have_ = PieceEnd(have_);
  --at_.in_flight;
  body_hash_->Add(space_.subspan(begin, have_ - begin));
  if (have_ == length_) return Judge(context, space_.data(), body_hash_->Check());
  return {.action = Action::kWait};
}

Lookup::Step Lookup::OnLocatedBlock(LookupContext& context) {
  const uint8_t* const bytes = sink_->block.data();
  return Judge(context, bytes,
               layout::BodyCheck(bytes + sizeof(layout::ItemHeader),
                                 length_ - sizeof(layout::ItemHeader), context.hash_seed));
}

Lookup::Step Lookup::Judge(LookupContext& context, const uint8_t* bytes, uint64_t body_check) {
  const uint64_t header_check = layout::HeaderCheck(expected_, slot_.offset(), context.hash_seed);
  if (layout::CombineChecks(header_check, body_check) != expected_.check ||
      std::memcmp(bytes + sizeof(expected_), key_.data(), key_.size()) != 0) {
    return NotAccepted(context);
  }
  return FoundBody(bytes, expected_);
}

Lookup::Step Lookup::Found(const uint8_t* bytes) {
  layout::ItemHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  return FoundBody(bytes, header);
}

Lookup::Step Lookup::FoundBody(const uint8_t* bytes, const layout::ItemHeader& header) {
  version_ = header.version;
  value_ = {reinterpret_cast<const char*>(bytes) + sizeof(header) + header.key_len,
            header.value_len};
  return {.action = Action::kFound};
}

Lookup::Step Lookup::OnHeaderAgain(LookupContext& context) {
  if (!sink_->header.Covers(hash_)) return RefreshDirectory(context);
  return {.action = Action::kAbsent};
}

Lookup::Step Lookup::NotAccepted(LookupContext& context) {
  ++context.counters.read_retries;
  at_.doubtful = true;
  return TryCandidates(context);
}

}  // namespace verbena::client
