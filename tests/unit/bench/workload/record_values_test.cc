#include "bench/workload/record_values.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace verbena::bench {
namespace {

constexpr std::string_view kRecordKey = "user6284781860667377211";

std::string FilledRecord(const RecordValues& values, uint64_t stamp) {
  std::vector<char> value;
  values.Fill(kRecordKey, stamp, RecordValues::kBySizes, &value);
  return {value.begin(), value.end()};
}

// Java: "user0:field0:".hashCode() and so on, computed apart.
TEST(IntegrityText, IsYcsbs) {
  int32_t hash = 0;
  for (const char c : std::string("user0:field0:")) {
    hash = static_cast<int32_t>(31u * static_cast<uint32_t>(hash) + static_cast<uint32_t>(c));
  }
  const std::string expected = "user0:field0:" + std::to_string(hash);
  EXPECT_EQ(IntegrityText("user0", "field0", expected.size()), expected);
  const std::string longer = IntegrityText("user0", "field0", 100);
  EXPECT_EQ(longer.size(), 100u);
  EXPECT_EQ(longer.substr(0, expected.size() + 1), expected + ":");
  EXPECT_EQ(IntegrityText("user0", "field0", 7), "user0:f");
  EXPECT_EQ(IntegrityText("user0", "field0", 0), "");
}

TEST(IntegrityText, HashesAsJavaDoes) {
  // "a:b:" has 97, 58, 98, 58: ((97 * 31 + 58) * 31 + 98) * 31 + 58 = 2,948,561.
  EXPECT_EQ(IntegrityText("a", "b", 11), "a:b:2948561");
}

TEST(RecordValues, OneFieldIsTheValueItself) {
  const RecordValues values({}, 50);
  std::string value = FilledRecord(values, 7);
  EXPECT_EQ(value.size(), 50u);
  EXPECT_EQ(values.MeanSize(), 50u);
  EXPECT_TRUE(values.Verify(kRecordKey, value));
  EXPECT_FALSE(values.Verify("user1", value));
  ++value[20];
  EXPECT_FALSE(values.Verify(kRecordKey, value));
}

TEST(RecordValues, AnUpdateLeavesTheOtherFieldsWhatTheyAre) {
  RecordFields fields;
  fields.count = 3;
  fields.write_all = false;
  EXPECT_TRUE(fields.updates_read());
  const RecordValues values(fields, 20);
  const std::string first = FilledRecord(values, 1);
  EXPECT_EQ(first.size(), 12 + 3 * (8 + 6 + 20u));
  EXPECT_EQ(first.size(), values.MeanSize());
  std::vector<char> changed;
  values.Replace(kRecordKey, 99, 1, first, &changed);
  const std::string second(changed.begin(), changed.end());
  ASSERT_EQ(second.size(), first.size());
  const size_t field = 34;
  EXPECT_EQ(second.substr(12, field), first.substr(12, field));
  EXPECT_NE(second.substr(12 + field, field), first.substr(12 + field, field));
  EXPECT_EQ(second.substr(12 + 2 * field), first.substr(12 + 2 * field));
  EXPECT_TRUE(values.Verify(kRecordKey, second));
  EXPECT_FALSE(values.Verify("user1", second));
  // A torn one: the front of one write, the end of the other.
  EXPECT_FALSE(values.Verify(kRecordKey, first.substr(0, 60) + second.substr(60)));
}

TEST(RecordValues, WhatIsNoRecordIsRefusedAndReplacedWhole) {
  RecordFields fields;
  fields.count = 2;
  const RecordValues values(fields, 10);
  const std::string whole = FilledRecord(values, 3);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(values.Verify(kRecordKey, whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(values.Verify(kRecordKey, whole + "x"));
  std::string huge = whole;
  huge[12 + 4] = huge[12 + 5] = huge[12 + 6] = huge[12 + 7] = '\xff';  // a size of 4 GiB
  EXPECT_FALSE(values.Verify(kRecordKey, huge));
  std::vector<char> fresh;
  values.Replace(kRecordKey, 4, 0, "rubbish", &fresh);
  EXPECT_TRUE(values.Verify(kRecordKey, {fresh.data(), fresh.size()}));
}

TEST(RecordValues, IntegrityFollowsFromKeyAndField) {
  for (const uint32_t count : {1u, 4u}) {
    RecordFields fields;
    fields.count = count;
    fields.integrity = true;
    const RecordValues values(fields, 60);
    const std::string value = FilledRecord(values, 1);
    EXPECT_EQ(value, FilledRecord(values, 2));
    EXPECT_NE(value.find(IntegrityText(kRecordKey, "field0", 60)), std::string::npos);
    EXPECT_TRUE(values.Verify(kRecordKey, value));
    EXPECT_FALSE(values.Verify("user1", value));
    // Whole and of this key, but with other contents.
    RecordFields other = fields;
    other.integrity = false;
    EXPECT_FALSE(values.Verify(kRecordKey, FilledRecord(RecordValues(other, 60), 1)));
  }
}

TEST(RecordValues, SizesFollowFromKeyAndWrite) {
  const RecordValues values({}, Sizes::Uniform(1, 1000));
  EXPECT_EQ(FilledRecord(values, 5), FilledRecord(values, 5));
  size_t different = 0;
  for (uint64_t stamp = 0; stamp < 100; ++stamp) {
    const std::string value = FilledRecord(values, stamp);
    EXPECT_TRUE(values.Verify(kRecordKey, value));
    different += value.size() != FilledRecord(values, stamp + 1).size() ? 1U : 0U;
  }
  EXPECT_GT(different, 90u);
}

}  // namespace
}  // namespace verbena::bench
