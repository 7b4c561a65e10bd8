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
  at_ = {};
}

[[gnu::always_inline]] inline Lookup::Step Lookup::Read(State state, uint64_t offset,
                                                        uint64_t length, void* target) {
  state_ = state;
  return {.action = Action::kRead,
          .in_space = at_.in_space,
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
  at_.candidate_count = count;
  at_.next_candidate = 0;
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
  at_.cached = true;
  Collect(*copy_);
  // The overflow buckets are looked at only where the primary one has no candidate.
  if (at_.candidate_count == 0) CollectCachedOverflow(context);
  return TryCandidates(context);
}

[[gnu::always_inline]] inline Lookup::Step Lookup::TryCandidates(LookupContext& context) {
  if (at_.next_candidate < at_.candidate_count) {
    const layout::Slot slot = candidates_[at_.next_candidate];
    const uint64_t length = context.shape.FirstRead(slot);
    if (length != 0 && length <= ReadSink::kBlockBytes) {
      ++at_.next_candidate;
      slot_ = slot;
      length_ = length;
      at_.in_space = false;
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
      layout::JudgeItem(bytes, length_, slot_.offset(), key_, context.hash_seed, &item_size);
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
