#include "bench/load/trace_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/unit/bench/load/trace_testing.h"

namespace verbena::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Taken = TraceReader::Taken;

std::unique_ptr<TraceReader> OpenTrace(TraceOptions options) {
  auto reader = TraceReader::Open(std::move(options));
  EXPECT_TRUE(reader.ok()) << reader.status();
  return reader.ok() ? *std::move(reader) : nullptr;
}

std::vector<TraceRequest> TakeAll(TraceReader& reader) {
  std::vector<TraceRequest> all;
  TraceBatch batch;
  for (;;) {
    const Taken taken = reader.Take(&batch);
    if (taken == Taken::kOver) return all;
    if (taken == Taken::kNothingYet) reader.Await(std::chrono::seconds(10));
    for (; !batch.empty(); batch.Pop()) all.push_back(batch.front());
  }
}

struct WholeTrace {
  std::vector<std::string> keys;
  std::vector<int64_t> due;
  TraceFacts facts;
};

WholeTrace ReadTrace(std::string_view text, TraceOptions options = {}) {
  const TraceFile file(text);
  options.path = file.path();
  const auto reader = OpenTrace(std::move(options));
  WholeTrace whole;
  for (const TraceRequest& request : TakeAll(*reader)) {
    whole.keys.push_back(request.key);
    whole.due.push_back(request.due_nanos);
  }
  whole.facts = reader->facts();
  return whole;
}

std::string OpenError(const std::string& path) {
  const auto reader = TraceReader::Open({.path = path});
  EXPECT_TRUE(absl::IsInvalidArgument(reader.status())) << reader.status();
  EXPECT_THAT(reader.status().message(), HasSubstr("--trace=" + path));
  return std::string(reader.status().message());
}

TEST(TraceReader, ReadsLinesOfAllKinds) {
  const WholeTrace whole = ReadTrace(
      "\xef\xbb\xbf"
      "0,a,1,2,3,get,0\r\n"
      "\n\r\n"
      "1,b,1,2,3,set,9\n"
      "2,c,1,2,3,get,0");
  EXPECT_THAT(whole.keys, ElementsAre("a", "b", "c"));
  EXPECT_EQ(whole.facts.lines, 3u);
  EXPECT_EQ(whole.facts.requests, 3u);
  EXPECT_EQ(whole.facts.bad_lines, 0u);
}

TEST(TraceReader, AnEmptyTraceIsOver) {
  const WholeTrace whole = ReadTrace("");
  EXPECT_THAT(whole.keys, IsEmpty());
  EXPECT_EQ(whole.facts.lines, 0u);
}

TEST(TraceReader, BadLinesAreToldAndPassedOver) {
  const WholeTrace whole =
      ReadTrace("timestamp,key,key size,value size,client id,op,TTL\n\n0,a,1,2,3,get,0\nx\n");
  EXPECT_THAT(whole.keys, ElementsAre("a"));
  EXPECT_EQ(whole.facts.lines, 3u);
  EXPECT_EQ(whole.facts.bad_lines, 2u);
  ASSERT_EQ(whole.facts.reasons.size(), 2u);
  EXPECT_THAT(whole.facts.reasons[0], HasSubstr("line 1: timestamp 'timestamp'"));
  EXPECT_EQ(whole.facts.reasons[1], "line 4: 1 field instead of 7");
  EXPECT_FALSE(whole.facts.stopped);
}

TEST(TraceReader, StrictEndsAtTheFirstBadLine) {
  const WholeTrace whole =
      ReadTrace("0,a,1,2,3,get,0\nbad\n0,b,1,2,3,get,0\nbad\n", {.path = {}, .strict = true});
  EXPECT_THAT(whole.keys, ElementsAre("a"));
  EXPECT_TRUE(whole.facts.stopped);
  EXPECT_EQ(whole.facts.bad_lines, 1u);
  EXPECT_THAT(whole.facts.reasons, ElementsAre("line 2: 1 field instead of 7"));
}

