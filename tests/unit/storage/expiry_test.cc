#include "server/storage/expiry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace verbena::storage {
namespace {

constexpr int64_t kTick = 100;

layout::KeyHash HashOfNumber(uint64_t key) { return {key * 0x9e3779b97f4a7c15}; }
layout::Slot SlotAt(uint64_t offset) { return layout::Slot::Make(0, 0, offset); }

std::vector<uint64_t> OffsetsDue(Expiry& expiry, int64_t now, size_t most = 1000) {
  std::vector<Expiry::DueItem> items;
  expiry.TakeDue(now, most, &items);
  std::vector<uint64_t> offsets;
  for (const Expiry::DueItem& item : items) offsets.push_back(item.offset);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// Gives the item at 16 times `key` a time, as the store does.
void Set(Expiry& expiry, uint64_t key, int64_t due_ns) {
  if (expiry.Set(HashOfNumber(key), key * 16, due_ns)) expiry.Wake();
}

TEST(ExpiryTest, ItemsAreDueNotTooEarlyAndWithinATick) {
  Expiry expiry(kTick, 1000);
  EXPECT_TRUE(expiry.empty());
  EXPECT_EQ(expiry.NextLook(1000), INT64_MAX);
  for (int64_t due = 1000; due < 5000; due += 7) {
    Set(expiry, static_cast<uint64_t>(due), due);
  }
  for (int64_t now = 1000; now < 5200; now += 50) {
    for (const uint64_t offset : OffsetsDue(expiry, now)) {
      const auto due = static_cast<int64_t>(offset / 16);
      EXPECT_LE(due, now);
      EXPECT_GT(due, now - kTick - 50);
      EXPECT_TRUE(expiry.IsOver(HashOfNumber(offset / 16), offset, now));
      EXPECT_TRUE(expiry.Clear(HashOfNumber(offset / 16), offset));
    }
  }
  EXPECT_TRUE(expiry.empty());
}

TEST(ExpiryTest, TimesAreReplacedClearedAndFollowTheItem) {
  Expiry expiry(kTick, 0);
  const layout::KeyHash hash = HashOfNumber(1);
  Set(expiry, 1, 10'000);
  Set(expiry, 1, 2'000);
  EXPECT_EQ(expiry.Stats(0).timers, 1u);
  EXPECT_EQ(expiry.DueOf(hash, 16), 2'000);
  EXPECT_FALSE(expiry.IsOver(hash, 16, 1'999));
  EXPECT_TRUE(expiry.IsOver(hash, 16, 2'000));
  expiry.OnMoved(hash, "key", SlotAt(16), SlotAt(32), true);
  EXPECT_EQ(expiry.DueOf(hash, 16), std::nullopt);
  EXPECT_EQ(expiry.DueOf(hash, 32), 2'000);
  EXPECT_EQ(OffsetsDue(expiry, 2'000), (std::vector<uint64_t>{32}));
  EXPECT_EQ(OffsetsDue(expiry, 2'000), (std::vector<uint64_t>{32}));  // until it is removed
  EXPECT_EQ(expiry.Stats(2'000).overdue, 1u);
  expiry.OnRemoved(hash, "key", SlotAt(32));
  EXPECT_TRUE(expiry.empty());
  EXPECT_FALSE(expiry.Clear(hash, 32));
  EXPECT_EQ(OffsetsDue(expiry, 100'000), (std::vector<uint64_t>{}));
}

TEST(ExpiryTest, WakesForATimeThatIsEarlierThanTheNextLook) {
  std::atomic<int> wakes{0};
  Expiry expiry(kTick, 0, [&] { ++wakes; });
  EXPECT_EQ(expiry.NextLook(0), INT64_MAX);
  Set(expiry, 1, 50'000);
  EXPECT_EQ(wakes, 1);
  const int64_t look = expiry.NextLook(0);
  EXPECT_GT(look, 0);
  EXPECT_LE(look, 50'000);
  Set(expiry, 2, 60'000);
  EXPECT_EQ(wakes, 1);
  Set(expiry, 3, look - 1);
  EXPECT_EQ(wakes, 2);
  // Once is enough until the next look.
  Set(expiry, 4, 1);
  EXPECT_EQ(wakes, 2);
}

TEST(ExpiryTest, HandsOutAtMostWhatIsAskedForAndAllInTurn) {
  Expiry expiry(kTick, 0);
  constexpr uint64_t kItems = 1000;
  for (uint64_t i = 1; i <= kItems; ++i) Set(expiry, i, 10);
  EXPECT_TRUE(OffsetsDue(expiry, 99).empty());
  uint64_t taken = 0;
  while (!expiry.empty()) {
    const std::vector<uint64_t> offsets = OffsetsDue(expiry, 100, 64);
    ASSERT_FALSE(offsets.empty());
    ASSERT_LE(offsets.size(), 64u);
    for (const uint64_t offset : offsets) taken += expiry.Clear(HashOfNumber(offset / 16), offset);
  }
  EXPECT_EQ(taken, kItems);
}

// Very many items with one time, which lie in one slot of each wheel: under one hold of a lock only
// so many are moved, none comes early, and each call gets on with every shard until all are there.
TEST(ExpiryTest, AMassThatEndsTogetherIsTakenInBoundedSteps) {
  constexpr uint64_t kItems = 100'000;
  constexpr int64_t kTicks = 70'000;  // of the third level, then of the second and the first
  constexpr size_t kAtOnce = 64;
  Expiry expiry(kTick, 0);
  for (uint64_t key = 1; key <= kItems; ++key) Set(expiry, key, kTicks * kTick);
  // Until just before the time, a look at each tick that NextLook names.
  int64_t now = 0;
  std::vector<Expiry::DueItem> items;
  for (int looks = 0; now < kTicks * kTick; ++looks) {
    ASSERT_LT(looks, 10'000);
    now = expiry.NextLook(now);
    if (now >= kTicks * kTick) break;
    expiry.TakeDue(now, kAtOnce, &items);
    ASSERT_TRUE(items.empty()) << "at " << now;
  }
  // From then on all come without a pause.
  EXPECT_EQ(expiry.Stats(now).overdue, kItems);
  uint64_t calls = 0;
  for (; !expiry.empty(); ++calls) {
    ASSERT_EQ(expiry.NextLook(now), now);
    items.clear();
    expiry.TakeDue(now, kAtOnce, &items);
    for (const Expiry::DueItem& item : items) ASSERT_TRUE(expiry.Clear(item.hash, item.offset));
  }
  EXPECT_LE(expiry.Stats(now).most_at_once, Expiry::kMostMoved + kAtOnce);
  EXPECT_GE(expiry.Stats(now).most_at_once, Expiry::kMostMoved);
  // Each call hands out as many as it may, but for those that only spread.
  EXPECT_LE(calls, kItems / kAtOnce + kItems / Expiry::kMostMoved);
}

// Where nothing is behind, no item is there for longer than a tick and a look after its time; with
// a backlog, for longer by the looks that the backlog takes. And Lateness tells, too much rather
// than too little, but for the tick that items may take.
TEST(ExpiryTest, LatenessIsATickAndWhatTheBacklogTakes) {
  constexpr int64_t kLook = kTick / 2;
  constexpr int64_t kEnd = 100'000;
  constexpr size_t kAtOnce = 16;
  Expiry expiry(kTick, 0);
  std::mt19937_64 random(3);
  std::set<std::pair<int64_t, uint64_t>> there;  // due, key
  std::vector<int64_t> dues(1);
  // Some all the time, and twice a mass at one time.
  while (dues.size() < 6000) {
    const auto key = static_cast<int64_t>(dues.size());
    const auto any = 1 + static_cast<int64_t>(random() % kEnd);
    dues.push_back(key % 3 != 0 ? any : key % 2 == 0 ? 20'000 : 70'000);
    there.emplace(dues.back(), key);
    Set(expiry, static_cast<uint64_t>(key), dues.back());
  }
  int64_t most_late = 0;
  int calm_looks = 0;
  size_t backlog = 0;  // the most since nothing was late
  for (int64_t now = 0; !there.empty(); now += kLook) {
    const int64_t oldest = there.begin()->first;
    const int64_t late = std::max<int64_t>(0, now - oldest);
    const auto first_ahead = there.upper_bound({now, UINT64_MAX});
    const auto due = static_cast<size_t>(std::distance(there.begin(), first_ahead));
    backlog = late <= kTick ? due : std::max(backlog, due);
    calm_looks += backlog <= kAtOnce ? 1 : 0;
    const auto looks = static_cast<int64_t>(backlog / kAtOnce);
    ASSERT_LE(late, kTick + (looks + 1) * kLook) << "at " << now << ", backlog " << backlog;
    ASSERT_GE(expiry.Lateness(now) + kTick, late) << "at " << now;
    ASSERT_LE(expiry.Lateness(now), late + kTick + kLook) << "at " << now;
    most_late = std::max(most_late, late);
    for (const uint64_t offset : OffsetsDue(expiry, now, kAtOnce)) {
      const uint64_t key = offset / 16;
      ASSERT_TRUE(expiry.Clear(HashOfNumber(key), offset));
      ASSERT_EQ(there.erase({dues[key], key}), 1u);
    }
  }
  EXPECT_EQ(expiry.Lateness(10 * kEnd), 0);
  EXPECT_GT(most_late, 20 * kTick);  // there was a backlog
  EXPECT_GT(calm_looks, 100);        // and times without
}

// One thread looks for what is due while others set and clear.
TEST(ExpiryTest, ThreadsMayUseItTogether) {
  Expiry expiry(kTick, 0);
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 20'000; ++i) {
        const uint64_t key = i % 500 * 2 + thread + 2;
        Set(expiry, key, static_cast<int64_t>(i % 97 * 50));
        if (i % 3 == 0) {
          EXPECT_TRUE(expiry.Clear(HashOfNumber(key), key * 16));
        }
      }
      --running;
    });
  }
  int64_t now = 0;
  while (running > 0) {
    OffsetsDue(expiry, now += 10, 16);
    expiry.NextLook(now);
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t offset : OffsetsDue(expiry, 1'000'000'000, 100'000)) {
    EXPECT_TRUE(expiry.Clear(HashOfNumber(offset / 16), offset));
  }
  EXPECT_TRUE(expiry.empty());
}

}  // namespace
}  // namespace verbena::storage
