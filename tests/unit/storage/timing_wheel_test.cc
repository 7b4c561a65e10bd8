#include "server/storage/timing_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace verbena::storage {
namespace {

std::set<uint64_t> TakeDue(TimingWheel& wheel) {
  std::set<uint64_t> offsets;
  while (wheel.FirstDue() != TimingWheel::kNone) {
    offsets.insert(wheel.At(wheel.FirstDue()).offset);
    wheel.Remove(wheel.FirstDue());
  }
  return offsets;
}

TEST(TimingWheelTest, TimersAreDueAtTheirTick) {
  TimingWheel wheel(1000);
  EXPECT_EQ(wheel.NextTick(), UINT64_MAX);
  wheel.Add({1003, 0, 3});
  wheel.Add({1000, 0, 0});  // at once
  wheel.Add({1003, 0, 33});
  EXPECT_EQ(TakeDue(wheel), (std::set<uint64_t>{0}));
  EXPECT_EQ(wheel.NextTick(), 1003u);
  wheel.Advance(1002);
  EXPECT_EQ(wheel.due(), 0u);
  wheel.Advance(1003);
  EXPECT_EQ(wheel.due(), 2u);
  EXPECT_EQ(TakeDue(wheel), (std::set<uint64_t>{3, 33}));
  EXPECT_EQ(wheel.size(), 0u);
}

TEST(TimingWheelTest, WhatIsDueStaysUntilItIsRemoved) {
  TimingWheel wheel(0);
  const TimingWheel::Id first = wheel.Add({1, 0, 1});
  const TimingWheel::Id second = wheel.Add({2, 0, 2});
  wheel.Advance(10);
  EXPECT_EQ(wheel.FirstDue(), first);
  wheel.RotateDue();
  EXPECT_EQ(wheel.FirstDue(), second);
  wheel.Remove(second);
  EXPECT_EQ(wheel.FirstDue(), first);
  EXPECT_EQ(wheel.due(), 1u);
}

TEST(TimingWheelTest, ReachesBeyondItsLastLevel) {
  TimingWheel wheel((uint64_t{1} << 40) - 5);
  const std::vector<uint64_t> ticks = {(uint64_t{1} << 40) + 1, (uint64_t{1} << 41) + 77,
                                       (uint64_t{5} << 40) + 3};
  for (const uint64_t tick : ticks) wheel.Add({tick, 0, tick});
  for (const uint64_t tick : ticks) {
    wheel.Advance(tick - 1);
    EXPECT_EQ(wheel.due(), 0u);
    wheel.Advance(tick);
    EXPECT_EQ(TakeDue(wheel), (std::set<uint64_t>{tick}));
  }
}

// Against a sorted map, with steps and distances of every size.
TEST(TimingWheelTest, AgreesWithAMap) {
  std::mt19937_64 random(7);
  TimingWheel wheel(12345);
  std::map<uint64_t, std::pair<uint64_t, TimingWheel::Id>> timers;  // offset -> tick, id
  const auto magnitude = [&] { return random() >> (24 + random() % 39); };
  uint64_t now = 12345;
  uint64_t next_offset = 1;
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t choice = random() % 10;
    if (choice < 5) {
      const uint64_t tick = now + magnitude();
      const uint64_t offset = next_offset++;
      timers[offset] = {tick, wheel.Add({tick, offset * 3, offset})};
    } else if (choice < 7 && !timers.empty()) {
      const auto victim = timers.lower_bound(random() % next_offset);
      if (victim == timers.end()) continue;
      EXPECT_EQ(wheel.At(victim->second.second).hash, victim->first * 3);
      wheel.Remove(victim->second.second);
      timers.erase(victim);
    } else {
      now += magnitude() % (choice == 9 ? UINT64_MAX : 1000);
      const uint64_t before = wheel.now();
      const uint64_t next = wheel.NextTick();
      const uint64_t due_by_now = wheel.DueBy(now);
      wheel.Advance(now);
      EXPECT_EQ(wheel.DueBy(now), wheel.due());
      EXPECT_EQ(due_by_now, wheel.due());
      std::set<uint64_t> expected;
      for (const auto& [offset, timer] : timers) {
        if (timer.first <= now) expected.insert(offset);
      }
      for (const uint64_t offset : expected) {
        EXPECT_LE(next, std::max(timers[offset].first, before));
        timers.erase(offset);
      }
      ASSERT_EQ(TakeDue(wheel), expected) << "at " << now;
    }
    ASSERT_EQ(wheel.size(), timers.size());
  }
}

