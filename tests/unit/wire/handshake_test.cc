#include "common/wire/handshake.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/wire/bytes.h"

namespace verbena::wire {
namespace {

Bytes16 Counting(uint8_t first) {
  Bytes16 bytes;
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

ConnectData SampleConnect() {
  ConnectData data;
  data.layout = 0x0102;
  data.tenant = 0x1112131415161718;
  data.session = 0x2122232425262728;
  data.nonce = Counting(0x30);
  data.proof = Counting(0x50);
  return data;
}

constexpr char kConnectHex[] =
    "5652424e"
    "0400"
    "0201"
    "1817161514131211"
    "2827262524232221"
    "303132333435363738393a3b3c3d3e3f"
    "505152535455565758595a5b5c5d5e5f";

AcceptData SampleAccept() {
  AcceptData data;
  data.layout = 0x0102;
  data.proof = Counting(0x70);
  return data;
}

constexpr char kAcceptHex[] =
    "5652424e"
    "0400"
    "0201"
    "707172737475767778797a7b7c7d7e7f"
    "0000000000000000";

RejectData SampleReject() {
  RejectData data;
  data.layout = 0x0102;
  data.reason = RejectReason::kConnectionLimit;
  data.challenge = Counting(0x90);
  data.text = "at most 2 connections";
  return data;
}

std::string RejectHex() {
  return "5652424e"
         "0400"
         "0201"
         "0600"
         "1500"
         "00000000"
         "909192939495969798999a9b9c9d9e9f" +
         ToHex(std::string("at most 2 connections")) + std::string(2 * (116 - 21), '0');
}

TEST(Handshake, ConnectBaseline) {
  EXPECT_EQ(ToHex(Encode(SampleConnect())), kConnectHex);
  const auto data = DecodeConnect(FromHex(kConnectHex));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->protocol, 4);
  EXPECT_EQ(data->layout, 0x0102);
  EXPECT_EQ(data->tenant, SampleConnect().tenant);
  EXPECT_EQ(data->session, SampleConnect().session);
  EXPECT_EQ(data->nonce, SampleConnect().nonce);
  EXPECT_EQ(data->proof, SampleConnect().proof);
}

TEST(Handshake, AcceptBaseline) {
  EXPECT_EQ(ToHex(Encode(SampleAccept())), kAcceptHex);
  const auto data = DecodeAccept(FromHex(kAcceptHex));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->protocol, 4);
  EXPECT_EQ(data->layout, 0x0102);
  EXPECT_EQ(data->proof, SampleAccept().proof);
}

TEST(Handshake, RejectBaseline) {
  EXPECT_EQ(ToHex(Encode(SampleReject())), RejectHex());
  const auto data = DecodeReject(FromHex(RejectHex()));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->protocol, 4);
  EXPECT_EQ(data->layout, 0x0102);
  EXPECT_EQ(data->reason, RejectReason::kConnectionLimit);
  EXPECT_EQ(data->challenge, SampleReject().challenge);
  EXPECT_EQ(data->text, "at most 2 connections");
}

TEST(Handshake, SurplusIsIgnored) {
  for (const size_t surplus : {size_t{1}, size_t{8}, size_t{140}}) {
    auto connect = FromHex(kConnectHex);
    connect.resize(connect.size() + surplus, 0xee);
    EXPECT_TRUE(DecodeConnect(connect).ok());
    auto accept = FromHex(kAcceptHex);
    accept.resize(accept.size() + surplus, 0xee);
    EXPECT_TRUE(DecodeAccept(accept).ok());
    auto reject = FromHex(RejectHex());
    reject.resize(reject.size() + surplus, 0xee);
    EXPECT_TRUE(DecodeReject(reject).ok());
  }
}

