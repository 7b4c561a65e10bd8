// The stores that make a change visible to remote readers, in the order that the readers rely on.
//
// A reader copies a bucket and then the block that a slot names, without locks, and while it copies
// any word may change. It accepts an item only if `check` is the hash of everything else that it
// copied (and of the block's offset), and the key is the one it looks for. So an item is there for
// readers from the store of its `check` until `check` is set to 0: these two stores are the
// instants at which a change takes effect, and all else is arranged around them.
//
// Each step below is a release store, so that no step becomes visible before those ahead of it. The
// words of a body are relaxed stores between two steps; they cannot pass the release store of
// `check` that ends them. They may pass the one of 0 that begins an overwrite, which does no harm:
// a reader that sees the old `check` with any new word of header or body rejects it, as the version
// is new in every change.
//
// The caller holds the bucket's lock (stripe.h) throughout, and the blocks that it publishes are
// named by no slot before.
#pragma once

#include <cstdint>
#include <utility>

#include "common/base/relaxed_copy.h"
#include "common/layout/slot.h"

namespace verbena::storage {

// The word `check` of the block at `block`.
inline uint64_t* CheckWord(uint8_t* block) { return reinterpret_cast<uint64_t*>(block); }

// A new key. `block` holds the whole item with check = 0.
// Were `check` first, a reader with an old slot of the block could accept an item that a reader
// through the bucket does not see yet, and after it a third could find the key absent.
inline void PublishInsert(uint64_t* slot_word, layout::Slot slot, uint8_t* block, uint64_t check) {
  StoreRelease(slot_word, slot.bits);
  StoreRelease(CheckWord(block), check);
}

// A new item in place of the one in `old_block`. `block` holds the whole item with check = 0.
// The old item ends before the new one begins, so that no reader can accept the old one after
// another has seen the new. In between readers find a slot whose block is not valid, which tells
// them nothing, and try again. The caller frees the old block afterwards.
inline void PublishReplace(uint64_t* slot_word, uint8_t* old_block, layout::Slot slot,
                           uint8_t* block, uint64_t check) {
  StoreRelease(CheckWord(old_block), 0);
  StoreRelease(slot_word, slot.bits);
  StoreRelease(CheckWord(block), check);
}

// Writes over an item of the same size class. `write_rest` stores all of the item but `check`.
template <typename WriteRest>
void OverwriteInPlace(uint8_t* block, uint64_t check, WriteRest&& write_rest) {
  StoreRelease(CheckWord(block), 0);
  std::forward<WriteRest>(write_rest)();
  StoreRelease(CheckWord(block), check);
}

// Deletion. The item ends before its slot goes: were it the other way round, a reader could find
// the slot empty and another one, with an old copy of the slot, could still accept the item. The
// caller frees the block afterwards.
inline void PublishDelete(uint64_t* slot_word, uint8_t* block) {
  StoreRelease(CheckWord(block), 0);
  StoreRelease(slot_word, 0);
}

}  // namespace verbena::storage