// A mass in one slot of each level: one step moves no more than it may, nothing is due early, and
// with a step each time that NextTick asks for one, all are due after as many steps as that takes.
TEST(TimingWheelTest, AMassIsSpreadInBoundedSteps) {
  constexpr uint64_t kMass = 10'000;
  constexpr uint64_t kAtOnce = 100;
  const uint64_t start = 1000;
  // In the due list at once, and in each level's slots.
  for (const uint64_t ahead : {1ULL, 255ULL, 300ULL, 70'000ULL, 20'000'000ULL, 5'000'000'000ULL}) {
    TimingWheel wheel(start);
    const uint64_t tick = start + ahead;
    for (uint64_t i = 0; i < kMass; ++i) wheel.Add({tick, 0, i});
    uint64_t steps = 0;
    while (wheel.due() < kMass) {
      const uint64_t next = wheel.NextTick();
      ASSERT_LE(next, tick);
      const uint64_t due_before = wheel.due();
      ASSERT_LE(wheel.Advance(next, kAtOnce), kAtOnce);
      ASSERT_EQ(wheel.DueBy(tick), kMass);
      ASSERT_LE(wheel.due() - due_before, kAtOnce);
      if (wheel.due() > 0) {
        ASSERT_EQ(wheel.now(), tick);
      }
      ++steps;
    }
    EXPECT_EQ(wheel.now(), tick);
    // Each timer is moved once a level at most, and each slot that is reached costs a step.
    EXPECT_LE(steps, 5 * (kMass / kAtOnce + 2)) << ahead;
    EXPECT_EQ(TakeDue(wheel).size(), kMass);
    EXPECT_LT(wheel.Advance(tick, kAtOnce), kAtOnce);
    EXPECT_EQ(wheel.NextTick(), UINT64_MAX);
  }
}

// Keys that are due evenly over the two slots of the second level ahead, looked at just behind the
// beginning of the first, which has not been spread: those of all of it are not due yet.
TEST(TimingWheelTest, WhatIsDueInALargeSlotIsEstimated) {
  constexpr uint64_t kSlot = 256;
  constexpr uint64_t kEach = 40;  // a tick
  TimingWheel wheel(0);
  std::mt19937_64 random(3);
  for (uint64_t i = 0; i < 2 * kSlot * kEach; ++i)
    wheel.Add({kSlot + random() % (2 * kSlot), 0, i});
  for (const uint64_t ticks : {1ULL, 64ULL, 200ULL, 256ULL}) {
    const uint64_t due_by = wheel.DueBy(kSlot + ticks - 1);
    EXPECT_GT(due_by + 10 * kEach, ticks * kEach * 3 / 4) << ticks;
    EXPECT_LT(due_by, ticks * kEach * 5 / 4 + 10 * kEach) << ticks;
  }
}

// Timers come and go while the wheel stands in the middle of a slot.
TEST(TimingWheelTest, BoundedStepsAgreeWithAMap) {
  std::mt19937_64 random(11);
  TimingWheel wheel(0);
  std::map<uint64_t, std::pair<uint64_t, TimingWheel::Id>> timers;  // offset -> tick, id
  uint64_t target = 0;
  uint64_t next_offset = 1;
  for (int step = 0; step < 300'000; ++step) {
    const uint64_t choice = random() % 16;
    if (choice < 7) {
      // Often the same tick as others, in slots of all levels.
      const uint64_t tick = target + ((random() % 4 + 1) << (random() % 5 * 8));
      const uint64_t offset = next_offset++;
      timers[offset] = {tick, wheel.Add({tick, 0, offset})};
    } else if (choice < 9 && !timers.empty()) {
      const auto victim = timers.lower_bound(random() % next_offset);
      if (victim == timers.end()) continue;
      wheel.Remove(victim->second.second);
      timers.erase(victim);
    } else {
      if (choice == 15) target += uint64_t{1} << (random() % 5 * 8);
      const uint64_t most = 1 + random() % 16;
      const bool arrived = wheel.Advance(target, most) < most;
      const auto due = std::count_if(timers.begin(), timers.end(), [&](const auto& timer) {
        return timer.second.first <= target;
      });
      ASSERT_EQ(wheel.DueBy(target), static_cast<uint64_t>(due));
      ASSERT_LE(wheel.now(), target);
      if (arrived) {
        ASSERT_EQ(wheel.now(), target);
      }
      for (const uint64_t offset : TakeDue(wheel)) {
        ASSERT_LE(timers.at(offset).first, target) << "early";
        timers.erase(offset);
      }
      if (arrived) {
        for (const auto& [offset, timer] : timers) ASSERT_GT(timer.first, target) << "late";
      }
    }
    ASSERT_EQ(wheel.size(), timers.size());
  }
}

TEST(TimingWheelTest, NextTickIsNeverTooLate) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    const uint64_t start = random() >> (random() % 40 + 20);
    TimingWheel wheel(start);
    const uint64_t tick = start + 1 + (random() >> (random() % 40 + 24));
    wheel.Add({tick, 0, 1});
    int looks = 0;
    while (wheel.due() == 0) {
      const uint64_t next = wheel.NextTick();
      ASSERT_LE(next, tick);
      ASSERT_GT(next, wheel.now());
      wheel.Advance(next);
      ASSERT_LE(++looks, 7);  // one for each level
    }
    EXPECT_EQ(wheel.now(), tick);
  }
}

}  // namespace
}  // namespace verbena::storage
