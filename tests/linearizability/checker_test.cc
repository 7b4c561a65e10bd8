// Histories made by hand: good ones, and what each kind of failure of a store would look like.
#include "tests/linearizability/checker.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/linearizability/history_testing.h"

namespace verbena::linearizability {
namespace {

absl::Status Verdict(std::vector<Op> ops, Rules rules = {}) {
  const std::vector<Operation> history(ops.begin(), ops.end());
  Checker checker(rules);
  return checker.Add(history);
}

void ExpectGood(std::vector<Op> ops, Rules rules = {}) {
  const absl::Status status = Verdict(std::move(ops), rules);
  EXPECT_TRUE(status.ok()) << status;
}

// The last of `ops` is the answer that cannot be explained.
void ExpectBad(std::vector<Op> ops, Rules rules = {}) {
  const Operation culprit = ops.back();
  const absl::Status status = Verdict(std::move(ops), rules);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find(ToString(culprit)), absl::string_view::npos) << status;
}

TEST(ValueId, OfAConcatenation) {
  const std::string a = "some bytes that are longer than a step";
  const std::string b = "and others";
  EXPECT_EQ(ValueId::Concatenation(ValueId::Of(a), ValueId::Of(b)), ValueId::Of(a + b));
  EXPECT_EQ(ValueId::Concatenation(ValueId::Of(""), ValueId::Of(b)), ValueId::Of(b));
  EXPECT_FALSE(ValueId::Of(a + b) == ValueId::Of(b + a));
  EXPECT_FALSE(ValueId::Of(std::string(1, '\0')) == ValueId::Of(""));
}

TEST(ValueId, KnowsNumbers) {
  EXPECT_TRUE(ValueId::Of("-9223372036854775808").is_number);
  EXPECT_EQ(ValueId::Of("-12").number, -12);
  EXPECT_EQ(ValueId::OfNumber(0), ValueId::Of("0"));
  for (const char* text : {"", "-", "-0", "01", "+1", " 1", "1 ", "9223372036854775808", "1a"}) {
    EXPECT_FALSE(ValueId::Of(text).is_number) << text;
  }
}

TEST(Checker, OneAfterTheOther) {
  ExpectGood({});
  ExpectGood({GetAbsent().At(0, 1), Put("a", 5).At(2, 3), Get("a", 5).At(4, 5),
              Put("b", 9).Existed().At(6, 7), Get("b", 9).At(8, 9), Delete(9).At(10, 11),
              GetAbsent().At(12, 13), DeleteAbsent().At(14, 15), Put("c", 10).At(16, 17)});
}

TEST(Checker, ConcurrentReadsMaySeeOldAndNew) {
  ExpectGood({Put("a", 1).At(0, 1), Put("b", 2).Existed().At(10, 20), Get("a", 1).At(11, 19),
              Get("b", 2).At(12, 18)});
  // A write that returns late has taken effect before.
  ExpectGood({Put("a", 1).At(0, 100), Get("a", 1).At(10, 20), Get("a", 1).At(30, 40)});
  // Two writes under way: the answers tell their order.
  ExpectGood({Put("a", 2).Existed().At(0, 10), Put("b", 1).At(0, 10), Get("a", 2).At(11, 12)});
}

TEST(Checker, StaleRead) {
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 2).Existed().At(2, 3), Get("a", 1).At(4, 5)});
  ExpectBad({Put("a", 1).At(0, 1), GetAbsent().At(2, 3)});
  ExpectBad(
      {GetAbsent().At(0, 1), Put("a", 1).At(2, 3), Get("a", 1).At(4, 5), GetAbsent().At(6, 7)});
}

TEST(Checker, ReadFromTheFuture) {
  ExpectBad({Put("a", 1).At(0, 1), Get("b", 2).At(2, 3)});
  ExpectBad({Put("b", 1).At(5, 6), Get("b", 1).At(2, 4)});
}

TEST(Checker, ReorderedReads) {
  // The second reader begins after the first has seen the new value, and sees the old one.
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 2).Existed().At(10, 100), Get("b", 2).At(20, 30),
             Get("a", 1).At(40, 50)});
}

TEST(Checker, LostUpdate) {
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 2).Existed().At(2, 10), Put("c", 3).Existed().At(2, 10),
             Get("b", 2).At(11, 12)});
  ExpectBad({Put("0", 1).At(0, 1), Add(1, 1, 2).At(2, 10), Add(1, 1, 3).At(2, 10)});
  ExpectBad({Append("x", 1).Existed(false).At(0, 1), Append("y", 2).At(2, 3),
             Append("z", 3).At(2, 3), Get("xz", 3).At(4, 5)});
}

