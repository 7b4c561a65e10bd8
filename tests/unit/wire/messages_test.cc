#include "common/wire/messages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/wire/sample_messages.h"

namespace verbena::wire {
namespace {

TEST(Messages, RequestBaseline) {
  EXPECT_EQ(ToHex(SampleRequest()), kRequestHex);
  const auto bytes = FromHex(kRequestHex);
  auto reader = RequestReader::Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->header().operations, 4);
  EXPECT_EQ(reader->header().acked, 0x0000515253545556U);
  EXPECT_EQ(reader->header().wanted, 0x6162U);

  auto put = reader->Next();
  ASSERT_TRUE(put.ok() && put->has_value()) << put.status();
  EXPECT_EQ((*put)->header.sequence, 0x0102030405060708U);
  EXPECT_EQ((*put)->header.expected, 0x1112131415161718U);
  EXPECT_EQ((*put)->header.argument, 0x2122232425262728U);
  EXPECT_EQ((*put)->key, "key");
  EXPECT_EQ((*put)->value, "value!");
  EXPECT_FALSE((*put)->reference.has_value());

  auto large = reader->Next();
  ASSERT_TRUE(large.ok() && large->has_value()) << large.status();
  EXPECT_EQ((*large)->key, "large");
  EXPECT_EQ((*large)->value, "");
  ASSERT_TRUE((*large)->reference.has_value());
  EXPECT_EQ((*large)->header.value_len, 0x00100000U);
  EXPECT_EQ((*large)->reference->address, 0x3132333435363738U);
  EXPECT_EQ((*large)->reference->rkey, 0x41424344U);

  auto get = reader->Next();
  ASSERT_TRUE(get.ok() && get->has_value()) << get.status();
  EXPECT_EQ((*get)->header.code, static_cast<uint8_t>(OpCode::kGet));
  EXPECT_EQ((*get)->key, "12345678");

  auto ping = reader->Next();
  ASSERT_TRUE(ping.ok() && ping->has_value()) << ping.status();
  EXPECT_EQ((*ping)->value, "echo");

  auto end = reader->Next();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->has_value());
}

TEST(Messages, KeysAreKnownAhead) {
  const auto bytes = FromHex(kRequestHex);
  auto reader = RequestReader::Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string_view> keys(9);
  ASSERT_EQ(reader->KeysAhead(keys), 3U);
  EXPECT_EQ(keys[0], "key");
  EXPECT_EQ(keys[1], "large");  // its value is given by reference
  EXPECT_EQ(keys[2], "12345678");
  EXPECT_EQ(reader->KeysAhead(std::span(keys).first(2)), 2U);
  ASSERT_TRUE(reader->Next().ok());
  ASSERT_EQ(reader->KeysAhead(keys), 2U);
  EXPECT_EQ(keys[0], "large");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->Next().ok());
  EXPECT_EQ(reader->KeysAhead(keys), 0U);
}

// Lengths that lead out of the message end the look ahead where the operations end for Next, too.
TEST(Messages, KeysAheadStayWithinTheMessage) {
  const auto good = FromHex(kRequestHex);
  for (size_t at = sizeof(RequestHeader); at < good.size(); ++at) {
    auto bytes = good;
    bytes[at] = 0xff;
    auto reader = RequestReader::Open(bytes);
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::vector<std::string_view> keys(9);
    const size_t count = reader->KeysAhead(keys);
    ASSERT_LE(count, 4U);
    for (size_t i = 0; i < count; ++i) {
      const auto* const begin = reinterpret_cast<const uint8_t*>(keys[i].data());
      ASSERT_GE(begin, bytes.data()) << at;
      ASSERT_LE(begin + keys[i].size(), bytes.data() + bytes.size()) << at;
    }
  }
}

