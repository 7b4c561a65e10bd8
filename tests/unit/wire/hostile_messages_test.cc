// Messages that are cut short, corrupted, or whose fields break the rules of protocol.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/wire/sample_messages.h"

namespace verbena::wire {
namespace {

TEST(HostileMessages, TruncatedAtEveryByte) {
  const auto request = SampleRequest();
  const auto response = SampleResponse();
  ASSERT_EQ(*ReadRequest(request), 4);
  ASSERT_EQ(*ReadResponse(response), 3);
  for (size_t size = 0; size < request.size(); ++size) {
    EXPECT_FALSE(ReadRequest(Exactly(request, size)).ok()) << size;
    if (size < response.size()) {
      EXPECT_FALSE(ReadResponse(Exactly(response, size)).ok()) << size;
    }
  }
}

// Likewise, but with a header that admits to the shorter size: the parts no longer fit.
TEST(HostileMessages, TruncatedAtEveryByteWithTheSizeCorrected) {
  const auto request = SampleRequest();
  const auto response = SampleResponse();
  for (size_t size = sizeof(RequestHeader); size < request.size(); ++size) {
    const auto cut = [size](std::span<const uint8_t> bytes) {
      auto shorter = Exactly(bytes, size);
      const auto claimed = static_cast<uint32_t>(size);
      std::memcpy(shorter.data(), &claimed, sizeof(claimed));
      return shorter;
    };
    EXPECT_FALSE(ReadRequest(cut(request)).ok()) << size;
    if (size < response.size()) {
      EXPECT_FALSE(ReadResponse(cut(response)).ok()) << size;
    }
  }
}

TEST(HostileMessages, EveryByteCorruptedInEveryWay) {
  // Offsets of the first operation's lengths and code; see the baseline.
  ForEachCorruption(SampleRequest(), [](std::span<const uint8_t> bytes, size_t at) {
    const auto count = ReadRequest(bytes);
    if (at < 8) {  // size, kind, reserved, operations
      EXPECT_FALSE(count.ok()) << at;
    }
    if (at >= 57 && at < 64) {  // padding behind "value!"
      EXPECT_FALSE(count.ok()) << at;
    }
    if (at == 27 || (at >= 29 && at < 32)) {  // high bytes of key_len and value_len
      EXPECT_FALSE(count.ok()) << at;
    }
    if (at >= 8 && at < 16) {  // acked and wanted
      EXPECT_TRUE(count.ok()) << at;
    }
    if (at >= 48 && at < 57) {  // key and value
      EXPECT_TRUE(count.ok()) << at;
    }
  });
  ForEachCorruption(SampleResponse(), [](std::span<const uint8_t> bytes, size_t at) {
    const auto count = ReadResponse(bytes);
    if (at < 8) {
      EXPECT_FALSE(count.ok()) << at;
    }
    if (at >= 10 && at < 16) {  // reserved2, reserved3
      EXPECT_FALSE(count.ok()) << at;
    }
    if (at >= 117) {  // padding behind "value"
      EXPECT_FALSE(count.ok()) << at;
    }
  });
}

TEST(HostileMessages, FieldsOutOfRange) {
  const auto with = [](std::vector<uint8_t> bytes, size_t at, std::vector<uint8_t> value) {
    std::memcpy(&bytes[at], value.data(), value.size());
    return bytes;
  };
  const auto request = SampleRequest();
  const auto says = [](const absl::Status& status, const char* field) {
    return status.code() == absl::StatusCode::kInvalidArgument &&
           status.message().find(field) != absl::string_view::npos;
  };
  EXPECT_TRUE(says(ReadRequest(with(request, 4, {2})).status(), "kind is 2"));
  EXPECT_TRUE(says(ReadRequest(with(request, 5, {1})).status(), "reserved is 1"));
  EXPECT_TRUE(says(ReadRequest(with(request, 6, {0, 0})).status(), "operations is 0"));
  EXPECT_TRUE(says(ReadRequest(with(request, 6, {1, 1})).status(), "count is 257"));
  EXPECT_TRUE(says(ReadRequest(with(request, 6, {5, 0})).status(), "wanted 32"));
  EXPECT_TRUE(says(ReadRequest(with(request, 6, {3, 0})).status(), "after the last operation"));
  EXPECT_TRUE(says(ReadRequest(with(request, 24, {0})).status(), "code is 0"));
  EXPECT_TRUE(says(ReadRequest(with(request, 24, {15})).status(), "code is 15"));
  // A version that is expected goes with the flag for it.
  EXPECT_TRUE(
      says(ReadRequest(with(request, 25, {0})).status(), "expected is 1230066625199609624"));
  // Lengths whose sum would wrap in 32 bits.
  EXPECT_TRUE(says(ReadRequest(with(request, 26, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff})).status(),
                   "are left"));
  const auto response = SampleResponse();
  EXPECT_TRUE(says(ReadResponse(with(response, 4, {1})).status(), "kind is 1"));
  EXPECT_TRUE(says(ReadResponse(with(response, 6, {1, 1})).status(), "count is 257"));
  EXPECT_TRUE(says(ReadResponse(with(response, 8, {0, 0})).status(), "grant is 0"));
  EXPECT_TRUE(says(ReadResponse(with(response, 24, {13, 0})).status(), "code is 13"));
  EXPECT_TRUE(says(ReadResponse(with(response, 26, {1, 0})).status(), "flags is 1"));
  EXPECT_TRUE(says(ReadResponse(with(response, 6, {0, 0})).status(), "after the last result"));
}

// Every value of the flags with every code: the rules of protocol.md, told once more.
TEST(HostileMessages, FlagsOfEachCode) {
  const auto request = [](unsigned code, unsigned flags) {
    Buffer buffer(256);
    RequestWriter writer(buffer.bytes());
    OperationHeader header{};
    header.code = static_cast<uint8_t>(code);
    header.flags = static_cast<uint8_t>(flags & ~unsigned{kOpValueByReference});
    EXPECT_TRUE((flags & kOpValueByReference) != 0
                    ? writer.AddByReference(header, "k", 5, {1, 2, 0})
                    : writer.Add(header, "k", "12345678"));
    writer.Finish(0, 0);
    return Exactly(buffer.bytes(), writer.size());
  };
  const std::vector<std::vector<unsigned>> allowed = {
      {},
      {0},
      {0},
      {0},
      {0, 1, 2, 3, 4, 5, 8, 9, 32, 33, 34, 35, 36, 37, 40, 41},
      {0, 8, 16, 24},
      {0},
      {0, 4, 8},
      {0, 4, 8},
      {0},
      {0},
      {0, 64},
      {0},
      {0},
      {0}};
  for (unsigned code = 0; code < 16; ++code) {
    for (unsigned flags = 0; flags < 256; ++flags) {
      const std::vector<unsigned> good =
          code < allowed.size() ? allowed[code] : std::vector<unsigned>{};
      const bool expected = std::find(good.begin(), good.end(), flags) != good.end();
      EXPECT_EQ(ReadRequest(request(code, flags)).ok(), expected) << code << ", " << flags;
    }
  }
  const absl::Status two = ReadRequest(request(4, kOpIfAbsent | kOpIfVersion)).status();
  EXPECT_NE(two.message().find("flags is 10, wanted one condition"), absl::string_view::npos)
      << two;
}

// The same for the argument: where there is no use for one it is 0.
TEST(HostileMessages, ArgumentOfEachCode) {
  const auto read = [](OpCode code, uint8_t flags, uint64_t argument) {
    Buffer buffer(256);
    RequestWriter writer(buffer.bytes());
    OperationHeader header = Header(code, 1);
    header.flags = flags;
    header.argument = argument;
    EXPECT_TRUE(writer.Add(header, "k", "12345678"));
    writer.Finish(0, 0);
    return ReadRequest(buffer.first(writer.size())).status();
  };
  const std::vector<OpCode> with = {OpCode::kAdd, OpCode::kExpire, OpCode::kScan, OpCode::kRelease,
                                    OpCode::kInfo};
  for (uint8_t code = 1; code <= 14; ++code) {
    const bool used = std::find(with.begin(), with.end(), OpCode{code}) != with.end();
    EXPECT_TRUE(read(OpCode{code}, 0, 0).ok()) << int{code};
    for (const uint64_t argument : {uint64_t{1}, uint64_t{1} << 63, UINT64_MAX}) {
      EXPECT_EQ(read(OpCode{code}, 0, argument).ok(), used) << int{code} << ", " << argument;
    }
  }
  EXPECT_TRUE(read(OpCode::kPut, kOpExpires, 5).ok());
  const absl::Status put = read(OpCode::kPut, kOpIfAbsent, 5);
  EXPECT_NE(put.message().find("argument is 5, wanted 0"), absl::string_view::npos) << put;
}

TEST(HostileMessages, ATouchCarriesWholeHashes) {
  for (size_t size = 0; size <= 24; ++size) {
    Buffer buffer(256);
    RequestWriter writer(buffer.bytes());
    ASSERT_TRUE(writer.Add(Header(OpCode::kTouch, 1), "", std::string(size, 'h')));
    writer.Finish(0, 0);
    const absl::Status status = ReadRequest(buffer.first(writer.size())).status();
    EXPECT_EQ(status.ok(), size % 8 == 0) << size << ": " << status;
    if (!status.ok()) {
      EXPECT_NE(status.message().find("touch: value length is"), absl::string_view::npos) << status;
    }
  }
}

}  // namespace
}  // namespace verbena::wire
