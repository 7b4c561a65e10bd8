// The part of Lookup that a warm GET goes through, inline. Included by lookup.h only.
//
// It decides nothing that the general way (lookup.cc) would decide otherwise: it is that way, cut
// down to the one case that nearly always is.
#pragma once

#include <bit>
#include <cstring>

#include "client/src/lookup.h"  // IWYU pragma: keep
#include "client/src/slot_match.h"
#include "common/base/relaxed_copy.h"

namespace verbena::client {

[[gnu::always_inline]] inline void Lookup::Prepare(LookupContext& context, SegmentRef segment,
                                                   layout::KeyHash hash, std::string_view key,
                                                   ReadSink* sink) {
  key_ = key;
  sink_ = sink;
  hash_ = hash;
  segment_ = segment;
  copy_ = segment.offset != 0 && context.cache.enabled()
              ? context.cache.Prefetch(segment.frame, hash.bucket())
              : nullptr;
}

[[gnu::always_inline]] inline bool Lookup::StartWarm(LookupContext& context, Step* step) {
  if (copy_ == nullptr || !BucketCache::ServesAtHome(*copy_, hash_)) return false;
  const uint32_t mask = MatchSlots(*copy_, hash_.fingerprint());
  if (mask == 0 || (mask & (mask - 1)) != 0) return false;
  // Others may have changed the slot meanwhile. It is judged as it is now, like any other.
  const layout::Slot slot{
      LoadRelaxed(&copy_->slots[static_cast<size_t>(std::countr_zero(mask))].bits)};
  const uint64_t length = context.shape.FirstRead(slot);
  if (length == 0 || length > ReadSink::kBlockBytes) return false;
  ++context.counters.cache_hits;
  space_ = {};
  at_ = {.cached = true, .candidate_count = 1, .next_candidate = 1};
  state_ = State::kBlock;
  slot_ = slot;
  length_ = length;
  *step = {.action = Action::kRead,
           .length = static_cast<uint32_t>(length),
           .offset = slot.offset(),
           .target = sink_->block.data()};
  return true;
}

[[gnu::always_inline]] inline bool Lookup::OnWarmRead(LookupContext& context,
                                                      std::string_view* value, uint64_t* version) {
  if (state_ != State::kBlock || at_.in_space) return false;
  const uint8_t* const bytes = sink_->block.data();
  if (!layout::IsItemOf(bytes, length_, slot_.offset(), key_, context.hash_seed)) return false;
  layout::ItemHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  *value = {reinterpret_cast<const char*>(bytes) + sizeof(header) + key_.size(), header.value_len};
  *version = header.version;
  return true;
}

}  // namespace verbena::client
