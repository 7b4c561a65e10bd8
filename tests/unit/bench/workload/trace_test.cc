#include "bench/workload/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

TraceRequest Parsed(const std::string& line) {
  TraceRequest request;
  const absl::Status status = ParseTraceLine(line, &request);
  EXPECT_TRUE(status.ok()) << line << ": " << status;
  return request;
}

std::string Reason(const std::string& line) {
  TraceRequest request;
  const absl::Status status = ParseTraceLine(line, &request);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << line << ": " << status;
  return std::string(status.message());
}

TEST(Trace, ReadsALine) {
  const TraceRequest request = Parsed("12.5,abc-def,9,1030,17,set,3600");
  EXPECT_EQ(request.seconds, 12.5);
  EXPECT_EQ(request.key, "00abc-def");
  EXPECT_EQ(request.value_size, 1030u);
  EXPECT_EQ(request.op, TraceOp::kStore);
  EXPECT_EQ(request.ttl_seconds, 3600u);
}

TEST(Trace, KnowsTheOperations) {
  const auto op = [](const std::string& name) { return Parsed("0,k,1,2,3," + name + ",0").op; };
  EXPECT_EQ(op("get"), TraceOp::kRead);
  EXPECT_EQ(op("gets"), TraceOp::kRead);
  EXPECT_EQ(op("set"), TraceOp::kStore);
  EXPECT_EQ(op("add"), TraceOp::kAdd);
  EXPECT_EQ(op("replace"), TraceOp::kReplace);
  EXPECT_EQ(op("cas"), TraceOp::kReplace);
  EXPECT_EQ(op("append"), TraceOp::kExtend);
  EXPECT_EQ(op("prepend"), TraceOp::kExtend);
  EXPECT_EQ(op("incr"), TraceOp::kCount);
  EXPECT_EQ(op("decr"), TraceOp::kCount);
  EXPECT_EQ(op("delete"), TraceOp::kDelete);
}

TEST(Trace, KeysThatAreLongerThanTheirSizeStayWhole) {
  EXPECT_EQ(Parsed("0,abcdef,3,0,0,get,0").key, "abcdef");
  EXPECT_EQ(Parsed("0,k,1024,0,0,get,0").key, std::string(1023, '0') + "k");
}

TEST(Trace, TakesQuotedFields) {
  EXPECT_EQ(Parsed("0,\"a,b\",3,0,0,get,0").key, "a,b");
  EXPECT_EQ(Parsed("\"0\",\"a\"\"b\",\"3\",\"0\",\"0\",\"get\",\"0\"").key, "a\"b");
  EXPECT_EQ(Parsed("0,a\"b,3,0,0,get,0").key, "a\"b");  // no quote opens in the middle
  EXPECT_THAT(Reason("0,\"a,3,0,0,get,0"), HasSubstr("a quote has no end"));
  EXPECT_THAT(Reason("0,\"a\"b,3,0,0,get,0"), HasSubstr("follows a quoted field"));
}

TEST(Trace, SaysWhatIsWrong) {
  EXPECT_THAT(Reason(""), HasSubstr("1 field instead of 7"));
  EXPECT_THAT(Reason("0,k,1,2,3,get"), HasSubstr("6 fields instead of 7"));
  EXPECT_THAT(Reason("0,a,b,1,2,3,get,0"), HasSubstr("8 fields instead of 7"));
  EXPECT_THAT(Reason("0,k,1,2,3,get,0,"), HasSubstr("8 fields instead of 7"));
  for (const char* timestamp : {"", "x", "-1", "nan", "inf", "1e300", "1s"}) {
    EXPECT_THAT(Reason(std::string(timestamp) + ",k,1,2,3,get,0"), HasSubstr("timestamp '"));
  }
  EXPECT_THAT(Reason("0,,1,2,3,get,0"), HasSubstr("key ''"));
  EXPECT_THAT(Reason("0," + std::string(1025, 'k') + ",1,2,3,get,0"), HasSubstr("1 to 1024"));
  for (const char* size : {"", "x", "-1", "1.5", "1025", "18446744073709551616"}) {
    EXPECT_THAT(Reason(std::string("0,k,") + size + ",2,3,get,0"), HasSubstr("key size '"));
  }
  for (const char* size : {"", "x", "-1", "1073741825", "99999999999999999999"}) {
    EXPECT_THAT(Reason(std::string("0,k,1,") + size + ",3,get,0"), HasSubstr("value size '"));
  }
  for (const char* op : {"", "GET", "flush", "getset"}) {
    EXPECT_THAT(Reason(std::string("0,k,1,2,3,") + op + ",0"), HasSubstr("operation '"));
  }
  for (const char* ttl : {"", "x", "-1", "3153600001", "4294967296"}) {
    EXPECT_THAT(Reason(std::string("0,k,1,2,3,set,") + ttl), HasSubstr("TTL '"));
  }
  EXPECT_EQ(Parsed("0,k,1,2,3,set,3153600000").ttl_seconds, 3153600000u);
}

TEST(Trace, LongAndUnprintableLinesAreToldShort) {
  EXPECT_THAT(Reason(std::string(kMaxTraceLine + 1, ',')), HasSubstr("longer than 4096"));
  EXPECT_THAT(Reason("\x1b[2J,k,1,2,3,get,0"), HasSubstr("timestamp '?[2J'"));
  const std::string reason = Reason(std::string(3000, 'x') + ",k,1,2,3,get,0");
  EXPECT_THAT(reason, HasSubstr("xxx...'"));
  EXPECT_LT(reason.size(), 100u);
}

}  // namespace
}  // namespace verbena::bench
