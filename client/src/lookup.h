// How a key is found with READs: the reader's side of the layout, without any networking.
//
// A Lookup says which bytes it wants next; whoever drives it fetches them and calls OnRead. It goes
//   copy of the bucket in the cache -> block           (one READ, nearly always)
//   bucket -> block                                    (nothing in the cache, or it was stale)
//   directory page -> bucket -> block                  (segment not known, or it has been split)
// and an item is accepted only if it verifies itself. Rules that must not be weakened:
//   - A matching slot whose block is invalid or holds another key is never evidence of absence.
//   - "Absent" needs a whole round (bucket and overflow buckets) without any matching slot, and
//     then a READ of the primary bucket's header, posted after all of these have completed, that
//     still covers the hash. Nothing from the cache counts for it.
//   - Two rounds without a verdict: the server is asked.
//   - Whatever was read is checked against the slice's bounds before it is used. Every path ends
//     after a bounded number of READs, whatever the bytes are.
//
// Neither class is thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "client/src/bucket_cache.h"
#include "client/src/segment_map.h"
#include "client/src/slice_shape.h"
#include "common/layout/bucket.h"
#include "common/layout/directory.h"
#include "common/layout/item.h"
#include "common/layout/slot.h"

namespace verbena::client {

struct LookupCounters {
  uint64_t read_retries = 0;     // items that were not accepted
  uint64_t cache_hits = 0;       // lookups that began with a cached bucket
  uint64_t cache_stale = 0;      // of these, those that had to READ the bucket after all
  uint64_t cache_misses = 0;     // lookups that began without
  uint64_t directory_reads = 0;  // pages of the directory
};

// What all lookups of a connection share.
struct LookupContext {
  LookupContext(const SliceShape& slice, uint64_t cache_bytes)
      : shape(slice), cache(cache_bytes), segments(slice, cache.frames()) {}

  SliceShape shape;
  BucketCache cache;
  SegmentMap segments;
  LookupCounters counters;
};

// Where a lookup's READs land: registered memory, one for each lookup in flight. The size is not a
// multiple of 4 KiB, so that the sinks of different lookups do not compete for the same lines of a
// set-associative cache.
struct alignas(128) ReadSink {
  static constexpr uint64_t kBlockBytes = 4096;

  std::array<uint8_t, kBlockBytes> block;  // a block, or a page of the directory
  layout::Bucket bucket;                   // a primary or overflow bucket
  layout::BucketHeader header;             // the primary header that is read again
};
static_assert(layout::kDirectoryPageSize <= ReadSink::kBlockBytes);
static_assert(layout::kRunFirstRead <= ReadSink::kBlockBytes);

class Lookup {
 public:
  enum class Action : uint8_t {
    kRead,       // READ `length` bytes at `offset` into `target`, then OnRead()
    kNeedSpace,  // provide `length` bytes of registered memory, then OnSpace()
    kFound,      // value() and version()
    kAbsent,
    kAskServer,  // READs alone do not decide
  };
  struct Step {
    Action action;
    bool in_space = false;  // kRead: `target` lies in the memory given with OnSpace
    uint32_t length = 0;
    uint64_t offset = 0;  // from the slice's base
    uint8_t* target = nullptr;
  };

  // Longest piece of a large value that is read at once.
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

  // Starts a lookup in `segment`, which context.segments has (or had a short while ago) for the
  // hash; offset 0 if it has none. `key` and `sink` are borrowed until the end of the lookup.
  Step Start(LookupContext& context, SegmentRef segment, layout::KeyHash hash, std::string_view key,
             ReadSink* sink);
  // Starts with a block that the server has named (a layout::Slot).
  Step StartAt(LookupContext& context, layout::Slot slot, std::string_view key, ReadSink* sink);

  // The bytes of the last step have arrived.
  Step OnRead(LookupContext& context);
  // `space` has at least the bytes that kNeedSpace asked for; it is borrowed until the end.
  Step OnSpace(LookupContext& context, std::span<uint8_t> space);

  // After kFound. The value lies in the sink or in the space given.
  std::string_view value() const { return value_; }
  uint64_t version() const { return version_; }

 private:
  enum class State : uint8_t {
    kDirectory,
    kPrimary,
    kOverflow,
    kBlock,
    kPieces,
    kHeaderAgain,
  };

  // Limits that make every path end. Splits in a row that a lookup may meet before it gives up on
  // reading; uncached rounds without a verdict.
  static constexpr uint8_t kMaxRefreshes = 8;
  static constexpr uint8_t kMaxRounds = 2;

  void Reset(std::string_view key, ReadSink* sink);
  Step Read(State state, uint64_t offset, uint64_t length, void* target);
  Step ReadDirectory(LookupContext& context);
  Step ReadPrimary();
  Step ReadOverflow();
  Step StartUncached(LookupContext& context);
  // The next candidate that can be read, or what comes after the last one.
  Step TryCandidates(LookupContext& context);
  Step TryOtherCandidates(LookupContext& context);
  Step EndOfCandidates();
  Step RefreshDirectory(LookupContext& context);

  Step OnOtherRead(LookupContext& context);
  Step OnDirectory(LookupContext& context);
  Step OnPrimary(LookupContext& context);
  Step OnOverflow(LookupContext& context);
  Step OnBlock(LookupContext& context);
  Step OnBlockNotAccepted(LookupContext& context, layout::ItemState state, uint64_t item_size);
  Step OnPieces(LookupContext& context);
  Step OnHeaderAgain(LookupContext& context);
  Step NextPiece();
  Step NotAccepted(LookupContext& context);
  Step Found(const uint8_t* block);

  // Takes candidates from the cached overflow buckets that a cached bucket leads to.
  void CollectCachedOverflow(LookupContext& context, const layout::Bucket* copy);
  void Collect(const layout::Bucket& bucket);
  // Takes the link of a bucket that was read; one that cannot be makes the round doubtful.
  void TakeLink(uint32_t link);
  const uint8_t* block() const { return in_space_ ? space_.data() : sink_->block.data(); }

  layout::KeyHash hash_;
  std::string_view key_;
  ReadSink* sink_;
  std::span<uint8_t> space_;
  SegmentRef segment_;
  layout::BucketHeader cover_;  // header of the primary bucket of this round
  layout::Slot slot_;           // the block being read
  uint64_t length_;             // bytes that the block was or will be read with
  uint64_t have_;               // of these, what has arrived (pieces)

  State state_;
  bool cached_;    // the candidates come from the cache
  bool located_;   // the server named the block: no rounds
  bool doubtful_;  // a matching slot of this round was not accepted
  bool in_space_;
  uint8_t rounds_;
  uint8_t refreshes_;
  uint8_t chain_;  // overflow buckets read in this round
  uint8_t candidate_count_;
  uint8_t next_candidate_;
  uint8_t link_;  // of the last bucket read, 0 or 1 to kOverflowBuckets
  std::array<layout::Slot, layout::kSlotsPerBucket> candidates_;

  std::string_view value_;
  uint64_t version_;
};

}  // namespace verbena::client

#include "client/src/lookup_hot.h"  // IWYU pragma: export
