// Lookups driven over slices in this process's memory: real ones, filled by the server's store, and
// whatever a test makes of them. READs are copies; between any two a test may change the slice.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/src/lookup.h"
#include "client/src/shared_cache.h"
#include "common/base/relaxed_copy.h"
#include "server/storage/region.h"
#include "server/storage/store.h"

namespace verbena::client {

// Zeroed memory for a slice.
class Memory {
 public:
  explicit Memory(uint64_t size) : size_(size) {
    data_ = static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  ~Memory() { munmap(data_, size_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<uint8_t> bytes() const { return {data_, size_}; }

 private:
  uint8_t* data_;
  uint64_t size_;
};

struct Read {
  uint64_t offset;
  uint32_t length;
};

struct Outcome {
  Lookup::Action action = Lookup::Action::kAskServer;
  std::string value;
  uint64_t version = 0;
  std::vector<Read> reads;
  size_t most_under_way = 0;  // READs at once
  bool started_warm = false;  // the short way was taken: at the beginning, and for the last READ
  bool read_warm = false;
};

// Drives lookups over a slice in memory.
class Reader {
 public:
  // Called before each READ is carried out, with its number in the lookup.
  using Hook = std::function<void(size_t number, const Read& read)>;

  Reader(std::span<uint8_t> slice, const SliceShape& shape, uint64_t cache_bytes)
      : Reader(slice, std::make_shared<IndexCache>(shape, cache_bytes)) {}
  // One of several that share what they know of the index; each is for one thread.
  Reader(std::span<uint8_t> slice, std::shared_ptr<IndexCache> index)
      : slice_(slice), context_(std::move(index)), sink_(std::make_unique<ReadSink>()) {}

  LookupContext& context() { return context_; }
  layout::KeyHash HashOf(std::string_view key) const {
    return layout::KeyHash::Of(key, context_.shape.hash_seed);
  }

  Outcome Get(std::string_view key, const Hook& hook = {}) {
    Lookup lookup;
    lookup.UseSink(sink_.get());
    lookup.Prepare(context_, HashOf(key), key);
    layout::Slot slot;
    uint64_t length;
    const bool warm = lookup.StartWarm(context_, &slot, &length);
    const Lookup::Step step = warm ? Lookup::Step{.action = Lookup::Action::kRead,
                                                  .length = static_cast<uint32_t>(length),
                                                  .offset = slot.offset(),
                                                  .target = sink_->block.data()}
                                   : lookup.Start(context_);
    Outcome outcome = Drive(lookup, step, hook);
    outcome.started_warm = warm;
    return outcome;
  }
  Outcome GetAt(const LocatedItem& item, std::string_view key, const Hook& hook = {}) {
    Lookup lookup;
    lookup.UseSink(sink_.get());
    return Drive(lookup, lookup.StartAt(context_, item, key), hook);
  }

 private:
  // Far more than any lookup needs that ends: two rounds over 33 buckets of 15 candidates each.
  static constexpr size_t kMostReads = 20000;

  // Carries READs out in the order in which they are asked for, each when its turn comes; those of
  // the pieces of a large item are all asked for before the first one is carried out.
  Outcome Drive(Lookup& lookup, Lookup::Step step, const Hook& hook) {
    Outcome outcome;
    std::vector<uint8_t> space;
    std::deque<Lookup::Step> under_way;
    while (outcome.reads.size() < kMostReads) {
      switch (step.action) {
        case Lookup::Action::kRead:
        case Lookup::Action::kWait: {
          if (step.action == Lookup::Action::kRead) under_way.push_back(step);
          while (lookup.NextRead(&step)) under_way.push_back(step);
          outcome.most_under_way = std::max(outcome.most_under_way, under_way.size());
          if (under_way.empty()) {
            ADD_FAILURE() << "the lookup waits for nothing";
            return outcome;
          }
          const Lookup::Step next = under_way.front();
          under_way.pop_front();
          const Read read{next.offset, next.length};
          if (hook) hook(outcome.reads.size(), read);
          outcome.reads.push_back(read);
          if (!Carry(next, space)) return outcome;
          step = AfterRead(lookup, &outcome);
          break;
        }
        case Lookup::Action::kNeedSpace:
          EXPECT_TRUE(under_way.empty());
          EXPECT_LE(step.length, context_.shape.max_item_size + 512 * 1024);
          space.assign(step.length, 0xee);
          step = lookup.OnSpace(context_, space);
          break;
        default:
          EXPECT_TRUE(under_way.empty());
          outcome.action = step.action;
          if (step.action == Lookup::Action::kFound) {
            outcome.value = std::string(lookup.value());
            outcome.version = lookup.version();
          }
          return outcome;
      }
    }
    ADD_FAILURE() << "the lookup does not end";
    return outcome;
  }

  // The short way for what was read must come to what the general one does, which goes on.
  Lookup::Step AfterRead(Lookup& lookup, Outcome* outcome) {
    std::string_view value;
    uint64_t version = 0;
    outcome->read_warm = lookup.OnWarmRead(context_, &value, &version);
    const Lookup::Step step = lookup.OnRead(context_);
    if (outcome->read_warm) {
      EXPECT_EQ(step.action, Lookup::Action::kFound);
      EXPECT_TRUE(value == lookup.value());
      EXPECT_EQ(version, lookup.version());
    }
    return step;
  }

  bool Carry(const Lookup::Step& step, std::vector<uint8_t>& space) {
    const bool inside = step.length > 0 && step.offset <= slice_.size() &&
                        step.length <= slice_.size() - step.offset;
    EXPECT_TRUE(inside) << "READ of " << step.length << " bytes at " << step.offset;
    const auto* sink_begin = reinterpret_cast<const uint8_t*>(sink_.get());
    const uint8_t* begin = step.in_space ? space.data() : sink_begin;
    const uint64_t size = step.in_space ? space.size() : sizeof(ReadSink);
    const bool has_room = step.target >= begin && step.target + step.length <= begin + size;
    EXPECT_TRUE(has_room);
    if (!inside || !has_room) return false;
    CopyFromShared(step.target, slice_.data() + step.offset, step.length);
    return true;
  }

  std::span<uint8_t> slice_;
  LookupContext context_;
  std::unique_ptr<ReadSink> sink_;
};

constexpr uint64_t kMaxValue = 4 << 20;

// A store and readers of its slice.
class LookupTest : public ::testing::Test {
 protected:
  void Open(uint64_t size) {
    memory_ = std::make_unique<Memory>(size);
    auto region = storage::Region::Format(memory_->bytes());
    ASSERT_TRUE(region.ok()) << region.status();
    auto store =
        storage::Store::Create(*std::move(region), {.workers = 1, .max_value_size = kMaxValue});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  SliceShape Shape() const {
    const layout::RegionHeader& header = store_->region().header();
    auto shape = SliceShape::FromHeader(header, header.slice_size, header.epoch,
                                        layout::ItemSize(layout::kMaxKeySize, kMaxValue));
    EXPECT_TRUE(shape.ok()) << shape.status();
    return *shape;
  }
  Reader NewReader(uint64_t cache_bytes) {
    return Reader(store_->region().bytes(), Shape(), cache_bytes);
  }
  Reader NewReader(std::shared_ptr<IndexCache> index) {
    return Reader(store_->region().bytes(), std::move(index));
  }

  void Put(const std::string& key, const std::string& value) {
    const auto result =
        store_->Put(0, key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()});
    ASSERT_TRUE(result.ok()) << result.status();
  }
  void Delete(const std::string& key) {
    const auto result = store_->Delete(0, key);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->existed);
  }

  static std::string Key(int i) { return "key-" + std::to_string(i); }
  static std::string Value(int i) {
    return "value-" + std::to_string(i) + std::string(static_cast<size_t>(i % 200), 'v');
  }

  // Where the primary bucket of a key lies.
  uint64_t BucketOf(const std::string& key) const {
    const layout::KeyHash hash = layout::KeyHash::Of(key, store_->region().hash_seed());
    const layout::DirectoryEntry entry{
        store_->region().directory()[hash.directory_index(store_->region().directory_depth())]};
    return entry.segment_offset() + layout::BucketOffset(hash.bucket());
  }
  uint64_t* WordAt(uint64_t offset) const {
    return reinterpret_cast<uint64_t*>(store_->region().At(offset));
  }
  layout::Slot SlotOf(const std::string& key) {
    std::string value;
    const auto result = store_->Get(0, key, &value);
    EXPECT_TRUE(result.ok() && result->found);
    return result->slot;
  }

  static LocatedItem ItemOf(const storage::GetResult& got, std::string_view key) {
    return {.slot = got.slot,
            .header = {.check = got.check,
                       .version = got.version,
                       .value_len = got.value_len,
                       .key_len = static_cast<uint16_t>(key.size()),
                       .flags = got.flags}};
  }
  // As the server answers a GET.
  LocatedItem Locate(const std::string& key) {
    const auto got = store_->Get(0, key, std::span<uint8_t>());
    EXPECT_TRUE(got.ok() && got->found);
    return ItemOf(*got, key);
  }

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<storage::Store> store_;
};

}  // namespace verbena::client