TEST(Messages, ResponseBaseline) {
  EXPECT_EQ(ToHex(SampleResponse()), kResponseHex);
  const auto bytes = FromHex(kResponseHex);
  auto reader = ResponseReader::Open(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->header().grant, 0x0203);
  auto ok = reader->Next();
  ASSERT_TRUE(ok.ok() && ok->has_value());
  EXPECT_EQ((*ok)->header.version, 0x1112131415161718U);
  EXPECT_EQ((*ok)->header.argument, 1U);
  auto missing = reader->Next();
  ASSERT_TRUE(missing.ok() && missing->has_value());
  EXPECT_EQ((*missing)->header.code, static_cast<uint16_t>(ResultCode::kNotFound));
  auto found = reader->Next();
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->value, "value");
  auto end = reader->Next();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
}

// Operations are taken out, moved and pointed elsewhere; what is left is read like any request.
TEST(Messages, RequestIsChangedAfterwards) {
  alignas(8) std::array<uint8_t, 512> first{};
  alignas(8) std::array<uint8_t, 512> second{};
  RequestWriter writer(first);
  OperationHeader header{};
  header.code = static_cast<uint8_t>(OpCode::kPut);
  header.sequence = 1;
  ASSERT_TRUE(writer.Add(header, "a", "one"));
  header.sequence = 2;
  ASSERT_TRUE(writer.Add(header, "bc", "second value"));
  header.sequence = 3;
  ASSERT_TRUE(
      writer.AddByReference(header, "large", 9000, {.address = 1, .rkey = 2, .reserved = 0}));
  writer.Finish(0, 0);

  const size_t at_second = writer.EndOf(RequestWriter::kFirst);
  EXPECT_EQ(writer.HeaderAt(at_second).sequence, 2u);
  writer.Remove(at_second);
  EXPECT_EQ(writer.operations(), 2);
  EXPECT_EQ(writer.HeaderAt(at_second).sequence, 3u);
  EXPECT_EQ(writer.EndOf(at_second), writer.size());
  writer.MoveTo(second);
  first.fill(0xee);
  writer.SetReference(at_second, {.address = 77, .rkey = 88, .reserved = 0});
  writer.Finish(0, 5);

  auto reader = RequestReader::Open({second.data(), writer.size()});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->header().wanted, 5);
  auto operation = reader->Next();
  ASSERT_TRUE(operation.ok() && operation->has_value()) << operation.status();
  EXPECT_EQ((*operation)->header.sequence, 1u);
  EXPECT_EQ((*operation)->value, "one");
  operation = reader->Next();
  ASSERT_TRUE(operation.ok() && operation->has_value()) << operation.status();
  EXPECT_EQ((*operation)->key, "large");
  EXPECT_EQ((*operation)->header.value_len, 9000u);
  EXPECT_EQ((*operation)->reference->address, 77u);
  EXPECT_EQ((*operation)->reference->rkey, 88u);
  operation = reader->Next();
  EXPECT_TRUE(operation.ok() && !operation->has_value());
  writer.Remove(at_second);
  writer.Remove(RequestWriter::kFirst);
  EXPECT_EQ(writer.operations(), 0);
  EXPECT_EQ(writer.size(), RequestWriter::kFirst);
}