TEST(Handshake, TruncatedAtEveryByte) {
  const auto connect = FromHex(kConnectHex);
  const auto accept = FromHex(kAcceptHex);
  const auto reject = FromHex(RejectHex());
  for (size_t size = 0; size < reject.size(); ++size) {
    // Copies of exactly that size, so that a sanitizer sees every byte too far.
    if (size < connect.size()) {
      EXPECT_FALSE(DecodeConnect(Exactly(connect, size)).ok()) << size;
    }
    if (size < accept.size()) {
      EXPECT_FALSE(DecodeAccept(Exactly(accept, size)).ok()) << size;
    }
    const auto data = DecodeReject(Exactly(reject, size));
    EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
  const auto empty = DecodeConnect({});
  EXPECT_NE(empty.status().message().find("0 bytes"), absl::string_view::npos) << empty.status();
}

TEST(Handshake, EveryByteCorruptedInEveryWay) {
  ForEachCorruption(FromHex(kConnectHex), [](std::span<const uint8_t> bytes, size_t at) {
    const auto data = DecodeConnect(bytes);
    if (at < 4) {  // magic
      EXPECT_FALSE(data.ok());
    }
    if (at >= 8) {  // values of all kinds are fine
      EXPECT_TRUE(data.ok());
    }
  });
  ForEachCorruption(FromHex(kAcceptHex), [](std::span<const uint8_t> bytes, size_t at) {
    const auto data = DecodeAccept(bytes);
    if (at < 4 || at >= 24) {
      EXPECT_FALSE(data.ok());
    }
  });
  ForEachCorruption(FromHex(RejectHex()), [](std::span<const uint8_t> bytes, size_t at) {
    const auto data = DecodeReject(bytes);
    if (at < 4 || (at >= 12 && at < 16)) {
      EXPECT_FALSE(data.ok());
    }
    if (data.ok()) {
      EXPECT_LE(data->text.size(), RejectData::kMaxText);
    }
  });
}

TEST(Handshake, FieldsOutOfRange) {
  ConnectData connect = SampleConnect();
  connect.session = 0;
  const auto no_session = DecodeConnect(Encode(connect));
  EXPECT_NE(no_session.status().message().find("session"), absl::string_view::npos);

  for (const int reason : {0, 9, 65535}) {
    RejectData reject = SampleReject();
    reject.reason = static_cast<RejectReason>(reason);
    EXPECT_FALSE(DecodeReject(Encode(reject)).ok()) << reason;
  }
  auto reject = FromHex(RejectHex());
  reject[10] = 117;
  const auto long_text = DecodeReject(reject);
  EXPECT_NE(long_text.status().message().find("117"), absl::string_view::npos);
  reject[10] = 116;
  EXPECT_TRUE(DecodeReject(reject).ok());
}

TEST(Handshake, OfAnotherVersionOnlyThePrefixIsRead) {
  ConnectData connect = SampleConnect();
  connect.protocol = 5;
  auto bytes = Encode(connect);
  auto data = DecodeConnect(std::span(bytes).first(8));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->protocol, 5);
  EXPECT_EQ(data->layout, 0x0102);
  EXPECT_EQ(data->session, 0U);

  auto accept_bytes = FromHex(kAcceptHex);
  accept_bytes[4] = 9;
  accept_bytes[30] = 1;
  const auto accept = DecodeAccept(accept_bytes);
  ASSERT_TRUE(accept.ok());
  EXPECT_EQ(accept->protocol, 9);

  // Why a server of another version refuses is always shown, even for a reason unknown here.
  RejectData reject = SampleReject();
  reject.protocol = 5;
  reject.reason = static_cast<RejectReason>(77);
  const auto refused = DecodeReject(Encode(reject));
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->protocol, 5);
  EXPECT_EQ(refused->text, reject.text);
  EXPECT_STREQ(RejectReasonName(refused->reason), "unknown reason");
}

TEST(Handshake, TextIsCutBetweenCharactersAndCleaned) {
  RejectData reject = SampleReject();
  reject.text = std::string(115, 'a') + "\xc3\xa9tude";  // the limit falls inside the e-acute
  auto data = DecodeReject(Encode(reject));
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->text, std::string(115, 'a'));
  reject.text = std::string(114, 'a') + "\xc3\xa9tude";
  data = DecodeReject(Encode(reject));
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->text, std::string(114, 'a') + "??") << "cut behind a character, and shown so";
  reject.text = "\x1b[2Jbell\x07 \x7f\n";
  data = DecodeReject(Encode(reject));
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->text, "?[2Jbell? ??");
  reject.text =
      "\xc2\x9b"
      "2J";  // the same of the C1 controls
  data = DecodeReject(Encode(reject));
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->text, "??2J");
  reject.text.assign(1000, '\x80');  // not UTF-8 at all
  EXPECT_TRUE(DecodeReject(Encode(reject)).ok());
}

TEST(Handshake, ReasonsHaveNames) {
  for (int reason = 1; reason <= 8; ++reason) {
    EXPECT_STRNE(RejectReasonName(static_cast<RejectReason>(reason)), "unknown reason");
  }
}

TEST(Handshake, TenantIdBaseline) {
  // XXH3-64 with seed 0; the empty name's value is that of the xxHash reference.
  EXPECT_EQ(TenantId(""), 0x2d06800538d394c2ULL);
  EXPECT_EQ(TenantId("default"), TenantId("default"));
  EXPECT_NE(TenantId("default"), TenantId("Default"));
}

}  // namespace
}  // namespace verbena::wire
