// Lookups whose value lands in memory of its own: what is accepted is whole, whatever happens
// between and within the READs, and nothing is written outside of that memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "client/src/lookup.h"
#include "common/base/relaxed_copy.h"
#include "tests/unit/client/lookup_testing.h"

namespace verbena::client {
namespace {

// Carries a lookup's READs out as a device with two scatter elements does.
class SplitReader {
 public:
  // Called after each READ, which may have brought other bytes then.
  using Hook = std::function<void(size_t number)>;

  SplitReader(std::span<const uint8_t> slice, const SliceShape& shape)
      : slice_(slice), context_(shape, 1 << 20), sink_(std::make_unique<ReadSink>()) {}

  // kFound, kAbsent, kTooSmall or kAskServer. `memory_` has a guard on either side of the target.
  Lookup::Action Get(const std::string& key, size_t room, const Hook& hook = {}) {
    constexpr size_t kGuard = 64;
    memory_.assign(room + 2 * kGuard, 0x5a);
    target_ = std::span(memory_).subspan(kGuard, room);
    const layout::KeyHash hash = layout::KeyHash::Of(key, context_.shape.hash_seed);
    Lookup lookup;
    lookup.UseSink(sink_.get());
    lookup.SplitInto(target_);
    reads_ = 0;
    const Lookup::Action action = Drive(lookup, lookup.Start(context_, hash, key), hook);
    value_ = action == Lookup::Action::kFound ? std::string(lookup.value()) : "";
    if (action == Lookup::Action::kFound) {
      EXPECT_EQ(reinterpret_cast<const uint8_t*>(lookup.value().data()), target_.data());
    }
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_TRUE(memory_[i] == 0x5a && memory_[memory_.size() - 1 - i] == 0x5a) << i;
    }
    return action;
  }
  const std::string& value() const { return value_; }
  std::span<uint8_t> target() const { return target_; }
  ReadSink& sink() { return *sink_; }

 private:
  Lookup::Action Drive(Lookup& lookup, Lookup::Step step, const Hook& hook) {
    std::deque<Lookup::Step> under_way;
    for (; reads_ < 1000; ++reads_) {
      if (step.action != Lookup::Action::kRead && step.action != Lookup::Action::kWait) {
        return step.action;
      }
      if (step.action == Lookup::Action::kRead) under_way.push_back(step);
      while (lookup.NextRead(&step)) under_way.push_back(step);
      if (under_way.empty()) break;
      Carry(lookup, under_way.front());
      under_way.pop_front();
      if (hook) hook(reads_);
      step = lookup.OnSplitRead(context_);
    }
    ADD_FAILURE() << "the lookup does not end";
    return Lookup::Action::kAskServer;
  }

  void Carry(const Lookup& lookup, const Lookup::Step& step) {
    ASSERT_LE(step.offset + step.length, slice_.size());
    if (!lookup.SplitsRead(step)) {
      const auto* const sink = reinterpret_cast<const uint8_t*>(sink_.get());
      const bool in_sink =
          step.target >= sink && step.target + step.length <= sink + sizeof(*sink_);
      const bool in_target = step.target >= target_.data() &&
                             step.target + step.length <= target_.data() + target_.size();
      ASSERT_TRUE(in_sink || in_target);
      CopyFromShared(step.target, slice_.data() + step.offset, step.length);
      return;
    }
    const uint64_t head = lookup.head_size();
    ASSERT_EQ(step.target, sink_->block.data());
    CopyFromShared(step.target, slice_.data() + step.offset, head);
    const uint64_t rest = std::min<uint64_t>(step.length - head, target_.size());
    if (rest > 0) CopyFromShared(target_.data(), slice_.data() + step.offset + head, rest);
  }