TEST(Checker, TwoSwapsOfOneVersion) {
  ExpectGood({Put("a", 1).At(0, 1), Cas(1, "b", 2).At(2, 10),
              Cas(1, "c", 0).Fails(Outcome::kOtherVersion, 2).At(2, 10), Get("b", 2).At(11, 12)});
  ExpectBad({Put("a", 1).At(0, 1), Cas(1, "b", 2).At(2, 10), Cas(1, "c", 3).At(2, 11)});
  // A swap that must not have failed.
  ExpectBad({Put("a", 1).At(0, 1), Cas(1, "b", 0).Fails(Outcome::kOtherVersion).At(2, 3)});
  ExpectBad({Put("a", 1).At(0, 1), Cas(1, "b", 0).Fails(Outcome::kOtherVersion, 1).At(2, 3)});
}

TEST(Checker, ResurrectedValue) {
  ExpectBad({Put("a", 1).At(0, 1), Delete(1).At(2, 3), Get("a", 1).At(4, 5)});
  ExpectBad({Put("a", 1).At(0, 1), Delete(1).At(2, 3), GetAbsent().At(4, 5), Get("a", 1).At(6, 7)});
}

TEST(Checker, VersionsGrow) {
  ExpectBad({Put("a", 5).At(0, 1), Put("b", 5).Existed().At(2, 3)});
  ExpectBad({Put("a", 5).At(0, 1), Put("b", 4).Existed().At(2, 3)});
  // Across deletes, too.
  ExpectBad({Put("a", 5).At(0, 1), Delete(5).At(2, 3), Put("a", 5).At(4, 5)});
  // A get's version is that of the value.
  ExpectBad({Put("a", 5).At(0, 1), Get("a", 6).At(2, 3)});
  // After writes whose versions nobody told: each took one.
  ExpectGood({Put("a", 5).At(0, 1), Put("b", 0).Since(2), Put("c", 0).Since(2),
              Get("b", 6).At(10, 11), Get("c", 7).At(12, 13), Put("d", 8).Existed().At(14, 15)});
  ExpectBad({Put("a", 5).At(0, 1), Put("b", 0).Since(2), Get("b", 5).At(10, 11)});
  ExpectBad(
      {Put("a", 5).At(0, 1), Put("b", 0).Since(2), Delete(7).At(10, 11), Put("c", 7).At(12, 13)});
}

TEST(Checker, ConditionsOnPresence) {
  ExpectGood({Put("a", 1).If(Condition::kIfAbsent).At(0, 1),
              Put("b", 0).If(Condition::kIfAbsent).Fails(Outcome::kExists, 1).At(2, 3),
              Put("c", 2).If(Condition::kIfPresent).At(4, 5), Delete(2).At(6, 7),
              Put("d", 0).If(Condition::kIfPresent).Fails(Outcome::kNotFound).At(8, 9)});
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 2).If(Condition::kIfAbsent).At(2, 3)});
  ExpectBad({Put("a", 1).If(Condition::kIfPresent).At(0, 1)});
  ExpectBad({Put("a", 0).If(Condition::kIfAbsent).Fails(Outcome::kExists).At(0, 1)});
  ExpectBad({Put("a", 1).At(0, 1),
             Put("b", 0).If(Condition::kIfPresent).Fails(Outcome::kNotFound).At(2, 3)});
  // Both cannot have been the first.
  ExpectBad({Put("a", 1).If(Condition::kIfAbsent).At(0, 9),
             Put("b", 2).If(Condition::kIfAbsent).At(0, 10)});
  // What an answer says of the time before.
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 2).Existed(false).At(2, 3)});
  ExpectBad({Put("a", 1).Existed().At(0, 1)});
}

TEST(Checker, DeletesTellWhatTheyDeleted) {
  ExpectGood({Put("a", 1).At(0, 1), GetAndDelete("a", 1).At(2, 3), GetAbsent().At(4, 5)});
  ExpectBad({Put("a", 1).At(0, 1), GetAndDelete("b", 1).At(2, 3)});
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 2).Existed().At(2, 3), Delete(1).At(4, 5)});
  ExpectBad({Put("a", 1).At(0, 1), GetAndDelete("a", 1).At(2, 9), GetAndDelete("a", 1).At(2, 10)});
  ExpectGood({Put("a", 1).At(0, 1), Delete(1).If(Condition::kIfVersion, 1).At(2, 3)});
  ExpectBad({Put("a", 2).At(0, 1), Delete(0).If(Condition::kIfVersion, 1).At(2, 3)});
}

