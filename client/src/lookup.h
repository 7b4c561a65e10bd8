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
//   - What the server has located is judged by the header and check that came with the location,
//     not by those in the block: see StartAt.
//   - Whatever was read is checked against the slice's bounds before it is used. Every path ends
//     after a bounded number of READs, whatever the bytes are.
//
// Several lookups may share an index cache, in several threads; each Lookup is used by one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "client/src/shared_cache.h"
#include "client/src/slice_shape.h"
#include "common/layout/body_hash.h"
#include "common/layout/bucket.h"
#include "common/layout/directory.h"
#include "common/layout/item.h"
#include "common/layout/slot.h"

namespace verbena::client {

struct LookupCounters {
  uint64_t read_retries = 0;     // items that were not accepted
  uint64_t cache_hits = 0;       // lookups that READ a block by a cached bucket
  uint64_t cache_stale = 0;      // of these, those that had to READ the bucket after all
  uint64_t cache_misses = 0;     // lookups that READ the bucket at once
  uint64_t directory_reads = 0;  // pages of the directory
};

// What all lookups of a connection share. Not thread-safe, but for what is behind `index`.
struct LookupContext {
  explicit LookupContext(std::shared_ptr<IndexCache> shared)
      : shape(shared->shape),
        hash_seed(shape.hash_seed),
        cache(shared->buckets),
        segments(shared->segments),
        block_bounds(BlockBoundsOf(shape)),
        index(std::move(shared)) {}
  // With an index cache of its own.
  LookupContext(const SliceShape& slice, uint64_t cache_bytes)
      : LookupContext(std::make_shared<IndexCache>(slice, cache_bytes)) {}

  const SliceShape shape;
  const layout::SeededXxh3 hash_seed;
  BucketCache& cache;
  SegmentMap& segments;
  // By size class, for blocks that are READ into a sink in one piece: `length` bytes, and the block
  // lies in the heap if it begins less than `span` bytes behind the heap's begin; there is room for
  // an item's header. A span of 0 for other classes.
  struct BlockBounds {
    uint64_t span = 0;
    uint64_t length = 0;
  };
  const std::array<BlockBounds, 256> block_bounds;
  LookupCounters counters;
  const std::shared_ptr<IndexCache> index;

 private:
  static std::array<BlockBounds, 256> BlockBoundsOf(const SliceShape& shape);
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

// An item as the server has found it: where it lies and all of its header.
struct LocatedItem {
  layout::Slot slot;
  layout::ItemHeader header{};
};

// A large item is READ in pieces, several of which may be under way at once: after a step of kRead
// or kWait, NextRead says what can be READ beside those under way. READs complete in the order in
// which they were asked for (those of a queue pair do), and each gets its OnRead, which hashes the
// piece while it is in the processor's cache and answers kWait until the last one has come.
class Lookup {
 public:
  enum class Action : uint8_t {
    kRead,       // READ `length` bytes at `offset` into `target`, then OnRead()
    kWait,       // for the READs under way; see NextRead
    kNeedSpace,  // provide `length` bytes of registered memory, then OnSpace()
    kFound,      // value() and version()
    kTooSmall,   // the value may be too large for SplitInto's memory: begin again without
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

  // Longest piece of a large item that is read at once, and pieces under way. A piece is to be in
  // the processor's cache still when it is hashed, and those under way are to cover the round trip:
  // six are 60 us of a link of 100 Gbit/s.
  static constexpr uint64_t kPieceBytes = uint64_t{128} << 10;
  static constexpr uint8_t kPiecesInFlight = 6;

  // Where READs land; borrowed until another one is set, which must not be during a lookup.
  void UseSink(ReadSink* sink) { sink_ = sink; }
  // The hash of the key: what Prepare was given, or what is set here for lookups that begin with
  // StartAt.
  layout::KeyHash hash() const { return hash_; }
  const std::string_view& key() const { return key_; }
  void set_hash(layout::KeyHash hash) { hash_ = hash; }

  // Where the copy of a key's bucket lies if it lies at home, whose lines are asked for. Requires
  // that there is a cache.
  static layout::Bucket* HomeOf(LookupContext& context, layout::KeyHash hash);
  // The one slot of a copy at home that can be the key's, and the bytes of its block: false if it
  // is not as simple as that.
  static bool FindWarm(const LookupContext& context, const layout::Bucket& home,
                       layout::KeyHash hash, layout::Slot* slot, uint64_t* length);