TEST(Messages, FixedValueBaselines) {
  EXPECT_EQ(ToHex(AsValue(Hello{0x01020304, 0x11121314, 0x21222324, 0})),
            "04030201"
            "14131211"
            "24232221"
            "00000000");
  const Welcome welcome{0x0102030405060708,
                        0x1112131415161718,
                        0x2122232425262728,
                        0x3132333435363738,
                        0x41424344,
                        0x51525354,
                        0x61626364,
                        0x01727374,
                        0x8182,
                        0x9192,
                        0,
                        0x01a4,
                        0xb1b2b3b4};
  EXPECT_EQ(ToHex(AsValue(welcome)),
            "0807060504030201"
            "1817161514131211"
            "2827262524232221"
            "3837363534333231"
            "44434241"
            "54535251"
            "64636261"
            "74737201"
            "8281"
            "9291"
            "00000000"
            "a4010000"
            "b4b3b2b1");
  EXPECT_EQ(ToHex(AsValue(Location{0x0102030405060708, 0x1112131415161718, 0x2122232425262728,
                                   0x3132333435363738, 0x41424344, 0x5152, 0})),
            "0807060504030201"
            "1817161514131211"
            "2827262524232221"
            "3837363534333231"
            "44434241"
            "5251"
            "0000");
  const auto decoded = DecodeWelcome(AsValue(welcome));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(ToHex(AsValue(*decoded)), ToHex(AsValue(welcome)));
  EXPECT_EQ(DecodeHello(AsValue(Hello{4096, 16, 64, 0}))->receive_size, 4096U);
  EXPECT_EQ(DecodeLocation(AsValue(Location{5, 6, 7, 0, 0, 0, 0}))->version, 6U);
}

TEST(Messages, FixedValuesOutOfRange) {
  const auto names = [](const absl::Status& status, const char* field) {
    return status.code() == absl::StatusCode::kInvalidArgument &&
           status.message().find(field) != absl::string_view::npos;
  };
  EXPECT_TRUE(names(DecodeHello(AsValue(Hello{255, 1, 0, 0})).status(), "receive_size"));
  EXPECT_TRUE(names(DecodeHello(AsValue(Hello{256, 0, 0, 0})).status(), "receive_count"));
  EXPECT_TRUE(names(DecodeHello(AsValue(Hello{256, 1, 0, 1})).status(), "reserved"));
  const Welcome good{4096, 1 << 20, 1, 1 << 20, 7, 1024, 8192, 4096, 16, 1, 0, 256, 9};
  ASSERT_TRUE(DecodeWelcome(AsValue(good)).ok());
  const auto with = [&](auto member, auto value) {
    Welcome bad = good;
    bad.*member = value;
    return DecodeWelcome(AsValue(bad)).status();
  };
  EXPECT_TRUE(names(with(&Welcome::region_size, uint64_t{0}), "region_size"));
  EXPECT_TRUE(names(with(&Welcome::region_size, UINT64_MAX), "region_size"));
  EXPECT_TRUE(names(with(&Welcome::max_key_size, 0U), "max_key_size"));
  EXPECT_TRUE(names(with(&Welcome::max_message, 255U), "max_message"));
  EXPECT_TRUE(names(with(&Welcome::eager_limit, 8193U), "eager_limit"));
  EXPECT_TRUE(names(with(&Welcome::window, uint16_t{0}), "window"));
  EXPECT_TRUE(names(with(&Welcome::operations, 255U), "operations"));
  EXPECT_TRUE(names(with(&Welcome::operations, 2049U), "operations"));
  EXPECT_TRUE(with(&Welcome::operations, 256U).ok());
  EXPECT_TRUE(with(&Welcome::operations, 2048U).ok());
  EXPECT_TRUE(names(with(&Welcome::incarnation, 0U), "incarnation"));
  EXPECT_TRUE(names(with(&Welcome::operations, 0U), "incarnation"));
  Welcome without = good;
  without.operations = without.incarnation = 0;
  EXPECT_TRUE(DecodeWelcome(AsValue(without)).ok());
  EXPECT_TRUE(names(DecodeLocation(AsValue(Location{0, 1, 1, 1, 1, 1, 0})).status(), "slot"));
  EXPECT_TRUE(names(DecodeLocation(AsValue(Location{1, 1, 0, 1, 1, 1, 0})).status(), "check"));
  EXPECT_TRUE(names(DecodeLocation(AsValue(Location{1, 1, 1, 1, 1, 1, 1})).status(), "reserved"));
  const std::string_view value = AsValue(good);
  for (size_t size = 0; size < value.size(); ++size) {
    const std::string cut(value.substr(0, size));
    EXPECT_FALSE(DecodeWelcome(cut).ok()) << size;
    if (size != sizeof(Hello)) {
      EXPECT_FALSE(DecodeHello(cut).ok()) << size;
    }
    if (size != sizeof(Location)) {
      EXPECT_FALSE(DecodeLocation(cut).ok()) << size;
    }
  }
}

