#include "bench/workload/value.h"

#include <gtest/gtest.h>

#include <string>

namespace verbena::bench {
namespace {

std::string Make(std::string_view key, uint64_t stamp, size_t size) {
  std::string value(size, '\0');
  FillValue(key, stamp, value);
  return value;
}

constexpr size_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 100, 1000, 4096, 70'001};

TEST(Value, VerifiesItself) {
  for (const size_t size : kSizes) {
    for (const uint64_t stamp : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      EXPECT_TRUE(VerifyValue("user1", Make("user1", stamp, size))) << size;
    }
  }
}

TEST(Value, DependsOnTheStamp) {
  EXPECT_NE(Make("k", 1, 100), Make("k", 2, 100));
  EXPECT_EQ(Make("k", 1, 100), Make("k", 1, 100));
}

TEST(Value, OfAnotherKeyIsWrong) {
  for (const size_t size : kSizes) {
    EXPECT_FALSE(VerifyValue("user2", Make("user1", 5, size))) << size;
  }
}

TEST(Value, EveryChangedByteIsNoticed) {
  for (const size_t size : {8u, 16u, 100u}) {
    const std::string value = Make("user1", 5, size);
    for (size_t i = 0; i < size; ++i) {
      std::string changed = value;
      changed[i] = static_cast<char>(changed[i] ^ 0x40);
      EXPECT_FALSE(VerifyValue("user1", changed)) << "byte " << i << " of " << size;
    }
  }
}

// A mix of two writes, cut at any word: what a torn read would be.
TEST(Value, TornValuesAreNoticed) {
  const std::string one = Make("user1", 5, 200);
  const std::string two = Make("user1", 6, 200);
  for (size_t cut = 8; cut < 200; cut += 8) {
    EXPECT_FALSE(VerifyValue("user1", one.substr(0, cut) + two.substr(cut))) << cut;
  }
}

TEST(Value, LostAndGainedBytesAreNoticed) {
  const std::string value = Make("user1", 5, 100);
  EXPECT_FALSE(VerifyValue("user1", value.substr(0, 99)));
  EXPECT_FALSE(VerifyValue("user1", value + '\0'));
  EXPECT_TRUE(VerifyValue("user1", ""));  // nothing to be wrong
}

}  // namespace
}  // namespace verbena::bench
