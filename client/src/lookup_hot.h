// The part of Lookup that a warm GET goes through, inline. Included by lookup.h only.
#pragma once

#include <bit>
#include <cstring>

#include "client/src/lookup.h"  // IWYU pragma: keep
#include "client/src/slot_match.h"
#include "common/base/relaxed_copy.h"

namespace verbena::client {

[[gnu::always_inline]] inline void Lookup::Reset(std::string_view key, ReadSink* sink) {
  key_ = key;
  sink_ = sink;
  space_ = {};
  cached_ = false;
  struck_ = false;
  by_slot_ = false;
  doubtful_ = false;
  in_space_ = false;
  rounds_ = 0;
  refreshes_ = 0;
  chain_ = 0;
  candidate_count_ = 0;
  next_candidate_ = 0;
  link_ = 0;
}

[[gnu::always_inline]] inline Lookup::Step Lookup::Read(State state, uint64_t offset,
                                                        uint64_t length, void* target) {
  state_ = state;
  return {.action = Action::kRead,
          .in_space = in_space_,
          .length = static_cast<uint32_t>(length),
          .offset = offset,
          .target = static_cast<uint8_t*>(target)};
}

[[gnu::always_inline]] inline void Lookup::Collect(const layout::Bucket& bucket) {
  uint8_t count = 0;
  for (uint32_t mask = MatchSlots(bucket, hash_.fingerprint()); mask != 0; mask &= mask - 1) {
    const layout::Slot slot{
        LoadRelaxed(&bucket.slots[static_cast<size_t>(std::countr_zero(mask))].bits)};
    if (!slot.empty()) candidates_[count++] = slot;
  }
  candidate_count_ = count;
  next_candidate_ = 0;
}

[[gnu::always_inline]] inline Lookup::Step Lookup::Start(LookupContext& context, SegmentRef segment,
                                                         layout::KeyHash hash, std::string_view key,
                                                         ReadSink* sink) {
  Reset(key, sink);
  hash_ = hash;
  segment_ = segment;
  if (segment.offset == 0 || !context.cache.enabled()) return StartUncached(context);
  copy_ = context.cache.Find(segment.frame, hash.bucket(), hash);
  if (copy_ == nullptr) return StartUncached(context);
  ++context.counters.cache_hits;
  cached_ = true;
  Collect(*copy_);
  // The overflow buckets are looked at only where the primary one has no candidate.
  if (candidate_count_ == 0) CollectCachedOverflow(context);
  return TryCandidates(context);
}

[[gnu::always_inline]] inline Lookup::Step Lookup::TryCandidates(LookupContext& context) {
  if (next_candidate_ < candidate_count_) {
    const layout::Slot slot = candidates_[next_candidate_];
    const uint64_t length = context.shape.FirstRead(slot);
    if (length != 0 && length <= ReadSink::kBlockBytes) {
      ++next_candidate_;
      slot_ = slot;
      length_ = length;
      in_space_ = false;
      return Read(State::kBlock, slot.offset(), length, sink_->block.data());
    }
  }
  return TryOtherCandidates(context);
}

[[gnu::always_inline]] inline Lookup::Step Lookup::OnRead(LookupContext& context) {
  return state_ == State::kBlock ? OnBlock(context) : OnOtherRead(context);
}

[[gnu::always_inline]] inline Lookup::Step Lookup::OnBlock(LookupContext& context) {
  uint64_t item_size = 0;
  const uint8_t* const bytes = block();
  const layout::ItemState state =
      layout::JudgeItem(bytes, length_, slot_.offset(), key_, context.shape.hash_seed, &item_size);
  if (state == layout::ItemState::kAccepted) return Found(bytes);
  return OnBlockNotAccepted(context, state, item_size);
}

[[gnu::always_inline]] inline Lookup::Step Lookup::Found(const uint8_t* bytes) {
  layout::ItemHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  return FoundBody(bytes, header);
}

[[gnu::always_inline]] inline Lookup::Step Lookup::FoundBody(const uint8_t* bytes,
                                                             const layout::ItemHeader& header) {
  version_ = header.version;
  value_ = {reinterpret_cast<const char*>(bytes) + sizeof(header) + header.key_len,
            header.value_len};
  return {.action = Action::kFound};
}

}  // namespace verbena::client
