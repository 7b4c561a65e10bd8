// Messages that tests of wire formats begin with: as bytes, as they have to look, and a full
// reader.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/wire/messages.h"
#include "tests/unit/wire/bytes.h"

namespace verbena::wire {

// 8-byte aligned memory, as send buffers are.
struct Buffer {
  explicit Buffer(size_t size) : words((size + 7) / 8, 0xa5a5a5a5a5a5a5a5), limit(size) {}
  std::span<uint8_t> bytes() { return {reinterpret_cast<uint8_t*>(words.data()), limit}; }
  std::span<const uint8_t> first(size_t size) { return bytes().first(size); }
  std::vector<uint64_t> words;
  size_t limit;
};

inline OperationHeader Header(OpCode code, uint64_t sequence) {
  OperationHeader header{};
  header.sequence = sequence;
  header.code = static_cast<uint8_t>(code);
  return header;
}

// A request with one operation of each form: with a value, by reference, key only, value only.
inline std::vector<uint8_t> SampleRequest() {
  Buffer buffer(1024);
  RequestWriter writer(buffer.bytes());
  OperationHeader put = Header(OpCode::kPut, 0x0102030405060708);
  put.flags = kOpIfVersion | kOpExpires;
  put.expected = 0x1112131415161718;
  put.argument = 0x2122232425262728;
  EXPECT_TRUE(writer.Add(put, "key", "value!"));
  EXPECT_TRUE(writer.AddByReference(Header(OpCode::kPut, 2), "large", 0x00100000,
                                    {0x3132333435363738, 0x41424344, 0}));
  EXPECT_TRUE(writer.Add(Header(OpCode::kGet, 3), "12345678", ""));
  EXPECT_TRUE(writer.Add(Header(OpCode::kPing, 4), "", "echo"));
  EXPECT_EQ(writer.operations(), 4);
  writer.Finish(0x0000515253545556, 0x6162);
  return Exactly(buffer.bytes(), writer.size());
}

inline constexpr char kRequestHex[] =
    // header: size 200, kind, reserved, operations, acked (48 bits), wanted
    "c8000000"
    "01"
    "00"
    "0400"
    "565554535251"
    "6261"
    // put: sequence, code, flags, key_len, value_len, expected, argument, "key" "value!" padding
    "0807060504030201"
    "04"
    "28"
    "0300"
    "06000000"
    "1817161514131211"
    "2827262524232221"
    "6b6579"
    "76616c756521"
    "00000000000000"
    // put by reference: "large", address, rkey, reserved, padding
    "0200000000000000"
    "04"
    "01"
    "0500"
    "00001000"
    "0000000000000000"
    "0000000000000000"
    "6c61726765"
    "3837363534333231"
    "44434241"
    "00000000"
    "000000"
    // get "12345678"
    "0300000000000000"
    "03"
    "00"
    "0800"
    "00000000"
    "0000000000000000"
    "0000000000000000"
    "3132333435363738"
    // ping "echo" padding
    "0400000000000000"
    "02"
    "00"
    "0000"
    "04000000"
    "0000000000000000"
    "0000000000000000"
    "6563686f"
    "00000000";

// A response with results without and with a value, and an error.
inline std::vector<uint8_t> SampleResponse() {
  Buffer buffer(1024);
  ResponseWriter writer(buffer.bytes());
  ResultHeader ok{};
  ok.sequence = 0x0102030405060708;
  ok.version = 0x1112131415161718;
  ok.argument = 1;
  EXPECT_TRUE(writer.Add(ok, ""));
  ResultHeader missing{};
  missing.sequence = 2;
  missing.code = static_cast<uint16_t>(ResultCode::kNotFound);
  EXPECT_TRUE(writer.Add(missing, ""));
  ResultHeader found{};
  found.sequence = 3;
  uint8_t* const at = writer.AddInPlace(found, 5);
  EXPECT_NE(at, nullptr);
  std::memcpy(at, "value", 5);
  EXPECT_EQ(writer.results(), 3);
  writer.Finish(0x0203);
  return Exactly(buffer.bytes(), writer.size());
}

inline constexpr char kResponseHex[] =
    // header: size 120, kind, reserved, results, grant, reserved2, reserved3
    "78000000"
    "02"
    "00"
    "0300"
    "0302"
    "0000"
    "00000000"
    // sequence, code, flags, value_len, version, argument
    "0807060504030201"
    "0000"
    "0000"
    "00000000"
    "1817161514131211"
    "0100000000000000"
    "0200000000000000"
    "0100"
    "0000"
    "00000000"
    "0000000000000000"
    "0000000000000000"
    "0300000000000000"
    "0000"
    "0000"
    "05000000"
    "0000000000000000"
    "0000000000000000"
    "76616c7565"
    "000000";

// Reads a request to its end; how many operations, or the error.
inline absl::StatusOr<int> ReadRequest(std::span<const uint8_t> bytes) {
  auto reader = RequestReader::Open(bytes);
  if (!reader.ok()) return reader.status();
  for (int count = 0;; ++count) {
    auto operation = reader->Next();
    if (!operation.ok()) return operation.status();
    if (!operation->has_value()) return count;
    // Touch every byte that the views name.
    size_t sum = 0;
    for (const char c : (*operation)->key) sum += static_cast<uint8_t>(c);
    for (const char c : (*operation)->value) sum += static_cast<uint8_t>(c);
    EXPECT_LE(sum, 255 * bytes.size());
  }
}

// Likewise for the results of a response.
inline absl::StatusOr<int> ReadResponse(std::span<const uint8_t> bytes) {
  auto reader = ResponseReader::Open(bytes);
  if (!reader.ok()) return reader.status();
  for (int count = 0;; ++count) {
    auto result = reader->Next();
    if (!result.ok()) return result.status();
    if (!result->has_value()) return count;
    size_t sum = 0;
    for (const char c : (*result)->value) sum += static_cast<uint8_t>(c);
    EXPECT_LE(sum, 255 * bytes.size());
  }
}

}  // namespace verbena::wire