  std::span<const uint8_t> slice_;
  LookupContext context_;
  std::unique_ptr<ReadSink> sink_;
  std::vector<uint8_t> memory_;
  std::span<uint8_t> target_;
  std::string value_;
  size_t reads_ = 0;
};

class SplitLookupTest : public LookupTest {
 protected:
  SplitReader NewSplitReader() { return SplitReader(store_->region().bytes(), Shape()); }
  static std::string Bytes(size_t size, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  }
};

TEST_F(SplitLookupTest, ValuesOfAllSizes) {
  Open(64 << 20);
  SplitReader reader = NewSplitReader();
  for (const size_t size :
       std::vector<size_t>{0, 1, 100, 4000, 4064, 4065, 4096, 5000, 70'000, 262'144, 500'000,
                           524'264, 524'288, 600'000, 1'000'000, 3'000'000}) {
    for (const size_t key_size : {size_t{1}, size_t{30}, size_t{layout::kMaxKeySize}}) {
      const std::string key(key_size, 'k');
      const std::string value = Bytes(size, size);
      ASSERT_NO_FATAL_FAILURE(Put(key, value));
      // Without and with its bucket in the cache; more room than it needs, and as much.
      for (const size_t room : {size + 5000, size, size}) {
        ASSERT_EQ(reader.Get(key, room), Lookup::Action::kFound) << size << " " << key_size;
        ASSERT_TRUE(reader.value() == value) << size << " " << key_size;
      }
      if (size > 0) {
        EXPECT_EQ(reader.Get(key, size - 1), Lookup::Action::kTooSmall);
        EXPECT_EQ(reader.Get(key, 0), Lookup::Action::kTooSmall);
      }
    }
  }
  EXPECT_EQ(reader.Get("absent", 100), Lookup::Action::kAbsent);
}

// One byte is another one in what a READ has brought, anywhere: never accepted.
TEST_F(SplitLookupTest, WhatIsNotWholeIsNotAccepted) {
  Open(64 << 20);
  std::mt19937_64 random(7);
  for (const size_t size : std::vector<size_t>{10, 3000, 20'000, 800'000}) {
    const std::string key = Key(static_cast<int>(size));
    ASSERT_NO_FATAL_FAILURE(Put(key, Bytes(size, 3)));
    SplitReader reader = NewSplitReader();
    ASSERT_EQ(reader.Get(key, size), Lookup::Action::kFound);
    const size_t head = sizeof(layout::ItemHeader) + key.size();
    for (int round = 0; round < 300; ++round) {
      const size_t at = random() % (head + size);
      const auto flip = static_cast<uint8_t>(1u << (random() % 8));
      const Lookup::Action action = reader.Get(key, size, [&](size_t) {
        uint8_t& byte = at < head ? reader.sink().block[at] : reader.target()[at - head];
        byte ^= flip;
      });
      ASSERT_NE(action, Lookup::Action::kFound) << size << ": byte " << at << " of the item";
      ASSERT_NE(action, Lookup::Action::kAbsent) << size << ": byte " << at << " of the item";
    }
  }
}

// The value is replaced between any two READs.
TEST_F(SplitLookupTest, WhileTheValueChanges) {
  Open(64 << 20);
  const std::string key = "key";
  const std::vector<std::string> values = {Bytes(100, 1), Bytes(900'000, 2), Bytes(30'000, 3),
                                           Bytes(700'000, 4)};
  for (size_t first = 0; first < values.size(); ++first) {
    for (size_t second = 0; second < values.size(); ++second) {
      for (size_t when = 0; when < 8; ++when) {
        ASSERT_NO_FATAL_FAILURE(Put(key, values[first]));
        SplitReader reader = NewSplitReader();
        const Lookup::Action action = reader.Get(key, 1'000'000, [&](size_t number) {
          if (number == when) Put(key, values[second]);
        });
        if (action == Lookup::Action::kFound) {
          EXPECT_TRUE(reader.value() == values[first] || reader.value() == values[second]);
        } else {
          EXPECT_EQ(action, Lookup::Action::kAskServer);
        }
      }
    }
  }
}

// Whatever the slice holds: every lookup ends, and no READ leaves the slice, the sink or the
// target.
TEST_F(SplitLookupTest, WhateverTheSliceHolds) {
  Open(16 << 20);
  constexpr int kKeys = 40;
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_NO_FATAL_FAILURE(Put(Key(i), Bytes(static_cast<size_t>(i * i * i * 4), 1)));
  }
  const std::span<const uint8_t> slice = store_->region().bytes();
  std::vector<uint8_t> copy(slice.begin(), slice.end());
  std::mt19937_64 random(11);
  SplitReader reader(copy, Shape());
  for (int round = 0; round < 2000; ++round) {
    const std::string key = Key(static_cast<int>(random() % kKeys));
    // Of the item: its header's check, version, lengths or flags; or of its slot.
    const uint64_t item = SlotOf(key).offset();
    const uint64_t at = random() % 4 == 0 ? BucketOf(key) + random() % layout::kBucketSize
                                          : item + random() % sizeof(layout::ItemHeader);
    const uint8_t before = copy[at];
    copy[at] = static_cast<uint8_t>(random());
    const Lookup::Action action = reader.Get(key, random() % 400'000);
    EXPECT_TRUE(action == Lookup::Action::kFound || action == Lookup::Action::kAbsent ||
                action == Lookup::Action::kTooSmall || action == Lookup::Action::kAskServer);
    copy[at] = before;
  }
}

}  // namespace
}  // namespace verbena::client
