// The client's reader against a hostile region: as wire_targets.h.
#pragma once

#include <cstdint>
#include <span>

namespace verbena::fuzz {

// The region's header, as a client checks it when it connects.
void Slice(std::span<const uint8_t> input);

// Lookups of a few keys, up to two of them in flight, over a region that answers each READ with
// what the input says: raw bytes, or a bucket, an item or a page of the directory that is
// well-formed to some degree. Whatever the answers are: no READ reaches beyond the slice or its
// sink, each lookup ends after a bounded number of READs, what it finds is an item of the key, and
// it takes a key for absent only with a last look at the primary bucket's header.
void Reader(std::span<const uint8_t> input);

// The same with values that land in memory of the caller's, of some size that need not be theirs:
// nothing is written beyond it, and what is found lies in it.
void SplitReader(std::span<const uint8_t> input);

// The same with a cache of the index that has taken in whole segments of any content before.
void Preload(std::span<const uint8_t> input);

}  // namespace verbena::fuzz