TEST(Messages, ScanEntries) {
  Buffer buffer(64);
  size_t used = 0;
  EXPECT_TRUE(AppendFoundKey({"key", 0x1234}, buffer.bytes(), &used));
  EXPECT_EQ(used, 24U);
  EXPECT_FALSE(AppendFoundKey({"a key that does not fit any more", 1}, buffer.bytes(), &used));
  EXPECT_TRUE(AppendFoundKey({"12345678", 5}, buffer.bytes(), &used));
  EXPECT_EQ(used, 48U);
  const std::string bytes(reinterpret_cast<const char*>(buffer.bytes().data()), used);
  std::string_view rest = bytes;
  EXPECT_EQ((*TakeFoundKey(&rest))->key, "key");
  const auto second = *TakeFoundKey(&rest);
  EXPECT_EQ(second->key, "12345678");
  EXPECT_EQ(second->slot, 5U);
  EXPECT_FALSE(TakeFoundKey(&rest)->has_value());
  // Cut anywhere, and with each byte of the first header changed.
  for (size_t size = 1; size < 24; ++size) {
    std::string_view cut = std::string_view(bytes).substr(0, size);
    EXPECT_FALSE(TakeFoundKey(&cut).ok()) << size;
  }
  for (size_t at = 9; at < sizeof(ScanEntry); ++at) {
    std::string changed = bytes;
    changed[at] = 1;
    std::string_view view = changed;
    EXPECT_FALSE(TakeFoundKey(&view).ok()) << at;
  }
  std::string no_slot = bytes;
  no_slot[0] = no_slot[1] = 0;
  std::string_view view = no_slot;
  EXPECT_FALSE(TakeFoundKey(&view).ok());
}

TEST(Messages, EmptyResponseCarriesAGrantOnly) {
  Buffer buffer(sizeof(ResponseHeader));
  ResponseWriter writer(buffer.bytes());
  EXPECT_EQ(writer.room(), 0U);
  EXPECT_FALSE(writer.Add(ResultHeader{}, ""));
  writer.Finish(7);
  EXPECT_EQ(writer.size(), 16U);
  EXPECT_EQ(*ReadResponse(buffer.first(16)), 0);
}

TEST(Messages, WritersStopAtTheBuffersEnd) {
  for (size_t size = 16; size < 200; ++size) {
    Buffer buffer(size);
    RequestWriter request(buffer.bytes());
    int added = 0;
    while (request.Add(Header(OpCode::kPut, 1), "k", "12345678")) ++added;
    EXPECT_EQ(added, static_cast<int>((size - 16) / OperationSize(1, 8))) << size;
    EXPECT_EQ(request.operations(), added);
    EXPECT_LE(request.size(), size);
    request.Finish(0, 0);
    if (added > 0) {
      EXPECT_EQ(*ReadRequest(buffer.first(request.size())), added);
    }

    ResponseWriter response(buffer.bytes());
    const size_t room = response.room();
    EXPECT_EQ(response.AddInPlace(ResultHeader{}, static_cast<uint32_t>(room + 1)), nullptr);
    const bool fits = size >= sizeof(ResponseHeader) + sizeof(ResultHeader);
    EXPECT_EQ(response.AddInPlace(ResultHeader{}, static_cast<uint32_t>(room)) != nullptr, fits);
  }
}

