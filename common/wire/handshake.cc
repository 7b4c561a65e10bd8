#include "common/wire/handshake.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/wire/little_endian.h"

namespace verbena::wire {
namespace {

// Offsets that all three structures share.
constexpr size_t kMagicAt = 0;
constexpr size_t kProtocolAt = 4;
constexpr size_t kLayoutAt = 6;
constexpr size_t kPrefixSize = 8;

template <size_t N>
void StorePrefix(std::array<uint8_t, N>& bytes, uint16_t protocol, uint16_t layout) {
  StoreAs(&bytes[kMagicAt], kHandshakeMagic);
  StoreAs(&bytes[kProtocolAt], protocol);
  StoreAs(&bytes[kLayoutAt], layout);
}

absl::Status TooShort(const char* what, size_t size, size_t wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", size, " bytes, at least ", wanted, " are needed"));
}

struct Prefix {
  uint16_t protocol;
  uint16_t layout;
};

// Checks the size and the magic number.
absl::StatusOr<Prefix> LoadPrefix(std::span<const uint8_t> bytes, const char* what) {
  if (bytes.size() < kPrefixSize) return TooShort(what, bytes.size(), kPrefixSize);
  const auto magic = LoadAs<uint32_t>(&bytes[kMagicAt]);
  if (magic != kHandshakeMagic) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not Verbena's: magic number 0x",
                                                   absl::Hex(magic), " instead of 0x",
                                                   absl::Hex(kHandshakeMagic)));
  }
  return Prefix{LoadAs<uint16_t>(&bytes[kProtocolAt]), LoadAs<uint16_t>(&bytes[kLayoutAt])};
}

Bytes16 LoadBytes16(const uint8_t* bytes) { return LoadAs<Bytes16>(bytes); }

// The longest prefix of at most `limit` bytes that does not end inside a UTF-8 sequence.
std::string_view CutUtf8(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

const char* RejectReasonName(RejectReason reason) {
  switch (reason) {
    case RejectReason::kMalformed:
      return "malformed request";
    case RejectReason::kOtherProtocol:
      return "other protocol version";
    case RejectReason::kUnknownTenant:
      return "unknown tenant";
    case RejectReason::kNeedProof:
      return "proof of the secret needed";
    case RejectReason::kBadProof:
      return "wrong secret";
    case RejectReason::kConnectionLimit:
      return "too many connections";
    case RejectReason::kDraining:
      return "server is stopping";
    case RejectReason::kResources:
      return "server out of resources";
  }
  return "unknown reason";
}

std::array<uint8_t, ConnectData::kSize> Encode(const ConnectData& data) {
  std::array<uint8_t, ConnectData::kSize> bytes{};
  StorePrefix(bytes, data.protocol, data.layout);
  StoreAs(&bytes[8], data.tenant);
  StoreAs(&bytes[16], data.session);
  StoreAs(&bytes[24], data.nonce);
  StoreAs(&bytes[40], data.proof);
  return bytes;
}

std::array<uint8_t, AcceptData::kSize> Encode(const AcceptData& data) {
  std::array<uint8_t, AcceptData::kSize> bytes{};
  StorePrefix(bytes, data.protocol, data.layout);
  StoreAs(&bytes[8], data.proof);
  return bytes;
}

std::array<uint8_t, RejectData::kSize> Encode(const RejectData& data) {
  std::array<uint8_t, RejectData::kSize> bytes{};
  StorePrefix(bytes, data.protocol, data.layout);
  const std::string_view text = CutUtf8(data.text, RejectData::kMaxText);
  StoreAs(&bytes[8], static_cast<uint16_t>(data.reason));
  StoreAs(&bytes[10], static_cast<uint16_t>(text.size()));
  StoreAs(&bytes[16], data.challenge);
  std::copy(text.begin(), text.end(), &bytes[32]);
  return bytes;
}

absl::StatusOr<ConnectData> DecodeConnect(std::span<const uint8_t> bytes) {
  constexpr char kWhat[] = "connect data";
  VERBENA_ASSIGN_OR_RETURN(const Prefix prefix, LoadPrefix(bytes, kWhat));
  ConnectData data;
  data.protocol = prefix.protocol;
  data.layout = prefix.layout;
  if (data.protocol != kProtocolVersion) return data;
  if (bytes.size() < ConnectData::kSize) {
    return TooShort(kWhat, bytes.size(), ConnectData::kSize);
  }
  data.tenant = LoadAs<uint64_t>(&bytes[8]);
  data.session = LoadAs<uint64_t>(&bytes[16]);
  data.nonce = LoadBytes16(&bytes[24]);
  data.proof = LoadBytes16(&bytes[40]);
  if (data.session == 0) {
    return absl::InvalidArgumentError("connect data: session is 0, which names no session");
  }
  return data;
}

absl::StatusOr<AcceptData> DecodeAccept(std::span<const uint8_t> bytes) {
  constexpr char kWhat[] = "accept data";
  VERBENA_ASSIGN_OR_RETURN(const Prefix prefix, LoadPrefix(bytes, kWhat));
  AcceptData data;
  data.protocol = prefix.protocol;
  data.layout = prefix.layout;
  if (data.protocol != kProtocolVersion) return data;
  if (bytes.size() < AcceptData::kSize) return TooShort(kWhat, bytes.size(), AcceptData::kSize);
  data.proof = LoadBytes16(&bytes[8]);
  if (const auto reserved = LoadAs<uint64_t>(&bytes[24]); reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("accept data: reserved field is 0x", absl::Hex(reserved), " instead of 0"));
  }
  return data;
}

absl::StatusOr<RejectData> DecodeReject(std::span<const uint8_t> bytes) {
  constexpr char kWhat[] = "reject data";
  VERBENA_ASSIGN_OR_RETURN(const Prefix prefix, LoadPrefix(bytes, kWhat));
  if (bytes.size() < RejectData::kSize) return TooShort(kWhat, bytes.size(), RejectData::kSize);
  RejectData data;
  data.protocol = prefix.protocol;
  data.layout = prefix.layout;
  const auto reason = LoadAs<uint16_t>(&bytes[8]);
  const auto text_size = LoadAs<uint16_t>(&bytes[10]);
  const auto reserved = LoadAs<uint32_t>(&bytes[12]);
  const bool known = reason >= static_cast<uint16_t>(RejectReason::kMalformed) &&
                     reason <= static_cast<uint16_t>(RejectReason::kResources);
  if (!known && data.protocol == kProtocolVersion) {
    return absl::InvalidArgumentError(absl::StrCat("reject data: unknown reason ", reason));
  }
  if (text_size > RejectData::kMaxText) {
    return absl::InvalidArgumentError(
        absl::StrCat("reject data: text of ", text_size, " bytes, at most ", RejectData::kMaxText));
  }
  if (reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("reject data: reserved field is 0x", absl::Hex(reserved), " instead of 0"));
  }
  data.reason = static_cast<RejectReason>(reason);
  data.challenge = LoadBytes16(&bytes[16]);
  data.text = PrintableText({reinterpret_cast<const char*>(&bytes[32]), text_size});
  return data;
}

uint64_t TenantId(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

}  // namespace verbena::wire