  // Says what is to be looked up, and has the lines of the cached bucket fetched meanwhile. `key`,
  // of 1 to kMaxKeySize bytes, is borrowed until the end of the lookup.
  void Prepare(LookupContext& context, layout::KeyHash hash, std::string_view key);
  // The same where there is a cache.
  void PrepareCached(LookupContext& context, layout::KeyHash hash, std::string_view key);
  // Then starts it.
  Step Start(LookupContext& context);
  Step Start(LookupContext& context, layout::KeyHash hash, std::string_view key) {
    Prepare(context, hash, key);
    return Start(context);
  }
  // The same as Start where all is as it nearly always is: the bucket's copy lies at home, one slot
  // of it matches, and the block fits the sink, into which its `*length` bytes are to be READ then;
  // else false, and the lookup is to be started by Start.
  bool StartWarm(LookupContext& context, layout::Slot* slot, uint64_t* length);
  // After Prepare: FindWarm in the copy that Prepare has named.
  bool FindPrepared(const LookupContext& context, layout::Slot* slot, uint64_t* length) const;
  // After Prepare: the block of a slot that FindWarm has found is being READ, or has been.
  void ReadingWarm(LookupContext& context, layout::Slot slot, uint64_t length);
  // Starts with the block in which a scan has seen an item of the key. It is judged like any other
  // block; if it does not hold the key any more, the server is to be asked.
  Step StartAt(LookupContext& context, layout::Slot slot, std::string_view key);
  // Starts with an item of this key that the server has located in answer to a GET.
  //
  // The bytes that are READ are accepted if they are the key and a value that fit the header and
  // check of the answer. What stands in the block's own header does not matter: the item may have
  // been replaced or deleted since, and its check be 0 (docs/design.md, section 5). That is
  // linearizable: the server found the item, under its bucket's lock, after it was asked and before
  // it answered, and that is the instant at which the GET takes effect. Where the bytes come from
  // does not matter either then, since by their check they are that item's.
  Step StartAt(LookupContext& context, const LocatedItem& item, std::string_view key);

  // Before Start: the value is to land in `bytes`, and only header and key of the item in the sink.
  // Holds for the lookups to come, until it is called with nothing; not for StartAt. A step for
  // which SplitsRead is true then reads head_size() bytes to its target, and the others, as far as
  // there is room, to `bytes`; and OnSplitRead stands for OnRead.
  void SplitInto(std::span<uint8_t> bytes) { split_ = bytes; }
  bool split() const { return split_.data() != nullptr; }
  uint64_t head_size() const { return sizeof(layout::ItemHeader) + key_.size(); }
  bool SplitsRead(const Step& step) const;
  Step OnSplitRead(LookupContext& context);

  // The bytes of the oldest READ under way have arrived.
  Step OnRead(LookupContext& context);
  // The same as OnRead where all is as it nearly always is: what StartWarm began with has come and
  // is the key's item. Value (in the sink) and version are given back then; else false, and OnRead
  // is to be called.
  bool OnWarmRead(LookupContext& context, std::string_view* value, uint64_t* version);
  // Whether another READ can be posted behind the last one; if so, `*step` is it.
  bool NextRead(Step* step) {
    if (state_ != State::kPieces || asked_ == length_ || at_.in_flight == kPiecesInFlight)
      return false;
    *step = NextPiece();
    return true;
  }
  // `space` has at least the bytes that kNeedSpace asked for; it is borrowed until the end.
  Step OnSpace(LookupContext& context, std::span<uint8_t> space);

  // After kFound. The value lies in the sink or in the space given.
  std::string_view value() const { return value_; }
  uint64_t version() const { return version_; }

 private:
  enum class State : uint8_t {
    kWarm,  // a block, the first thing that is READ; see LeaveWarm
    kDirectory,
    kPrimary,
    kOverflow,
    kBlock,
    kLocatedBlock,  // an item that the server has located, in one READ
    kPieces,
    kHeaderAgain,
  };

