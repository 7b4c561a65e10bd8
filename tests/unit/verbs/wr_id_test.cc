#include "common/verbs/wr_id.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace verbena::verbs {
namespace {

enum class Kind : uint8_t { kNone = 0, kRead = 1, kSend = 7, kLast = 255 };
using Id = WrId<Kind>;

TEST(WrId, BitsAreKindGenerationSlot) {
  const Id id(Kind::kSend, {0x89abcdef, 0x123456});
  EXPECT_EQ(id.bits(), 0x0712345689abcdefULL);
  const Id back(id.bits());
  EXPECT_EQ(back.kind, Kind::kSend);
  EXPECT_EQ(back.ref, id.ref);
}

TEST(WrId, ExtremesDoNotMix) {
  const Id all(Kind::kLast, {UINT32_MAX, kMaxGeneration});
  EXPECT_EQ(all.bits(), UINT64_MAX);
  EXPECT_EQ(Id(Kind::kNone, {UINT32_MAX, 0}).bits(), 0x00000000ffffffffULL);
  EXPECT_EQ(Id(Kind::kNone, {0, kMaxGeneration}).bits(), 0x00ffffff00000000ULL);
  EXPECT_EQ(Id(uint64_t{0}).ref.generation, 0U);
}

TEST(SlotTable, GivesEverySlotOnceAndThenNone) {
  SlotTable<int> table(4);
  EXPECT_EQ(table.capacity(), 4U);
  std::set<uint32_t> slots;
  std::vector<SlotRef> refs;
  for (int i = 0; i < 4; ++i) {
    const auto ref = table.Acquire();
    ASSERT_TRUE(ref.has_value());
    EXPECT_NE(ref->generation, 0U);
    slots.insert(ref->slot);
    refs.push_back(*ref);
  }
  EXPECT_EQ(slots.size(), 4U);
  EXPECT_TRUE(table.full());
  EXPECT_FALSE(table.Acquire().has_value());
  EXPECT_TRUE(table.Release(refs[2]));
  EXPECT_EQ(table.used(), 3U);
  const auto again = table.Acquire();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->slot, refs[2].slot);
  EXPECT_EQ(again->generation, refs[2].generation + 1);
}

TEST(SlotTable, RefusesStaleAndForeignReferences) {
  SlotTable<int> table(2);
  EXPECT_EQ(table.Find({0, 1}), nullptr);  // not in use
  const SlotRef ref = *table.Acquire();
  *table.Find(ref) = 42;
  EXPECT_EQ(*table.Find(ref), 42);
  EXPECT_EQ(table.Find({ref.slot, ref.generation + 1}), nullptr);
  EXPECT_EQ(table.Find({ref.slot, 0}), nullptr);
  EXPECT_EQ(table.Find({2, 1}), nullptr);
  EXPECT_EQ(table.Find({UINT32_MAX, 1}), nullptr);
  EXPECT_TRUE(table.Release(ref));
  EXPECT_FALSE(table.Release(ref));
  const SlotRef next = *table.Acquire();
  EXPECT_EQ(next.slot, ref.slot);
  EXPECT_EQ(table.Find(ref), nullptr);
  EXPECT_NE(table.Find(next), nullptr);
}

TEST(SlotTable, GenerationWrapsPastZero) {
  SlotTable<char> table(1);
  uint32_t last = 0;
  for (uint32_t i = 0; i < kMaxGeneration; ++i) {
    const SlotRef ref = *table.Acquire();
    ASSERT_EQ(ref.generation, last + 1);
    last = ref.generation;
    ASSERT_TRUE(table.Release(ref));
  }
  EXPECT_EQ(last, kMaxGeneration);
  EXPECT_EQ(table.Acquire()->generation, 1U);
}

TEST(SlotTable, ForEachMayRelease) {
  SlotTable<int> table(5);
  for (int i = 0; i < 4; ++i) *table.Find(*table.Acquire()) = i;
  int sum = 0;
  table.ForEach([&](SlotRef ref, int& value) {
    sum += value;
    EXPECT_TRUE(table.Release(ref));
  });
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(table.used(), 0U);
}

}  // namespace
}  // namespace verbena::verbs
