// Private data of the connection manager's messages: who connects to what, before a QP exists.
//
// All integers little-endian. The connection manager may pad private data with zeros at the end, so
// the lengths below are what is read; surplus bytes are ignored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::wire {

inline constexpr uint32_t kHandshakeMagic = 0x4e425256;  // "VRBN"
inline constexpr uint16_t kProtocolVersion = 4;

using Bytes16 = std::array<uint8_t, 16>;

// Client -> server, with rdma_connect. 56 bytes, the most that InfiniBand's REQ carries.
//   0 u32 magic | 4 u16 protocol | 6 u16 layout | 8 u64 tenant | 16 u64 session
//   24 u8[16] nonce | 40 u8[16] proof
struct ConnectData {
  static constexpr size_t kSize = 56;
  uint16_t protocol = kProtocolVersion;
  uint16_t layout = 0;   // layout version that the client can read
  uint64_t tenant = 0;   // TenantId(name)
  uint64_t session = 0;  // unguessable, chosen by the client, not 0
  Bytes16 nonce{};       // fresh for each attempt
  Bytes16 proof{};       // zeros where no secret is used
};

// Server -> client, with rdma_accept. 32 bytes.
//   0 u32 magic | 4 u16 protocol | 6 u16 layout | 8 u8[16] proof | 24 u64 reserved (0)
struct AcceptData {
  static constexpr size_t kSize = 32;
  uint16_t protocol = kProtocolVersion;
  uint16_t layout = 0;
  Bytes16 proof{};  // the server's own proof; zeros where no secret is used
};

enum class RejectReason : uint16_t {
  kMalformed = 1,      // private data too short or of another program
  kOtherProtocol = 2,  // the server speaks `protocol`
  kUnknownTenant = 3,
  kNeedProof = 4,  // `challenge` is to be answered
  kBadProof = 5,
  kConnectionLimit = 6,  // --max_connections or the device's own limit
  kDraining = 7,         // the server is stopping
  kResources = 8,        // the server could not make the connection's objects
};
const char* RejectReasonName(RejectReason reason);

// Server -> client, with rdma_reject. 148 bytes, the most that InfiniBand's REJ carries.
//   0 u32 magic | 4 u16 protocol | 6 u16 layout | 8 u16 reason | 10 u16 text length | 12 u32 0
//   16 u8[16] challenge | 32 text (at most 116 bytes, UTF-8, for people)
struct RejectData {
  static constexpr size_t kSize = 148;
  static constexpr size_t kMaxText = 116;
  uint16_t protocol = kProtocolVersion;
  uint16_t layout = 0;
  RejectReason reason = RejectReason::kMalformed;
  Bytes16 challenge{};
  std::string text;  // cut to kMaxText when encoded
};

std::array<uint8_t, ConnectData::kSize> Encode(const ConnectData& data);
std::array<uint8_t, AcceptData::kSize> Encode(const AcceptData& data);
std::array<uint8_t, RejectData::kSize> Encode(const RejectData& data);

// InvalidArgument if the bytes are too few, have another magic, or a field is out of range; the
// text names the field and its value. Versions are not judged here, but the caller must: the first
// 8 bytes are the same in every protocol version, and of ConnectData and AcceptData of another
// version nothing else is read. RejectData is the same in every version (reasons may be added), so
// that people always see why; control characters of its text come out as '?'.
absl::StatusOr<ConnectData> DecodeConnect(std::span<const uint8_t> bytes);
absl::StatusOr<AcceptData> DecodeAccept(std::span<const uint8_t> bytes);
absl::StatusOr<RejectData> DecodeReject(std::span<const uint8_t> bytes);

// A tenant's number on the wire: XXH3-64 of its name, seed 0. "default" for the unnamed tenant.
uint64_t TenantId(std::string_view name);

}  // namespace verbena::wire