  // Limits that make every path end. Splits in a row that a lookup may meet before it gives up on
  // reading; uncached rounds without a verdict.
  static constexpr uint8_t kMaxRefreshes = 8;
  static constexpr uint8_t kMaxRounds = 2;

  void Reset(std::string_view key);
  // From kWarm to kBlock: sets what StartWarm has left out.
  void LeaveWarm(LookupContext& context);
  Step Read(State state, uint64_t offset, uint64_t length, void* target);
  Step ReadDirectory(LookupContext& context);
  Step ReadPrimary();
  Step ReadOverflow();
  Step StartUncached(LookupContext& context);
  // The next candidate that can be read, or what comes after the last one.
  Step TryCandidates(LookupContext& context);
  Step EndOfCandidates();
  Step RefreshDirectory(LookupContext& context);

  Step OnDirectory(LookupContext& context);
  Step OnPrimary(LookupContext& context);
  Step OnOverflow(LookupContext& context);
  Step OnBlock(LookupContext& context);
  Step OnBlockNotAccepted(LookupContext& context, layout::ItemState state, uint64_t item_size);
  Step OnLocatedBlock(LookupContext& context);
  Step StartPieces(LookupContext& context, uint64_t have);
  Step OnPieces(LookupContext& context);
  Step OnHeaderAgain(LookupContext& context);
  uint64_t PieceEnd(uint64_t begin) const;
  Step NextPiece();
  void BeginBody(LookupContext& context);
  Step OnSplitBlock(LookupContext& context);
  Step OnSplitPieces(LookupContext& context);
  Step JudgeSplit(LookupContext& context);
  // Judges a whole item at `block`, whose body has this check, by `expected_`.
  Step Judge(LookupContext& context, const uint8_t* block, uint64_t body_check);
  Step NotAccepted(LookupContext& context);
  Step Found(const uint8_t* block);
  Step FoundBody(const uint8_t* block, const layout::ItemHeader& header);

  // Takes candidates from the cached overflow buckets that a cached bucket leads to.
  void CollectCachedOverflow(LookupContext& context);
  void Collect(const layout::Bucket& bucket);
  // Takes the link of a bucket that was read; one that cannot be makes the round doubtful.
  void TakeLink(uint32_t link);
  const uint8_t* block() const { return at_.in_space ? space_.data() : sink_->block.data(); }

  std::string_view key_;
  ReadSink* sink_ = nullptr;
  layout::KeyHash hash_;  // apart from the key: see to it that storing both takes two instructions
  std::span<uint8_t> space_;
  std::span<uint8_t> split_;  // where the value lands; nothing: behind its key. Not reset.
  SegmentRef segment_;
  layout::BucketHeader cover_;   // header of the primary bucket of this round
  layout::Slot slot_;            // the block being read
  uint64_t length_;              // bytes that the block was or will be read with
  uint64_t have_;                // of these, what has arrived (pieces)
  uint64_t asked_;               // of these, what has arrived or is under way (pieces)
  layout::ItemHeader expected_;  // of a located item, or of one read in pieces
  std::unique_ptr<layout::BodyHash> body_hash_;  // of what has arrived; kept for the next time

  State state_;
  // What begins with 0 in each lookup, together, so that a few stores clear it.
  struct Progress {
    bool cached = false;    // the candidates come from the cache
    bool struck = false;    // one of them was struck there
    bool by_slot = false;   // the server named the slot, in a GET or a scan: no rounds
    bool doubtful = false;  // a matching slot of this round was not accepted
    bool in_space = false;
    uint8_t in_flight = 0;  // pieces
    uint8_t rounds = 0;
    uint8_t refreshes = 0;
    uint8_t chain = 0;  // overflow buckets read in this round
    uint8_t candidate_count = 0;
    uint8_t next_candidate = 0;
    uint8_t link = 0;  // of the last bucket read, 0 or 1 to kOverflowBuckets
  };
  Progress at_;
  std::array<layout::Slot, layout::kSlotsPerBucket> candidates_;
  // The cached bucket that they come from; between Prepare and Start: where it may be.
  layout::Bucket* copy_;
  // In place of a copy where there is no cache: nothing, and never written.
  static layout::Bucket no_copy;

  std::string_view value_;
  uint64_t version_;
};

}  // namespace verbena::client

#include "client/src/lookup_hot.h"  // IWYU pragma: export