TEST(Messages, AtMost256Operations) {
  Buffer buffer(64 * 1024);
  RequestWriter request(buffer.bytes());
  ResponseWriter response(buffer.bytes());
  for (size_t i = 0; i < kMaxOperations; ++i) {
    ASSERT_TRUE(request.Add(Header(OpCode::kGet, i), "k", ""));
  }
  EXPECT_FALSE(request.Add(Header(OpCode::kGet, 1), "k", ""));
  request.Finish(0, 0);
  EXPECT_EQ(*ReadRequest(buffer.first(request.size())), 256);
  for (size_t i = 0; i < kMaxOperations; ++i) ASSERT_TRUE(response.Add(ResultHeader{}, ""));
  EXPECT_FALSE(response.Add(ResultHeader{}, ""));
  EXPECT_EQ(response.room(), 0U);
}

TEST(Messages, KeysOver64KiBAreNotWritten) {
  Buffer buffer(256 * 1024);
  RequestWriter writer(buffer.bytes());
  EXPECT_FALSE(writer.Add(Header(OpCode::kGet, 1), std::string(65536, 'k'), ""));
  EXPECT_EQ(writer.size(), sizeof(RequestHeader));
  EXPECT_TRUE(writer.Add(Header(OpCode::kGet, 1), std::string(65535, 'k'), ""));
}

TEST(Messages, WriterSetsTheReferenceFlagItself) {
  Buffer buffer(256);
  RequestWriter writer(buffer.bytes());
  OperationHeader header = Header(OpCode::kPut, 1);
  header.flags = kOpValueByReference;
  ASSERT_TRUE(writer.Add(header, "k", "v"));
  header.flags = 0;
  ASSERT_TRUE(writer.AddByReference(header, "k", 5, {1, 2, 0}));
  writer.Finish(0, 0);
  auto reader = RequestReader::Open(buffer.first(writer.size()));
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE((*reader->Next())->reference.has_value());
  EXPECT_TRUE((*reader->Next())->reference.has_value());
}

TEST(Messages, AckedAndWantedKeepToTheirBits) {
  Buffer buffer(256);
  RequestWriter writer(buffer.bytes());
  ASSERT_TRUE(writer.Add(Header(OpCode::kPing, 1), "", ""));
  writer.Finish(UINT64_MAX, 0);
  auto reader = RequestReader::Open(buffer.first(writer.size()));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->header().acked, (uint64_t{1} << 48) - 1);
  EXPECT_EQ(reader->header().wanted, 0U);
}

TEST(Messages, RandomRoundTrips) {
  std::mt19937 random(20240611);
  const auto text = [&](size_t most) {
    std::string bytes(random() % (most + 1), '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  };
  for (int round = 0; round < 300; ++round) {
    Buffer buffer(4096);
    RequestWriter writer(buffer.bytes());
    std::vector<std::pair<std::string, std::string>> sent;
    while (sent.size() < 20) {
      auto key = text(40);
      auto value = text(500);
      if (!writer.Add(Header(OpCode::kPut, sent.size()), key, value)) break;
      sent.emplace_back(std::move(key), std::move(value));
    }
    writer.Finish(static_cast<uint64_t>(round), 0);
    const auto bytes = Exactly(buffer.bytes(), writer.size());
    auto reader = RequestReader::Open(bytes);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (size_t i = 0; i < sent.size(); ++i) {
      auto operation = reader->Next();
      ASSERT_TRUE(operation.ok() && operation->has_value()) << operation.status();
      EXPECT_EQ((*operation)->header.sequence, i);
      EXPECT_EQ((*operation)->key, sent[i].first);
      EXPECT_EQ((*operation)->value, sent[i].second);
    }
    EXPECT_FALSE((*reader->Next()).has_value());
  }
}

TEST(Messages, ResultCodesHaveNames) {
  for (uint16_t code = 0; code <= 12; ++code) {
    EXPECT_STRNE(ResultCodeName(static_cast<ResultCode>(code)), "unknown result");
  }
  EXPECT_STREQ(ResultCodeName(static_cast<ResultCode>(13)), "unknown result");
}

}  // namespace
}  // namespace verbena::wire
