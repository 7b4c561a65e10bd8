// Pinned blocks: whatever becomes of the item, its bytes stay until the last pin is gone, and not a
// byte is lost or counted twice.
#include "server/storage/pins.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/sizes.h"
#include "server/storage/allocator.h"
#include "server/storage/region.h"
#include "server/storage/store.h"
#include "tests/unit/storage/storage_testing.h"

namespace verbena::storage {
namespace {

constexpr Block kA = {.offset = 16, .size_class = 1};
constexpr Block kB = {.offset = 64, .size_class = 2};

TEST(PinsTest, TheLastOneFreesWhatWasToBeFreed) {
  Pins pins(8, 1000);
  std::optional<Block> free;
  const uint64_t first = pins.Pin(kA, 100);
  const uint64_t second = pins.Pin(kA, 100);
  ASSERT_NE(first, 0u);
  ASSERT_NE(second, first);
  EXPECT_TRUE(pins.IsPinned(kA.offset));
  EXPECT_FALSE(pins.IsPinned(kB.offset));
  EXPECT_FALSE(pins.Defer(kB.offset));
  EXPECT_TRUE(pins.Defer(kA.offset));
  EXPECT_EQ(pins.Usage().pins, 2u);
  EXPECT_EQ(pins.Usage().blocks, 1u);
  EXPECT_EQ(pins.Usage().bytes, 100u);
  EXPECT_EQ(pins.Usage().freed_bytes, 100u);
  EXPECT_TRUE(pins.Unpin(first, &free));
  EXPECT_FALSE(free.has_value());
  EXPECT_TRUE(pins.Unpin(second, &free));
  ASSERT_TRUE(free.has_value());
  EXPECT_EQ(free->offset, kA.offset);
  EXPECT_EQ(free->size_class, kA.size_class);
  EXPECT_FALSE(pins.IsPinned(kA.offset));
  EXPECT_FALSE(pins.Defer(kA.offset));
  EXPECT_EQ(pins.Usage().pins, 0u);
  EXPECT_EQ(pins.Usage().blocks, 0u);
  EXPECT_EQ(pins.Usage().bytes, 0u);
  EXPECT_EQ(pins.Usage().freed_blocks, 0u);
  EXPECT_EQ(pins.Usage().freed_bytes, 0u);
}

TEST(PinsTest, WhatIsNotToBeFreedIsNot) {
  Pins pins(8, 1000);
  std::optional<Block> free = kB;
  EXPECT_TRUE(pins.Unpin(pins.Pin(kA, 100), &free));
  EXPECT_FALSE(free.has_value());
}

TEST(PinsTest, AnIdIsGoodForOnePinAndOnce) {
  Pins pins(2, 1000);
  std::optional<Block> free;
  const uint64_t first = pins.Pin(kA, 1);
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, first + 1, first + 2, first + (1u << 16),
                            first - (1u << 16), UINT64_MAX}) {
    EXPECT_FALSE(pins.Unpin(id, &free)) << id;
  }
  EXPECT_TRUE(pins.Unpin(first, &free));
  EXPECT_FALSE(pins.Unpin(first, &free));
  // The entry is used again under another id.
  const uint64_t next = pins.Pin(kA, 1);
  EXPECT_NE(next, first);
  EXPECT_FALSE(pins.Unpin(first, &free));
  EXPECT_TRUE(pins.Unpin(next, &free));
}

TEST(PinsTest, Limits) {
  Pins pins(3, 1000);
  std::optional<Block> free;
  // One block may be larger than all may be together.
  const uint64_t huge = pins.Pin(kA, 5000);
  ASSERT_NE(huge, 0u);
  EXPECT_EQ(pins.Pin(kB, 1), 0u);
  EXPECT_NE(pins.Pin(kA, 5000), 0u);  // the same block costs nothing more
  EXPECT_NE(pins.Pin(kA, 5000), 0u);
  EXPECT_EQ(pins.Pin(kA, 5000), 0u);  // but there are only three
  EXPECT_EQ(pins.Usage().pins, 3u);
  EXPECT_TRUE(pins.Unpin(huge, &free));
  EXPECT_NE(pins.Pin(kA, 5000), 0u);
}

class StorePinsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(store_, nullptr); }
  // Nothing is lost: all that is used is of the items that there are.
  void TearDown() override {
    if (store_ == nullptr) return;
    EXPECT_EQ(store_->Stats().pins, 0u);
    EXPECT_EQ(store_->Stats().pinned_bytes, 0u);
    EXPECT_TRUE(CheckInvariants(*store_).ok()) << CheckInvariants(*store_);
  }

  void Put(std::string_view key, std::string_view value) {
    const auto put = store_->Put(0, key, AsBytes(value));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  GetResult GetPinned(std::string_view key) {
    const auto got = store_->GetOrPin(0, key, {});
    EXPECT_TRUE(got.ok() && got->found && !got->copied);
    EXPECT_NE(got->pin, 0u);
    return *got;
  }
  // The value that a reader finds in a block that was pinned, by what GetOrPin has said of it.
  std::string ReadPinned(const GetResult& got, std::string_view key) const {
    const uint8_t* const body = store_->region().At(got.slot.offset()) + sizeof(layout::ItemHeader);
    const layout::ItemHeader header = {.check = got.check,
                                       .version = got.version,
                                       .value_len = got.value_len,
                                       .key_len = static_cast<uint16_t>(key.size()),
                                       .flags = got.flags};
    const uint64_t seed = store_->region().hash_seed();
    const uint64_t check =
        layout::CombineChecks(layout::HeaderCheck(header, got.slot.offset(), seed),
                              layout::BodyCheck(body, key.size() + got.value_len, seed));
    EXPECT_EQ(check, got.check);
    EXPECT_EQ(std::memcmp(body, key.data(), key.size()), 0);
    return {reinterpret_cast<const char*>(body) + key.size(), got.value_len};
  }

  std::unique_ptr<Store> store_ = MakeStore(64 * kMiB, 2);
};

// Of sizes that are changed in place, elsewhere, and of runs.
constexpr std::array<size_t, 4> kSizes = {100, 10'000, 300'000, 3'000'000};

TEST_F(StorePinsTest, ReplacedItemsStayReadable) {
  for (const size_t size : kSizes) {
    const std::string old(size, 'o');
    ASSERT_NO_FATAL_FAILURE(Put("key", old));
    const GetResult got = GetPinned("key");
    for (int i = 0; i < 3; ++i) {
      ASSERT_NO_FATAL_FAILURE(Put("key", std::string(size, static_cast<char>('a' + i))));
    }
    EXPECT_EQ(MustGet(*store_, "key"), std::string(size, 'c'));
    EXPECT_EQ(ReadPinned(got, "key"), old);
    EXPECT_NE(SlotOf(*store_, "key").offset(), got.slot.offset());
    EXPECT_EQ(store_->Stats().pinned_bytes, layout::ItemSize(3, size));
    EXPECT_TRUE(store_->allocator().Validate().ok());
    EXPECT_TRUE(store_->Unpin(1, got.pin));
    EXPECT_FALSE(store_->Unpin(1, got.pin));
  }
}

TEST_F(StorePinsTest, DeletedItemsStayReadable) {
  for (const size_t size : kSizes) {
    const std::string old(size, 'o');
    const uint64_t before = store_->allocator().UsedBytes();
    ASSERT_NO_FATAL_FAILURE(Put("key", old));
    const uint64_t with = store_->allocator().UsedBytes();
    const GetResult got = GetPinned("key");
    const GetResult again = GetPinned("key");
    ASSERT_TRUE(store_->Delete(1, "key")->existed);
    EXPECT_FALSE(Has(*store_, "key"));
    EXPECT_EQ(store_->allocator().UsedBytes(), with);
    EXPECT_TRUE(store_->Unpin(0, got.pin));
    EXPECT_EQ(store_->allocator().UsedBytes(), with);
    EXPECT_EQ(ReadPinned(again, "key"), old);
    EXPECT_TRUE(store_->Unpin(1, again.pin));
    EXPECT_EQ(store_->allocator().UsedBytes(), before);
  }
}

TEST_F(StorePinsTest, EditsGoElsewhere) {
  ASSERT_NO_FATAL_FAILURE(Put("number", "12"));
  ASSERT_NO_FATAL_FAILURE(Put("text", "ab"));
  const GetResult number = GetPinned("number");
  const GetResult text = GetPinned("text");
  EXPECT_EQ(store_->Add(0, "number", 30)->number, 42);
  EXPECT_TRUE(store_->Append(0, "text", AsBytes("c")).ok());
  EXPECT_EQ(MustGet(*store_, "number"), "42");
  EXPECT_EQ(MustGet(*store_, "text"), "abc");
  EXPECT_EQ(ReadPinned(number, "number"), "12");
  EXPECT_EQ(ReadPinned(text, "text"), "ab");
  EXPECT_TRUE(store_->Unpin(0, number.pin));
  EXPECT_TRUE(store_->Unpin(0, text.pin));
}