TEST(TraceReader, FewReasonsAndLongLinesAreKept) {
  // The line goes over several reads.
  std::string text = std::string(1'000'000, 'x') + "\n";
  for (int i = 0; i < 50; ++i) text += "bad\n";
  text += "0,a,1,2,3,get,0\n" + std::string(200'000, 'y');
  const WholeTrace whole = ReadTrace(text);
  EXPECT_THAT(whole.keys, ElementsAre("a"));
  EXPECT_EQ(whole.facts.lines, 53u);
  EXPECT_EQ(whole.facts.bad_lines, 52u);
  ASSERT_EQ(whole.facts.reasons.size(), TraceFacts::kReasons);
  EXPECT_EQ(whole.facts.reasons[0], "line 1: it is longer than 4096 characters");
}

TEST(TraceReader, DealsAllOfALongTraceInOrder) {
  std::string text;
  constexpr size_t kRequests = 20'000;
  for (size_t i = 0; i < kRequests; ++i) absl::StrAppend(&text, i, ",key", i, ",12,2,3,get,0\n");
  const WholeTrace whole = ReadTrace(text, {.path = {}, .speed = 1});
  ASSERT_EQ(whole.keys.size(), kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    ASSERT_THAT(whole.keys[i], ::testing::EndsWith(absl::StrCat("key", i)));
    ASSERT_EQ(whole.keys[i].size(), 12u);
    ASSERT_EQ(whole.due[i], int64_t{1'000'000'000} * static_cast<int64_t>(i));
  }
}

TEST(TraceReader, TheLimitIsOfRequests) {
  const WholeTrace whole = ReadTrace("0,a,1,2,3,get,0\nbad\n0,b,1,2,3,get,0\n0,c,1,2,3,get,0\n",
                                     {.path = {}, .limit = 2});
  EXPECT_THAT(whole.keys, ElementsAre("a", "b"));
  EXPECT_EQ(whole.facts.bad_lines, 1u);
}

TEST(TraceReader, TimesAreFromTheFirstAndKeepTheOrder) {
  const std::string text =
      "1600000000,a,1,2,3,get,0\n1600000002.5,b,1,2,3,get,0\n1599999999,c,1,2,3,get,0\n"
      "1600000003,d,1,2,3,get,0\n9999999999999,e,1,2,3,get,0\n5,f,1,2,3,get,0\n";
  EXPECT_THAT(ReadTrace(text).due, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(ReadTrace(text, {.path = {}, .speed = 2}).due,
              ElementsAre(0, 1'250'000'000, 1'250'000'000, 1'500'000'000, 1'000'000'000'000'000'000,
                          1'000'000'000'000'000'000));
}

TEST(TraceReader, FilesThatCannotBeReadAreTold) {
  EXPECT_THAT(OpenError("/nonexistent/trace.csv"), HasSubstr("No such file"));
  EXPECT_THAT(OpenError(::testing::TempDir()), HasSubstr("folder"));
  const TraceFile zstd("\x28\xb5\x2f\xfd....");
  EXPECT_THAT(OpenError(zstd.path()), HasSubstr("zstd -dc"));
  const TraceFile gzip("\x1f\x8b\x08....");
  EXPECT_THAT(OpenError(gzip.path()), HasSubstr("gzip -dc"));
}

// A file of /proc that opens and then fails.
TEST(TraceReader, AReadErrorEndsTheTraceAndIsTold) {
  const auto reader = OpenTrace({.path = "/proc/self/mem"});
  ASSERT_NE(reader, nullptr);
  EXPECT_THAT(TakeAll(*reader), IsEmpty());
  EXPECT_THAT(reader->facts().unreadable, HasSubstr("line 1: Input/output error"));
}

// Neither taking nor closing waits for a pipe.
TEST(TraceReader, APipeWithNothingInItHoldsUpNobody) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/trace_pipe_", getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  auto reader = OpenTrace({.path = path});
  ASSERT_NE(reader, nullptr);
  TraceBatch batch;
  EXPECT_EQ(reader->Take(&batch), Taken::kNothingYet);
  EXPECT_TRUE(reader->starved());
  const int writer = open(path.c_str(), O_WRONLY);
  ASSERT_GE(writer, 0);
  // Part of a line gives nothing; what is whole is there at once, and no batch must be full.
  constexpr std::string_view kText = "0,a,1,2,3,get,0\n0,b,1,";
  ASSERT_EQ(write(writer, kText.data(), kText.size()), static_cast<ssize_t>(kText.size()));
  reader->Await(std::chrono::seconds(30));
  ASSERT_EQ(reader->Take(&batch), Taken::kSome);
  EXPECT_EQ(batch.front().key, "a");
  batch.Pop();
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(reader->Take(&batch), Taken::kNothingYet);
  const int64_t begin = MonotonicNanos();
  reader.reset();
  EXPECT_LT(MonotonicNanos() - begin, 10'000'000'000);
  close(writer);
  std::remove(path.c_str());
}

// What nobody takes is not read to its end either.
TEST(TraceReader, ClosesInTheMiddle) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "0,a,1,2,3,get,0\n";
  const TraceFile file(text);
  const auto reader = OpenTrace({.path = file.path()});
  reader->Await(std::chrono::seconds(30));
  TraceBatch batch;
  EXPECT_EQ(reader->Take(&batch), Taken::kSome);
  EXPECT_LT(reader->facts().lines, 20'000u);
}

}  // namespace
}  // namespace verbena::bench
