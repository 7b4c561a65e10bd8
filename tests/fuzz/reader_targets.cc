#include "tests/fuzz/reader_targets.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/lookup.h"
#include "client/src/slice_shape.h"
#include "common/layout/item.h"
#include "common/layout/region_header.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/tape.h"

namespace verbena::fuzz {
namespace {

using client::Lookup;
using client::LookupContext;
using client::ReadSink;
using client::SliceShape;
using layout::Bucket;
using layout::BucketHeader;
using layout::DirectoryEntry;
using layout::KeyHash;
using layout::RegionHeader;
using layout::Slot;
using Action = Lookup::Action;

constexpr uint64_t kEpoch = 7;

// A header without contradictions, of a slice of `pages` pages.
RegionHeader SoundHeader(uint64_t pages, unsigned directory_depth) {
  const uint64_t directory = sizeof(DirectoryEntry) << directory_depth;
  RegionHeader header{};
  header.magic = layout::kRegionMagic;
  header.layout_version = layout::kLayoutVersion;
  header.epoch = kEpoch;
  header.hash_seed = 1234567;
  header.directory_offset = layout::kRegionHeaderSize;
  header.directory_depth = directory_depth;
  header.heap_begin = (layout::kRegionHeaderSize + directory + layout::kPageSize - 1) /
                      layout::kPageSize * layout::kPageSize;
  header.heap_end = header.heap_begin + pages * layout::kPageSize;
  header.slice_size = header.heap_end;
  return header;
}

void CheckShape(const SliceShape& shape) {
  Check(shape.size <= layout::kMaxSliceSize && shape.heap_end <= shape.size &&
            shape.heap_begin < shape.heap_end,
        "the heap lies in the slice");
  Check(shape.directory_depth <= layout::kMaxDepth &&
            shape.directory_offset >= sizeof(RegionHeader) &&
            shape.directory_offset <= shape.heap_begin &&
            shape.directory_size() <= shape.heap_begin - shape.directory_offset,
        "the directory lies before the heap");
}

// The shape of the slice that is read. It has no memory, so it may be of any size.
SliceShape TakeShape(Tape& tape) {
  constexpr unsigned kDepths[] = {9, 10, 14, 22, 23, layout::kMaxDepth - 4};
  constexpr uint64_t kMaxValues[] = {100'000, 3 << 20};
  const unsigned depth = kDepths[tape.UpTo(std::size(kDepths) - 1)];
  const RegionHeader header = SoundHeader(1 + tape.UpTo(200), depth);
  const uint64_t max_value = kMaxValues[tape.UpTo(1)];
  const auto shape = SliceShape::FromHeader(header, header.slice_size, kEpoch,
                                            layout::ItemSize(layout::kMaxKeySize, max_value));
  Check(shape.ok(), "a sound header is accepted");
  return *shape;
}

const std::string& KeyOf(uint64_t choice) {
  static const std::array<std::string, 4> keys = {"a key", "another key", "k",
                                                  std::string(layout::kMaxKeySize, 'l')};
  return keys[choice % keys.size()];
}

// An item that a READ has begun to tell of, for the pieces that follow.
struct LongItem {
  uint64_t offset = 0;
  std::vector<uint8_t> bytes;
};

// One lookup in flight, with memory of exactly the promised sizes around it.
class Flight {
 public:
  // Bounds of a lookup: at most 8 refreshes and 2 rounds, each over 33 buckets of 15 candidates,
  // each of these up to 14 READs (a run of 3 MiB in pieces).
  static constexpr int kMostReads = 10 * 33 * (1 + 15 * 14);

  // `into_memory`: values are to land in memory of the caller's.
  Flight(const SliceShape& shape, LookupContext& context, bool into_memory)
      : shape_(shape), context_(context), into_memory_(into_memory) {
    lookup_.UseSink(sink_.get());
  }

  bool active() const { return active_; }

  void Start(Tape& tape) {
    const uint8_t choice = tape.Byte();
    key_ = KeyOf(choice);
    hash_ = KeyHash::Of(key_, shape_.hash_seed);
    reads_ = 0;
    last_was_cover_ = false;
    active_ = true;
    under_way_.clear();
    located_ = choice >= 0xd0 && !into_memory_;
    if (into_memory_) {
      TakeMemory(tape);
      step_ = lookup_.Start(context_, hash_, key_);
    } else if (choice >= 0xe8) {
      step_ = lookup_.StartAt(context_, TakeSlot(tape), key_);
    } else if (located_) {
      step_ = lookup_.StartAt(context_, TakeLocated(tape), key_);
    } else {
      lookup_.Prepare(context_, hash_, key_);
      layout::Slot slot;
      uint64_t length = 0;
      if (lookup_.StartWarm(context_, &slot, &length)) {
        step_ = {.action = Action::kRead,
                 .length = static_cast<uint32_t>(length),
                 .offset = slot.offset(),
                 .target = sink_->block.data()};
      } else {
        step_ = lookup_.Start(context_);
      }
    }
    Settle();
  }

  // Answers the READ that was asked for first.
  void Advance(Tape& tape) {
    step_ = under_way_.front();
    under_way_.pop_front();
    CheckRead();
    Check(++reads_ <= kMostReads, "a lookup ends");
    last_was_cover_ = false;
    Answer(tape);
    if (lookup_.split()) {
      step_ = lookup_.OnSplitRead(context_);
      Settle();
      return;
    }
    std::string_view value;
    uint64_t version = 0;
    const bool warm = lookup_.OnWarmRead(context_, &value, &version);
    step_ = lookup_.OnRead(context_);
    Check(!warm || (step_.action == Action::kFound && value == lookup_.value() &&
                    version == lookup_.version()),
          "the short way comes to what the general one does");
    Settle();
  }

 private:
  // Exactly as large as the lookup is told.
  void TakeMemory(Tape& tape) {
    constexpr size_t kSizes[] = {0, 1, 300, 4000, 300'000, 3 << 20};
    memory_size_ = kSizes[tape.UpTo(std::size(kSizes) - 1)];
    memory_ = std::make_unique_for_overwrite<uint8_t[]>(memory_size_);
    lookup_.SplitInto({memory_.get(), memory_size_});
  }

  // Carries out what is not a READ, and takes all READs that can be under way.
  void Settle() {
    if (step_.action == Action::kTooSmall) {
      Check(lookup_.split() && under_way_.empty(), "only memory of the caller's is too small");
      lookup_.SplitInto({});
      step_ = lookup_.Start(context_, hash_, key_);
    }
    while (step_.action == Action::kNeedSpace) {
      Check(!lookup_.split(), "values that land elsewhere need no space");
      Check(step_.length > 0 &&
                step_.length <= std::max<uint64_t>(shape_.max_item_size, layout::kMaxBlockSize),
            "space for no more than the longest item or block");
      space_size_ = step_.length;
      space_ = std::make_unique<uint8_t[]>(space_size_);
      step_ = lookup_.OnSpace(context_, {space_.get(), space_size_});
    }
    if (step_.action == Action::kRead) under_way_.push_back(step_);
    if (step_.action == Action::kRead || step_.action == Action::kWait) {
      while (lookup_.NextRead(&step_)) under_way_.push_back(step_);
      Check(!under_way_.empty() && under_way_.size() <= Lookup::kPiecesInFlight,
            "a lookup waits for READs, and not for too many");
      return;
    }
    Check(under_way_.empty(), "a lookup ends when all its READs have");
    active_ = false;
    if (step_.action == Action::kFound) CheckFound();
    if (step_.action == Action::kAbsent) {
      Check(last_was_cover_ && !located_, "absent only after a last look at the header");
    }
  }

  void CheckRead() const {
    Check(step_.length > 0 && step_.offset <= shape_.size &&
              step_.length <= shape_.size - step_.offset,
          "READs stay inside the slice");
    Check(step_.length <= std::max(Lookup::kPieceBytes, layout::kMaxBlockSize),
          "READs are no longer than a piece");
    if (lookup_.SplitsRead(step_)) {
      Check(step_.target == sink_->block.data() && lookup_.head_size() <= sink_->block.size(),
            "header and key land in the sink");
    } else if (lookup_.split() && step_.in_space) {
      Check(step_.target >= memory_.get() &&
                step_.target + step_.length <= memory_.get() + memory_size_,
            "READs stay inside the caller's memory");
    } else if (step_.in_space) {
      Check(
          step_.target >= space_.get() && step_.target + step_.length <= space_.get() + space_size_,
          "READs stay inside the space given");
    } else if (step_.target == sink_->block.data()) {
      Check(step_.length <= sink_->block.size(), "READs stay inside the sink's block");
    } else if (step_.target == Raw(&sink_->bucket)) {
      Check(step_.length == sizeof(Bucket), "a bucket is read as a whole");
    } else {
      Check(step_.target == Raw(&sink_->header) && step_.length == sizeof(BucketHeader),
            "READs go to a place of the sink");
    }
  }

  void CheckFound() const {
    const std::string_view value = lookup_.value();
    const auto* const at = reinterpret_cast<const uint8_t*>(value.data());
    const auto inside = [&](const uint8_t* begin, size_t size) {
      return at >= begin && at + value.size() <= begin + size;
    };
    if (lookup_.split()) {
      Check(at == memory_.get() && value.size() <= memory_size_,
            "the value lies in the caller's memory");
      Check(std::memcmp(sink_->block.data() + sizeof(layout::ItemHeader), key_.data(),
                        key_.size()) == 0,
            "an item of the key");
      return;
    }
    Check(inside(space_.get(), space_size_) || inside(sink_->block.data(), sink_->block.size()),
          "the value lies in the lookup's memory");
    Check(std::memcmp(at - key_.size(), key_.data(), key_.size()) == 0, "an item of the key");
  }

  // As a device does that parts a READ between the sink and the caller's memory, which may be too
  // small for all of it.
  void Answer(Tape& tape) {
    if (!lookup_.SplitsRead(step_)) return Fill(tape, {step_.target, step_.length});
    std::vector<uint8_t> bytes(step_.length);
    Fill(tape, bytes);
    const uint64_t head = lookup_.head_size();
    const size_t rest = std::min<size_t>(bytes.size() - head, memory_size_);
    std::memcpy(step_.target, bytes.data(), head);
    if (rest > 0) std::memcpy(memory_.get(), bytes.data() + head, rest);
  }

  void Fill(Tape& tape, std::span<uint8_t> target) {
    const uint8_t selector = tape.Byte();
    if (selector % 8 == 7) {
      tape.Fill(target);
      last_was_cover_ = Covers(target);
    } else if (step_.length == sizeof(BucketHeader)) {
      const BucketHeader header = TakeHeader(tape, selector);
      std::memcpy(target.data(), &header, sizeof(header));
      last_was_cover_ = header.Covers(hash_);
    } else if (target.data() == Raw(&sink_->bucket)) {
      const Bucket bucket = TakeBucket(tape, selector);
      std::memcpy(target.data(), &bucket, sizeof(bucket));
    } else if (step_.offset < shape_.heap_begin) {
      FillDirectory(tape, target);
    } else {
      FillBlock(tape, selector, target);
    }
  }

  bool Covers(std::span<const uint8_t> bytes) const {
    BucketHeader header;
    if (bytes.size() != sizeof(header)) return false;
    std::memcpy(&header, bytes.data(), sizeof(header));
    return header.Covers(hash_);
  }

  BucketHeader TakeHeader(Tape& tape, uint8_t selector) const {
    const auto depth = static_cast<unsigned>(tape.UpTo(layout::kMaxDepth));
    const auto link = static_cast<uint32_t>(tape.UpTo(layout::kOverflowBuckets + 1));
    // Mostly of the hash's segment.
    const uint64_t other = (selector & 0x38) == 0x38 ? tape.Take<uint64_t>() : 0;
    return BucketHeader::Make(depth, hash_.prefix() ^ (other & ((uint64_t{1} << 42) - 1)), link);
  }

  Slot TakeSlot(Tape& tape) const {
    const uint8_t kind = tape.Byte();
    if (kind % 4 == 0) return Slot{};
    if (kind % 4 == 1) return Slot{tape.Take<uint64_t>()};
    const auto size_class =
        static_cast<uint32_t>(kind % 4 == 2     ? tape.UpTo(layout::kSizeClasses - 1)
                              : (kind & 4) != 0 ? tape.UpTo(0xff)
                                                : layout::kRunClass);
    // Near the heap's begin or end, where the bounds are.
    const uint64_t distance = tape.Take<uint16_t>() * layout::kOffsetUnit;
    const uint64_t offset =
        (kind & 8) != 0 ? shape_.heap_end - distance : shape_.heap_begin + distance;
    return Slot::Make(hash_.fingerprint(), size_class, offset);
  }

  // What a server may say of an item that it has located.
  client::LocatedItem TakeLocated(Tape& tape) const {
    client::LocatedItem item{.slot = TakeSlot(tape)};
    item.header.check = tape.Byte() % 16;
    item.header.version = 1;
    item.header.value_len = tape.Byte() % 4 == 0
                                ? tape.Take<uint32_t>()
                                : static_cast<uint32_t>(tape.UpTo(shape_.max_item_size + 1));
    item.header.key_len = static_cast<uint16_t>(key_.size() + (tape.Byte() == 0xff ? 1 : 0));
    return item;
  }

  Bucket TakeBucket(Tape& tape, uint8_t selector) const {
    Bucket bucket{};
    bucket.header = TakeHeader(tape, selector);
    for (Slot& slot : bucket.slots) slot = TakeSlot(tape);
    return bucket;
  }

  void FillDirectory(Tape& tape, std::span<uint8_t> page) const {
    std::vector<uint64_t> entries(page.size() / sizeof(uint64_t));
    // A few runs of equal entries, the last one up to the end.
    for (size_t at = 0; at < entries.size();) {
      const uint8_t kind = tape.Byte();
      const size_t run = kind % 4 == 0 ? entries.size() : size_t{1} << (kind / 4 % 16);
      const uint64_t offset = shape_.heap_begin + tape.Take<uint16_t>() * uint64_t{4096};
      const auto depth = static_cast<unsigned>(
          kind >= 0xf0 ? tape.UpTo(63) : tape.UpTo(std::min(shape_.directory_depth, 14U)));
      const DirectoryEntry entry = kind == 0xee ? DirectoryEntry{tape.Take<uint64_t>()}
                                                : DirectoryEntry::Make(offset, depth);
      for (size_t end = std::min(entries.size(), at + run); at < end; ++at) {
        entries[at] = entry.bits;
      }
    }
    std::memcpy(page.data(), entries.data(), page.size());
  }

  // The header of an item with the lengths given; its check is right if the whole of it is `bytes`.
  void WriteItem(std::span<uint8_t> bytes, std::string_view key, uint64_t value_len,
                 uint64_t offset) const {
    layout::ItemHeader header{};
    header.version = 99;
    header.key_len = static_cast<uint16_t>(key.size());
    header.value_len = static_cast<uint32_t>(value_len);
    std::memcpy(bytes.data() + sizeof(header), key.data(), key.size());
    const uint64_t body = std::min<uint64_t>(header.size(), bytes.size()) - sizeof(header);
    header.check = layout::CombineChecks(
        layout::HeaderCheck(header, offset, shape_.hash_seed),
        layout::BodyCheck(bytes.data() + sizeof(header), body, shape_.hash_seed));
    std::memcpy(bytes.data(), &header, sizeof(header));
  }

  void FillBlock(Tape& tape, uint8_t selector, std::span<uint8_t> target) {
    std::memset(target.data(), 0x55, target.size());
    // A later piece of an item that has been begun.
    if (selector % 8 < 5 && long_item_.offset < step_.offset &&
        step_.offset + target.size() <= long_item_.offset + long_item_.bytes.size()) {
      std::memcpy(target.data(), long_item_.bytes.data() + (step_.offset - long_item_.offset),
                  target.size());
      return;
    }
    const std::string& key = selector % 8 == 3 ? KeyOf(tape.Byte()) : key_;
    const uint64_t fixed = sizeof(layout::ItemHeader) + key.size();
    if (target.size() < fixed) return;
    if (selector % 8 == 4) {  // lengths from the tape, nothing behind them
      WriteItem(target, key, tape.Take<uint32_t>(), step_.offset);
      return;
    }
    if (selector % 8 == 5) {  // longer than the block: the rest is to be read
      long_item_.offset = step_.offset;
      long_item_.bytes.assign(fixed + tape.UpTo(shape_.max_item_size), 0x55);
      WriteItem(long_item_.bytes, key, long_item_.bytes.size() - fixed, step_.offset);
      std::memcpy(target.data(), long_item_.bytes.data(),
                  std::min(target.size(), long_item_.bytes.size()));
      return;
    }
    WriteItem(target, key, tape.UpTo(target.size() - fixed), step_.offset);
    if (selector % 8 == 6) target[tape.UpTo(target.size() - 1)] ^= 1;  // torn
  }

  template <typename T>
  static uint8_t* Raw(T* object) {
    return reinterpret_cast<uint8_t*>(object);
  }

  const SliceShape& shape_;
  LookupContext& context_;
  const bool into_memory_;
  Lookup lookup_;
  Lookup::Step step_{};
  std::deque<Lookup::Step> under_way_;  // READs, in the order of their answers
  std::string key_;
  KeyHash hash_;
  std::unique_ptr<ReadSink> sink_ = std::make_unique<ReadSink>();
  std::unique_ptr<uint8_t[]> space_;
  size_t space_size_ = 0;
  std::unique_ptr<uint8_t[]> memory_;
  size_t memory_size_ = 0;
  LongItem long_item_;
  int reads_ = 0;
  bool active_ = false;
  bool located_ = false;
  bool last_was_cover_ = false;  // the last READ was a primary header's, and it covers the hash
};

// A segment of mostly empty buckets, of which some are of the hash's, or nearly. Taken in as by a
// connection that preloads.
void TakeSegment(Tape& tape, const SliceShape& shape, client::IndexCache& index) {
  const KeyHash hash = KeyHash::Of(KeyOf(tape.Byte()), shape.hash_seed);
  const auto entry = DirectoryEntry::Make(shape.heap_begin + tape.Byte() * uint64_t{4096}, 0);
  index.segments.Learn(index.segments.EntryIndex(hash), {&entry.bits, 1});
  const client::SegmentRef segment = index.segments.Get(hash);
  if (segment.offset == 0) return;
  std::vector<uint8_t> bytes(layout::kSegmentSize);
  for (int more = tape.Byte() % 8; more > 0; --more) {
    const uint8_t kind = tape.Byte();
    uint64_t at = tape.UpTo(bytes.size() / sizeof(Bucket) - 1) * sizeof(Bucket);
    if (kind % 4 != 0) at = layout::BucketOffset(hash.bucket());
    if (kind % 4 == 3) {
      at = layout::OverflowOffset(1 +
                                  static_cast<uint32_t>(tape.UpTo(layout::kOverflowBuckets - 1)));
    }
    Bucket bucket{};
    const auto link = static_cast<uint32_t>(tape.UpTo(layout::kOverflowBuckets + 1));
    bucket.header = BucketHeader::Make(static_cast<unsigned>(tape.UpTo(layout::kMaxDepth)),
                                       hash.prefix(), link);
    if ((kind & 0x30) == 0x30) bucket.header.bits = tape.Take<uint64_t>();
    for (Slot& slot : bucket.slots) {
      if (tape.Byte() % 4 == 0) break;
      slot = (kind & 0x40) != 0
                 ? Slot{tape.Take<uint64_t>()}
                 : Slot::Make(hash.fingerprint(),
                              static_cast<uint32_t>(tape.UpTo(layout::kSizeClasses - 1)),
                              shape.heap_begin + tape.Take<uint16_t>() * layout::kOffsetUnit);
    }
    std::memcpy(bytes.data() + at, &bucket, sizeof(bucket));
  }
  index.StoreSegment(segment, bytes);
}

struct ReadMode {
  bool into_memory = false;
  bool preload = false;
};

void ReadAll(std::span<const uint8_t> input, const ReadMode& mode) {
  Tape tape(input);
  const SliceShape shape = TakeShape(tape);
  constexpr uint64_t kCaches[] = {0, 36 * 1024, 5 * 36 * 1024, 1 << 20};
  LookupContext context(shape, kCaches[tape.UpTo(std::size(kCaches) - 1)]);
  if (mode.preload && context.cache.enabled()) {
    for (int more = 1 + tape.Byte() % 3; more > 0; --more) {
      TakeSegment(tape, shape, *context.index);
    }
  }
  std::array<Flight, 2> flights = {Flight(shape, context, mode.into_memory),
                                   Flight(shape, context, mode.into_memory)};
  // The tape starts lookups once; then it is repeated for as long as they go on, so that one that
  // does not end by itself is found out.
  bool again = false;
  while (!tape.at_end() || flights[0].active() || flights[1].active()) {
    if (tape.at_end()) {
      again = true;
      tape = Tape(input);
    }
    const size_t choice = tape.Byte() % 2;
    Flight& flight = flights[choice];
    Flight& other = flights[1 - choice];
    if (flight.active()) {
      flight.Advance(tape);
    } else if (!again) {
      flight.Start(tape);
    } else if (other.active()) {
      other.Advance(tape);
    } else {
      return;
    }
  }
}

}  // namespace

void Slice(std::span<const uint8_t> input) {
  Tape tape(input);
  RegionHeader header = SoundHeader(1 + tape.UpTo(200), 9);
  auto* const bytes = reinterpret_cast<uint8_t*>(&header);
  if (const uint8_t changes = tape.Byte(); changes == 0xff) {
    tape.Fill({bytes, sizeof(header)});
  } else {
    for (uint8_t i = 0; i < changes % 4; ++i) {
      const size_t word = tape.UpTo(sizeof(header) / sizeof(uint64_t) - 1);
      tape.Fill({bytes + word * sizeof(uint64_t), sizeof(uint64_t)});
    }
  }
  const uint64_t size = tape.Byte() % 2 == 0 ? header.slice_size : tape.Take<uint64_t>();
  const auto shape = SliceShape::FromHeader(header, size, kEpoch, 1 << 20);
  if (shape.ok()) CheckShape(*shape);
}

void Reader(std::span<const uint8_t> input) { ReadAll(input, {}); }

void SplitReader(std::span<const uint8_t> input) { ReadAll(input, {.into_memory = true}); }

void Preload(std::span<const uint8_t> input) { ReadAll(input, {.preload = true}); }

}  // namespace verbena::fuzz