TEST(Checker, Sums) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExpectGood({Add(3, 3, 1).Existed(false).At(0, 1), Add(-5, -2, 2).At(2, 3), Get("-2", 2).At(4, 5),
              Put("x", 3).Existed().At(6, 7), Add(1, 0, 0).Fails(Outcome::kNotANumber, 3).At(8, 9),
              Add(kMost, kMost, 4).At(12, 13).Existed(false), Delete(3).At(10, 11),
              Add(1, 0, 0).Fails(Outcome::kOverflow, 4).At(14, 15)});
  ExpectBad({Put("7", 1).At(0, 1), Add(1, 0, 0).Fails(Outcome::kNotANumber).At(2, 3)});
  ExpectBad({Put("7", 1).At(0, 1), Add(1, 0, 0).Fails(Outcome::kOverflow).At(2, 3)});
  ExpectBad({Put("7", 1).At(0, 1), Add(1, 9, 2).At(2, 3)});
  ExpectBad({Put("x", 1).At(0, 1), Add(1, 1, 2).At(2, 3)});
  ExpectBad({Put("7", 1).At(0, 1), Add(0, 7, 2).At(2, 10), Add(1, 8, 3).At(2, 10),
             Get("7", 2).At(11, 12)});
}

TEST(Checker, UnknownOutcomes) {
  // Never, at once, or at any later time.
  ExpectGood({Put("a", 1).At(0, 1), Put("b", 0).Since(2), Get("a", 1).At(10, 11)});
  ExpectGood({Put("a", 1).At(0, 1), Put("b", 0).Since(2), Get("a", 1).At(10, 11),
              Get("b", 7).At(1000, 1001)});
  // Not before, and not twice.
  ExpectBad({Put("a", 1).At(0, 1), Put("b", 0).Since(4), Get("b", 2).At(2, 3)});
  ExpectBad({Put("b", 0).Since(0), Get("b", 2).At(1, 2), Put("c", 3).Existed().At(3, 4),
             Get("b", 4).At(5, 6)});
  ExpectGood({Put("a", 1).At(0, 1), Delete(0).Since(2), GetAbsent().At(3, 4)});
  // A condition that does not hold changes nothing, whenever it is judged.
  ExpectBad({Put("a", 1).At(0, 1), Cas(7, "b", 0).Since(2), Get("b", 8).At(3, 4)});
  ExpectGood({Put("a", 1).At(0, 1), Cas(1, "b", 0).Since(2), Get("b", 8).At(3, 4)});
  ExpectBad({Put("a", 1).At(0, 1), Cas(1, "b", 0).Since(2), Get("b", 8).At(3, 4),
             Cas(1, "c", 9).At(5, 6)});
  ExpectGood({Put("5", 1).At(0, 1), Add(2, 0, 0).Since(2), Add(1, 8, 9).At(3, 4)});
  ExpectBad({Put("5", 1).At(0, 1), Add(2, 0, 0).Since(2), Add(1, 9, 9).At(3, 4)});
}

TEST(Checker, ManyUnknownOutcomesThatWereSeenNeedNoPlace) {
  std::vector<Operation> history;
  for (int64_t i = 1; i <= 1000; ++i) {
    const std::string value = "value " + std::to_string(i);
    history.push_back(Put(value, 0).Since(10 * i));
    history.push_back(Get(value, static_cast<uint64_t>(i)).At(10 * i + 1, 10 * i + 2));
  }
  KeyChecker checker;
  const absl::Status status = checker.Add(history);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(checker.configurations(), 1u);
}

TEST(Checker, TooManyUnderWay) {
  std::vector<Operation> history(KeyChecker::kMaxPending + 1, Put("a", 0).Since(0));
  EXPECT_EQ(KeyChecker().Add(history).code(), absl::StatusCode::kResourceExhausted);
  history.pop_back();
  EXPECT_TRUE(KeyChecker().Add(history).ok());
}

