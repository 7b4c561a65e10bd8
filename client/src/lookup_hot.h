// The part of Lookup that a warm GET goes through, inline. Included by lookup.h only.
//
// It decides nothing that the general way (lookup.cc) would decide otherwise: it is that way, cut
// down to the one case that nearly always is.
#pragma once

#include <bit>
#include <cstring>

#include "client/src/lookup.h"  // IWYU pragma: keep
#include "common/base/relaxed_copy.h"
#include "common/layout/slot_match.h"

namespace verbena::client {

[[gnu::always_inline]] inline layout::Bucket* Lookup::HomeOf(LookupContext& context,
                                                             layout::KeyHash hash) {
  // Of a segment that is not known the frame is the first one: a copy there, if it serves the hash,
  // is as good as any.
  return context.cache.Prefetch(context.segments.FrameOf(hash), hash.bucket());
}

[[gnu::always_inline]] inline void Lookup::Prepare(LookupContext& context, layout::KeyHash hash,
                                                   std::string_view key) {
  key_ = key;
  hash_ = hash;
  copy_ = context.cache.enabled() ? HomeOf(context, hash) : &no_copy;
}

[[gnu::always_inline]] inline void Lookup::PrepareCached(LookupContext& context,
                                                         layout::KeyHash hash,
                                                         std::string_view key) {
  key_ = key;
  hash_ = hash;
  copy_ = HomeOf(context, hash);
}

[[gnu::always_inline]] inline bool Lookup::FindWarm(const LookupContext& context,
                                                    const layout::Bucket& home,
                                                    layout::KeyHash hash, layout::Slot* slot,
                                                    uint64_t* length) {
  if (!BucketCache::ServesAtHome(home, hash)) return false;
  const uint32_t words = MatchWords(home, hash.fingerprint()) & ~1U;
  if (words == 0 || (words & (words - 1)) != 0) return false;
  // Others may have changed the slot meanwhile. It is judged as it is now, like any other.
  const auto at = static_cast<uint64_t>(std::countr_zero(uint64_t{words}));
  *slot = {LoadRelaxed(&home.slots[at - 1].bits)};
  // As SliceShape::FirstRead judges it.
  const LookupContext::BlockBounds& block = context.block_bounds[slot->size_class()];
  *length = block.length;
  return slot->offset() - context.shape.heap_begin < block.span;
}

[[gnu::always_inline]] inline void Lookup::ReadingWarm(LookupContext& context, layout::Slot slot,
                                                       uint64_t length) {
  ++context.counters.cache_hits;
  state_ = State::kWarm;
  slot_ = slot;
  length_ = length;
}

[[gnu::always_inline]] inline bool Lookup::FindPrepared(const LookupContext& context,
                                                        layout::Slot* slot,
                                                        uint64_t* length) const {
  return FindWarm(context, *copy_, hash_, slot, length);
}

[[gnu::always_inline]] inline bool Lookup::StartWarm(LookupContext& context, layout::Slot* slot,
                                                     uint64_t* length) {
  if (!FindPrepared(context, slot, length)) return false;
  ReadingWarm(context, *slot, *length);
  return true;
}

[[gnu::always_inline]] inline bool Lookup::OnWarmRead(LookupContext& context,
                                                      std::string_view* value, uint64_t* version) {
  return state_ == State::kWarm && layout::TakeItemOf(sink_->block.data(), length_, slot_.offset(),
                                                      key_, context.hash_seed, value, version);
}

}  // namespace verbena::client
