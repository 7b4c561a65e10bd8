#include "bench/workload/key_names.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_set>

namespace verbena::bench {
namespace {

TEST(KeyNames, AreYcsbs) {
  const KeyNames names(0);
  EXPECT_EQ(names.Name(0), "user6284781860667377211");
  EXPECT_EQ(names.Name(1), "user8517097267634966620");
  EXPECT_EQ(names.Name(2), "user1820151046732198393");
  EXPECT_EQ(names.Name(999), "user2071219101098386137");
}

// Digit by digit against the library's conversion.
TEST(KeyNames, AreTheHashInDecimal) {
  const KeyNames names(0);
  for (uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_EQ(names.Name(i), "user" + std::to_string(FnvHash64(i))) << i;
  }
}

TEST(KeyNames, ArePaddedWithZeros) {
  const KeyNames names(30);
  EXPECT_EQ(names.Name(0), "user00000006284781860667377211");
  EXPECT_EQ(KeyNames(23).Name(2), "user1820151046732198393");
}

TEST(KeyNames, HaveTheLengthAskedForAndDiffer) {
  for (const size_t size : {8u, 9u, 12u, 13u, 15u, 16u, 17u, 20u, 22u, 23u, 24u, 100u, 1024u}) {
    const KeyNames names(size);
    std::unordered_set<std::string> seen;
    for (uint64_t i = 0; i < 20'000; ++i) {
      const std::string name = names.Name(i);
      ASSERT_EQ(name.size(), size);
      ASSERT_TRUE(seen.insert(name).second) << name << " twice with --key_size=" << size;
    }
  }
}

// The shortest names are a bijection of the record numbers, also of large ones.
TEST(KeyNames, ShortNamesOfLargeNumbersDiffer) {
  const KeyNames names(8);
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < 20'000; ++i) seen.insert(names.Name(9'999'980'000 + i));
  for (uint64_t i = 0; i < 20'000; ++i) seen.insert(names.Name(i));
  EXPECT_EQ(seen.size(), 40'000u);
}

TEST(KeyNames, ThePrefixIsThatOfEveryName) {
  for (const size_t size : {0U, 8U, 15U, 16U, 22U, 23U, 64U}) {
    const KeyNames names(size);
    EXPECT_EQ(names.prefix(), size == 8 || size == 15 ? "" : "user") << size;
    for (uint64_t i = 0; i < 1000; ++i) {
      ASSERT_TRUE(names.Name(i).starts_with(names.prefix())) << size << " " << i;
    }
  }
}

TEST(KeyNames, NeverExceedTheirBuffer) {
  const KeyNames names(0);
  for (uint64_t i = 0; i < 100'000; ++i) {
    char buffer[KeyNames::kNaturalKeySize];
    ASSERT_LE(names.Write(i, buffer), names.max_size());
  }
}

}  // namespace
}  // namespace verbena::bench