TEST(Checker, Expiry) {
  ExpectGood({Put("a", 1).Due(50).At(0, 1), Get("a", 1).At(60, 61), GetAbsent().At(70, 71),
              Put("b", 2).At(80, 81)});
  // Not before it is due; not back again.
  ExpectBad({Put("a", 1).Due(50).At(0, 1), GetAbsent().At(40, 49)});
  ExpectBad({Put("a", 1).Due(50).At(0, 1), GetAbsent().At(60, 61), Get("a", 1).At(70, 71)});
  // A write in between takes the time along.
  ExpectBad({Put("a", 1).Due(50).At(0, 1), Put("b", 2).Existed().At(2, 3), GetAbsent().At(60, 61)});
  ExpectGood({Put("1", 1).Due(50).At(0, 1), Add(1, 2, 2).At(2, 3), GetAbsent().At(60, 61)});
}

TEST(Checker, TimesThatAreSetAndTakenAway) {
  ExpectGood({Put("a", 1).At(0, 1), Expire(50, 1).At(2, 3), Get("a", 1).At(4, 5),
              GetAbsent().At(60, 61), Expire(90, 0).Fails(Outcome::kNotFound).At(70, 71)});
  // Not before it is due, nor once the time has been taken away.
  ExpectBad({Put("a", 1).At(0, 1), Expire(50, 1).At(2, 3), GetAbsent().At(40, 49)});
  ExpectGood(
      {Put("a", 1).Due(50).At(0, 1), Expire(kNever, 1).Existed().At(2, 3), Get("a", 1).At(60, 61)});
  ExpectBad(
      {Put("a", 1).Due(50).At(0, 1), Expire(kNever, 1).Existed().At(2, 3), GetAbsent().At(60, 61)});
  // It tells whether there was a time, and changes neither value nor version.
  ExpectBad({Put("a", 1).At(0, 1), Expire(50, 1).Existed().At(2, 3)});
  ExpectBad({Put("a", 1).Due(90).At(0, 1), Expire(50, 1).At(2, 3)});
  ExpectBad({Put("a", 1).At(0, 1), Expire(50, 2).At(2, 3)});
  ExpectBad({Put("a", 1).At(0, 1), Expire(50, 0).Fails(Outcome::kNotFound).At(2, 3)});
  ExpectBad({Expire(50, 1).At(0, 1)});
  // Without an answer it may have been made or not.
  ExpectGood({Put("a", 1).At(0, 1), Expire(50, 1).Since(2), GetAbsent().At(60, 61)});
  ExpectGood({Put("a", 1).At(0, 1), Expire(50, 1).Since(2), Get("a", 1).At(60, 61)});
  ExpectBad({Put("a", 1).At(0, 1), Expire(50, 1).Since(2), GetAbsent().At(40, 41)});
}

TEST(Checker, Eviction) {
  const Rules evictions{.evictions = true};
  ExpectGood({Put("a", 1).At(0, 1), GetAbsent().At(2, 3), Put("a", 2).At(4, 5)}, evictions);
  ExpectBad({Put("a", 1).At(0, 1), GetAbsent().At(2, 3), Get("a", 1).At(4, 5)}, evictions);
  ExpectBad({Put("a", 1).At(0, 1), GetAbsent().At(2, 3), Put("a", 1).At(4, 5)}, evictions);
}

TEST(Checker, RefusedChangesSayNothing) {
  ExpectGood(
      {Put("a", 1).At(0, 1), Put("b", 0).Fails(Outcome::kRefused).At(2, 3), Get("a", 1).At(4, 5)});
  ExpectBad(
      {Put("a", 1).At(0, 1), Put("b", 0).Fails(Outcome::kRefused).At(2, 3), Get("b", 2).At(4, 5)});
}

TEST(Checker, KeysAreIndependentAndTheCulpritIsNamed) {
  ExpectGood({Put("a", 9).OfKey(1).At(0, 1), Put("b", 2).OfKey(2).At(2, 3),
              Get("a", 9).OfKey(1).At(4, 5), GetAbsent().OfKey(3).At(6, 7)});
  ExpectBad({Put("b", 2).OfKey(2).At(2, 3), Put("a", 9).OfKey(1).At(0, 1),
             Get("a", 9).OfKey(2).At(4, 5)});
}

TEST(Checker, StretchesContinue) {
  Checker checker;
  EXPECT_TRUE(checker.Add(std::vector<Operation>{Put("a", 1).At(0, 1), Put("u", 0).Since(2)}).ok());
  EXPECT_TRUE(checker.Add(std::vector<Operation>{Get("a", 1).At(10, 11)}).ok());
  EXPECT_TRUE(checker.Add(std::vector<Operation>{Get("u", 2).At(20, 21)}).ok());
  EXPECT_FALSE(checker.Add(std::vector<Operation>{Get("a", 1).At(30, 31)}).ok());
}

}  // namespace
}  // namespace verbena::linearizability