TEST_F(StorePinsTest, WhatIsPinnedIsNotMoved) {
  for (const size_t size : kSizes) {
    ASSERT_NO_FATAL_FAILURE(Put("key", std::string(size, 'o')));
    const GetResult got = GetPinned("key");
    const auto hash = store_->index().Hash("key");
    EXPECT_FALSE(store_->MoveItem(store_->maintenance_worker(), hash, got.slot.offset()));
    EXPECT_EQ(SlotOf(*store_, "key").offset(), got.slot.offset());
    EXPECT_TRUE(store_->Unpin(0, got.pin));
    EXPECT_TRUE(store_->MoveItem(store_->maintenance_worker(), hash, got.slot.offset()));
  }
}

// A change in place needs no memory; while the block is pinned it does.
TEST_F(StorePinsTest, WithoutMemoryThePinnedItemStays) {
  const std::vector<std::string> keys = FillUp(*store_, {30'000, 100});
  ASSERT_FALSE(keys.empty());
  const std::string& key = keys.front();
  const std::string old = MustGet(*store_, key);
  const std::string other(old.size(), 'n');
  const GetResult got = GetPinned(key);
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Put(0, key, AsBytes(other)).status()));
  EXPECT_EQ(MustGet(*store_, key), old);
  EXPECT_TRUE(store_->Unpin(0, got.pin));
  EXPECT_TRUE(store_->Put(0, key, AsBytes(other)).ok());
  EXPECT_EQ(MustGet(*store_, key), other);
}

TEST_F(StorePinsTest, ValuesThatFitAreNotPinned) {
  ASSERT_NO_FATAL_FAILURE(Put("key", "value"));
  std::array<uint8_t, 5> room;
  const auto got = store_->GetOrPin(0, "key", room);
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->copied);
  EXPECT_EQ(got->pin, 0u);
  EXPECT_FALSE(store_->GetOrPin(0, "nothing", room)->found);
}

// At most a quarter of the heap.
TEST_F(StorePinsTest, TooMuchIsNotPinned) {
  std::vector<uint64_t> pins;
  uint64_t refused = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string key = absl::StrCat("key-", i);
    ASSERT_NO_FATAL_FAILURE(Put(key, std::string(4 * kMiB, 'v')));
    const auto got = store_->GetOrPin(0, key, {});
    ASSERT_TRUE(got.ok() && got->found);
    EXPECT_NE(got->check, 0u);
    if (got->pin != 0) pins.push_back(got->pin);
    if (got->pin == 0) ++refused;
  }
  EXPECT_EQ(pins.size(), 3u);
  EXPECT_EQ(refused, 5u);
  for (const uint64_t pin : pins) EXPECT_TRUE(store_->Unpin(0, pin));
}

// One overwrites, deletes and moves, others pin, read after a while, and let go.
TEST_F(StorePinsTest, ReadersBesideAWriter) {
  constexpr int kPins = 1000;
  const auto value_of = [](int i) {
    return std::string(i % 3 == 0 ? 200 : 9000, static_cast<char>('a' + i % 26));
  };
  ASSERT_NO_FATAL_FAILURE(Put("key", value_of(0)));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; !done.load(); ++i) {
      const std::string value = value_of(i);
      EXPECT_TRUE(store_->Put(0, "key", AsBytes(value)).ok());
      if (i % 5 == 0) {
        EXPECT_TRUE(store_->Delete(0, "key").ok());
      }
    }
  });
  const int64_t deadline = MonotonicNanos() + int64_t{60} * 1'000'000'000;
  int pinned = 0;
  while (pinned < kPins && MonotonicNanos() < deadline) {
    const auto got = store_->GetOrPin(1, "key", {});
    ASSERT_TRUE(got.ok());
    if (!got->found) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_NE(got->pin, 0u);
    ++pinned;
    std::this_thread::yield();
    const std::string value = ReadPinned(*got, "key");
    ASSERT_EQ(value.find_first_not_of(value[0]), std::string::npos);
    ASSERT_TRUE(store_->Unpin(1, got->pin));
  }
  done.store(true);
  writer.join();
  EXPECT_EQ(pinned, kPins);
}

TEST(StorePinsOptions, AreChecked) {
  for (const uint32_t most : {0u, 65'536u}) {
    RegionOptions options;
    options.size = 16 * kMiB;
    options.want_huge_pages = false;
    options.pre_touch = false;
    absl::StatusOr<Region> region = Region::Create(options);
    ASSERT_TRUE(region.ok()) << region.status();
    const auto store = Store::Create(*std::move(region), {.max_pins = most});
    EXPECT_TRUE(absl::IsInvalidArgument(store.status())) << store.status();
    EXPECT_NE(store.status().message().find(absl::StrCat(most, " pins")), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace verbena::storage
