#include "common/wire/messages.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"
#include "common/wire/little_endian.h"

namespace verbena::wire {
namespace {

absl::Status Wrong(const char* structure, const char* field, uint64_t value, const char* wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(structure, ": ", field, " is ", value, ", wanted ", wanted));
}

absl::Status WrongSize(const char* structure, size_t size, size_t wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(structure, " of ", size, " bytes, wanted ", wanted));
}

void CopyBytes(uint8_t* to, std::string_view from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

// What requests and responses have in common. `fixed` is the size of an operation's or result's
// header, which bounds how many can be in the message.
absl::Status CheckMessage(const char* what, std::span<const uint8_t> bytes, uint32_t size,
                          uint16_t count, size_t fixed) {
  if (size != bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": size is ", size, ", but ", bytes.size(), " bytes arrived"));
  }
  if (size % kMessageAlignment != 0) return Wrong(what, "size", size, "a multiple of 8");
  if (count > kMaxOperations) return Wrong(what, "count", count, "at most 256");
  // Every request and response header has the same 16 bytes.
  if ((bytes.size() - sizeof(RequestHeader)) / fixed < count) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", count, " parts do not fit in ", size, " bytes"));
  }
  return absl::OkStatus();
}

// Takes the payload of `size` bytes behind a part's header, checks its padding and moves `rest` to
// the next part.
absl::StatusOr<std::span<const uint8_t>> TakePayload(const char* what,
                                                     std::span<const uint8_t>& rest,
                                                     size_t header_size, uint64_t size) {
  const size_t available = rest.size() - header_size;
  if (size > available) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": key and value of ", size, " bytes, ", available, " are left"));
  }
  const size_t payload_size = static_cast<size_t>(size);
  // Messages and headers are multiples of 8 bytes, so the padding is there as well: the upper bytes
  // of the last word.
  const size_t padded = PadToAlignment(payload_size);
  const auto payload = rest.subspan(header_size, payload_size);
  if (const size_t in_last_word = payload_size % kMessageAlignment; in_last_word != 0) {
    const auto last = LoadAs<uint64_t>(rest.data() + header_size + padded - sizeof(uint64_t));
    if (last >> (8 * in_last_word) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": padding is not zero"));
    }
  }
  rest = rest.subspan(header_size + padded);
  return payload;
}

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The flags that an operation may have; nullopt for a code that is none.
std::optional<uint8_t> AllowedFlags(uint8_t code) {
  switch (static_cast<OpCode>(code)) {
    case OpCode::kPut:
      return kOpValueByReference | kOpConditions | kOpExpires;
    case OpCode::kDelete:
      return kOpIfVersion | kOpReturnValue;
    case OpCode::kAdd:
    case OpCode::kAppend:
      return kOpIfPresent | kOpIfVersion;
    case OpCode::kScan:
      return kOpAfter;
    case OpCode::kHello:
    case OpCode::kPing:
    case OpCode::kGet:
    case OpCode::kInfo:
    case OpCode::kExpire:
    case OpCode::kTtl:
    case OpCode::kTouch:
    case OpCode::kPersist:
    case OpCode::kRelease:
      return uint8_t{0};
  }
  return std::nullopt;
}

// Whether an operation has a use for its argument.
bool UsesArgument(const OperationHeader& header) {
  switch (static_cast<OpCode>(header.code)) {
    case OpCode::kAdd:
    case OpCode::kExpire:
    case OpCode::kScan:
    case OpCode::kRelease:
    case OpCode::kInfo:
      return true;
    case OpCode::kPut:
      return (header.flags & kOpExpires) != 0;
    default:
      return false;
  }
}

absl::Status CheckOperation(const OperationHeader& header) {
  constexpr char kWhat[] = "operation";
  const std::optional<uint8_t> allowed = AllowedFlags(header.code);
  if (!allowed.has_value()) return Wrong(kWhat, "code", header.code, "1 to 14");
  if ((header.flags & ~*allowed) != 0) {
    return Wrong(kWhat, "flags", header.flags, "only flags of its code");
  }
  const unsigned conditions = header.flags & kOpConditions;
  if ((conditions & (conditions - 1)) != 0) {
    return Wrong(kWhat, "flags", header.flags, "one condition at most");
  }
  if (header.expected != 0 && (header.flags & kOpIfVersion) == 0) {
    return Wrong(kWhat, "expected", header.expected, "0 without the flag for it");
  }
  if (header.argument != 0 && !UsesArgument(header)) {
    return Wrong(kWhat, "argument", header.argument, "0: its code and flags have no use for one");
  }
  if (header.code == static_cast<uint8_t>(OpCode::kTouch) &&
      header.value_len % sizeof(uint64_t) != 0) {
    return Wrong("touch", "value length", header.value_len, "whole hashes of 8 bytes");
  }
  return absl::OkStatus();
}

}  // namespace

const char* ResultCodeName(ResultCode code) {
  switch (code) {
    case ResultCode::kOk:
      return "ok";
    case ResultCode::kNotFound:
      return "not found";
    case ResultCode::kInvalid:
      return "invalid";
    case ResultCode::kTooLarge:
      return "too large";
    case ResultCode::kNoSpace:
      return "no space";
    case ResultCode::kUnavailable:
      return "unavailable";
    case ResultCode::kLocated:
      return "located";
    case ResultCode::kInternal:
      return "internal error";
    case ResultCode::kExists:
      return "exists";
    case ResultCode::kMismatch:
      return "other version";
    case ResultCode::kNotANumber:
      return "not a number";
    case ResultCode::kOverflow:
      return "overflow";
    case ResultCode::kUnsupported:
      return "unsupported";
  }
  return "unknown result";
}

absl::StatusOr<Hello> DecodeHello(std::string_view value) {
  if (value.size() != sizeof(Hello)) return WrongSize("Hello", value.size(), sizeof(Hello));
  const auto hello = LoadAs<Hello>(value.data());
  if (hello.receive_size < kMinMessage) {
    return Wrong("Hello", "receive_size", hello.receive_size, "at least 256");
  }
  if (hello.receive_count == 0) return Wrong("Hello", "receive_count", 0, "at least 1");
  if (hello.reserved != 0) return Wrong("Hello", "reserved", hello.reserved, "0");
  return hello;
}

absl::StatusOr<Welcome> DecodeWelcome(std::string_view value) {
  constexpr char kWhat[] = "Welcome";
  if (value.size() != sizeof(Welcome)) return WrongSize(kWhat, value.size(), sizeof(Welcome));
  const auto welcome = LoadAs<Welcome>(value.data());
  if (welcome.region_size == 0) return Wrong(kWhat, "region_size", 0, "at least 1");
  if (welcome.region_address + welcome.region_size < welcome.region_address) {
    return Wrong(kWhat, "region_size", welcome.region_size, "an end below 2^64");
  }
  if (welcome.max_key_size == 0) return Wrong(kWhat, "max_key_size", 0, "at least 1");
  if (welcome.max_message < kMinMessage) {
    return Wrong(kWhat, "max_message", welcome.max_message, "at least 256");
  }
  if (welcome.eager_limit > welcome.max_message) {
    return Wrong(kWhat, "eager_limit", welcome.eager_limit, "at most max_message");
  }
  if (welcome.window == 0) return Wrong(kWhat, "window", 0, "at least 1");
  if (welcome.operations != 0 &&
      (welcome.operations < kMinSessionOperations || welcome.operations > kMaxSessionOperations)) {
    return Wrong(kWhat, "operations", welcome.operations, "0, or 256 to 2048");
  }
  if ((welcome.incarnation != 0) != (welcome.operations != 0)) {
    return Wrong(kWhat, "incarnation", welcome.incarnation,
                 welcome.operations != 0 ? "at least 1" : "0: there is no session");
  }
  return welcome;
}

absl::StatusOr<Location> DecodeLocation(std::string_view value) {
  if (value.size() != sizeof(Location)) {
    return WrongSize("Location", value.size(), sizeof(Location));
  }
  const auto location = LoadAs<Location>(value.data());
  if (location.slot == 0) return Wrong("Location", "slot", 0, "a slot that is not empty");
  if (location.check == 0) return Wrong("Location", "check", 0, "that of a valid item");
  if (location.reserved != 0) return Wrong("Location", "reserved", location.reserved, "0");
  return location;
}

absl::StatusOr<std::optional<FoundKey>> TakeFoundKey(std::string_view* value) {
  constexpr char kWhat[] = "ScanEntry";
  if (value->empty()) return std::nullopt;
  if (value->size() < sizeof(ScanEntry)) {
    return WrongSize(kWhat, value->size(), sizeof(ScanEntry));
  }
  const auto entry = LoadAs<ScanEntry>(value->data());
  if (entry.slot == 0) return Wrong(kWhat, "slot", 0, "a slot that is not empty");
  if (entry.key_len == 0) return Wrong(kWhat, "key_len", 0, "at least 1");
  if (entry.reserved != 0) return Wrong(kWhat, "reserved", entry.reserved, "0");
  if (entry.reserved2 != 0) return Wrong(kWhat, "reserved2", entry.reserved2, "0");
  const size_t size = PadToAlignment(sizeof(ScanEntry) + entry.key_len);
  if (size > value->size()) {
    return Wrong(kWhat, "key_len", entry.key_len, "no more than what is left");
  }
  const FoundKey found = {value->substr(sizeof(ScanEntry), entry.key_len), entry.slot};
  value->remove_prefix(size);
  return found;
}

bool AppendFoundKey(const FoundKey& found, std::span<uint8_t> room, size_t* used) {
  const size_t size = PadToAlignment(sizeof(ScanEntry) + found.key.size());
  if (found.key.size() > UINT16_MAX || size > room.size() - *used) return false;
  uint8_t* const at = room.data() + *used;
  ScanEntry entry{};
  entry.slot = found.slot;
  entry.key_len = static_cast<uint16_t>(found.key.size());
  StoreAs(at, entry);
  CopyBytes(at + sizeof(ScanEntry), found.key);
  std::fill(at + sizeof(ScanEntry) + found.key.size(), at + size, uint8_t{0});
  *used += size;
  return true;
}

uint8_t* RequestWriter::Reserve(OperationHeader header, std::string_view key, size_t value_bytes) {
  if (key.size() > UINT16_MAX || value_bytes > UINT32_MAX || operations_ >= kMaxOperations) {
    return nullptr;
  }
  const size_t size = OperationSize(key.size(), value_bytes);
  if (size > buffer_.size() - std::min(size_, buffer_.size()) || size_ + size > UINT32_MAX) {
    return nullptr;
  }
  header.key_len = static_cast<uint16_t>(key.size());
  uint8_t* const at = &buffer_[size_];
  StoreAs(at, header);
  uint8_t* const key_at = at + sizeof(OperationHeader);
  CopyBytes(key_at, key);
  uint8_t* const value_at = key_at + key.size();
  std::fill(value_at + value_bytes, at + size, uint8_t{0});
  size_ += size;
  ++operations_;
  return value_at;
}

bool RequestWriter::Add(OperationHeader header, std::string_view key, std::string_view value) {
  if (value.size() > UINT32_MAX) return false;
  header.flags &= static_cast<uint8_t>(~kOpValueByReference);
  header.value_len = static_cast<uint32_t>(value.size());
  uint8_t* const value_at = Reserve(header, key, value.size());
  if (value_at == nullptr) return false;
  CopyBytes(value_at, value);
  return true;
}

bool RequestWriter::AddByReference(OperationHeader header, std::string_view key, uint32_t value_len,
                                   const ValueReference& reference) {
  header.flags |= kOpValueByReference;
  header.value_len = value_len;
  uint8_t* const value_at = Reserve(header, key, sizeof(ValueReference));
  if (value_at == nullptr) return false;
  StoreAs(value_at, reference);
  return true;
}

void RequestWriter::Finish(uint64_t acked, uint16_t wanted) {
  RequestHeader header{};
  header.size = static_cast<uint32_t>(size_);
  header.kind = static_cast<uint8_t>(MessageKind::kRequest);
  header.operations = operations_;
  header.acked = acked & kLastSequence;
  header.wanted = wanted;
  StoreAs(buffer_.data(), header);
}

OperationHeader RequestWriter::HeaderAt(size_t at) const {
  return LoadAs<OperationHeader>(&buffer_[at]);
}

size_t RequestWriter::EndOf(size_t at) const {
  const OperationHeader header = HeaderAt(at);
  const bool by_reference = (header.flags & kOpValueByReference) != 0;
  return at + OperationSize(header.key_len,
                            by_reference ? sizeof(ValueReference) : size_t{header.value_len});
}

void RequestWriter::SetReference(size_t at, const ValueReference& reference) {
  StoreAs(&buffer_[at + sizeof(OperationHeader) + HeaderAt(at).key_len], reference);
}

void RequestWriter::Remove(size_t at) {
  const size_t end = EndOf(at);
  std::copy(buffer_.begin() + static_cast<ptrdiff_t>(end),
            buffer_.begin() + static_cast<ptrdiff_t>(size_),
            buffer_.begin() + static_cast<ptrdiff_t>(at));
  size_ -= end - at;
  --operations_;
}

void RequestWriter::MoveTo(std::span<uint8_t> buffer) {
  std::copy_n(buffer_.begin(), size_, buffer.begin());
  buffer_ = buffer;
}

uint8_t* ResponseWriter::AddInPlace(ResultHeader header, uint32_t value_len) {
  if (results_ >= kMaxOperations) return nullptr;
  const size_t size = ResultSize(value_len);
  if (size > buffer_.size() - std::min(size_, buffer_.size()) || size_ + size > UINT32_MAX) {
    return nullptr;
  }
  header.value_len = value_len;
  uint8_t* const at = &buffer_[size_];
  StoreAs(at, header);
  uint8_t* const value_at = at + sizeof(ResultHeader);
  std::fill(value_at + value_len, at + size, uint8_t{0});
  size_ += size;
  ++results_;
  return value_at;
}

bool ResponseWriter::Add(ResultHeader header, std::string_view value) {
  if (value.size() > UINT32_MAX) return false;
  uint8_t* const value_at = AddInPlace(header, static_cast<uint32_t>(value.size()));
  if (value_at == nullptr) return false;
  CopyBytes(value_at, value);
  return true;
}

void ResponseWriter::Finish(uint16_t grant) {
  ResponseHeader header{};
  header.size = static_cast<uint32_t>(size_);
  header.kind = static_cast<uint8_t>(MessageKind::kResponse);
  header.results = results_;
  header.grant = grant;
  StoreAs(buffer_.data(), header);
}

size_t ResponseWriter::room() const {
  if (results_ >= kMaxOperations || size_ + sizeof(ResultHeader) > buffer_.size()) return 0;
  const size_t left = buffer_.size() - size_ - sizeof(ResultHeader);
  return left & ~(kMessageAlignment - 1);
}

absl::StatusOr<RequestReader> RequestReader::Open(std::span<const uint8_t> bytes) {
  constexpr char kWhat[] = "request";
  if (bytes.size() < sizeof(RequestHeader)) {
    return WrongSize(kWhat, bytes.size(), sizeof(RequestHeader));
  }
  RequestReader reader;
  const auto header = LoadAs<RequestHeader>(bytes.data());
  if (header.kind != static_cast<uint8_t>(MessageKind::kRequest)) {
    return Wrong(kWhat, "kind", header.kind, "1");
  }
  if (header.reserved != 0) return Wrong(kWhat, "reserved", header.reserved, "0");
  if (header.operations == 0) return Wrong(kWhat, "operations", 0, "1 to 256");
  VERBENA_RETURN_IF_ERROR(
      CheckMessage(kWhat, bytes, header.size, header.operations, sizeof(OperationHeader)));
  reader.header_ = header;
  reader.rest_ = bytes.subspan(sizeof(RequestHeader));
  reader.left_ = header.operations;
  return reader;
}

absl::StatusOr<std::optional<Operation>> RequestReader::Next() {
  constexpr char kWhat[] = "operation";
  if (left_ == 0) {
    if (!rest_.empty())
      return Wrong("request", "bytes after the last operation", rest_.size(), "0");
    return std::nullopt;
  }
  if (rest_.size() < sizeof(OperationHeader)) {
    return WrongSize(kWhat, rest_.size(), sizeof(OperationHeader));
  }
  Operation operation;
  operation.header = LoadAs<OperationHeader>(rest_.data());
  const OperationHeader& header = operation.header;
  VERBENA_RETURN_IF_ERROR(CheckOperation(header));
  const bool by_reference = (header.flags & kOpValueByReference) != 0;
  const uint64_t value_bytes = by_reference ? sizeof(ValueReference) : header.value_len;
  VERBENA_ASSIGN_OR_RETURN(
      const std::span<const uint8_t> payload,
      TakePayload(kWhat, rest_, sizeof(OperationHeader), header.key_len + value_bytes));
  --left_;
  operation.key = AsText(payload.first(header.key_len));
  const auto value = payload.subspan(header.key_len);
  if (by_reference) {
    operation.reference = LoadAs<ValueReference>(value.data());
    if (operation.reference->reserved != 0) {
      return Wrong("value reference", "reserved", operation.reference->reserved, "0");
    }
  } else {
    operation.value = AsText(value);
  }
  return operation;
}

size_t RequestReader::KeysAhead(std::span<std::string_view> keys) const {
  std::span<const uint8_t> rest = rest_;
  size_t count = 0;
  for (uint16_t left = left_; left > 0 && count < keys.size(); --left) {
    if (rest.size() < sizeof(OperationHeader)) break;
    const auto header = LoadAs<OperationHeader>(rest.data());
    const bool by_reference = (header.flags & kOpValueByReference) != 0;
    const size_t size = OperationSize(
        header.key_len, by_reference ? sizeof(ValueReference) : size_t{header.value_len});
    if (size > rest.size()) break;
    if (header.key_len != 0) {
      keys[count++] = AsText(rest.subspan(sizeof(OperationHeader), header.key_len));
    }
    rest = rest.subspan(size);
  }
  return count;
}

absl::StatusOr<ResponseReader> ResponseReader::Open(std::span<const uint8_t> bytes) {
  constexpr char kWhat[] = "response";
  if (bytes.size() < sizeof(ResponseHeader)) {
    return WrongSize(kWhat, bytes.size(), sizeof(ResponseHeader));
  }
  ResponseReader reader;
  const auto header = LoadAs<ResponseHeader>(bytes.data());
  if (header.kind != static_cast<uint8_t>(MessageKind::kResponse)) {
    return Wrong(kWhat, "kind", header.kind, "2");
  }
  if (header.reserved != 0 || header.reserved2 != 0 || header.reserved3 != 0) {
    return absl::InvalidArgumentError("response: a reserved field is not 0");
  }
  if (header.grant == 0) return Wrong(kWhat, "grant", 0, "at least 1");
  VERBENA_RETURN_IF_ERROR(
      CheckMessage(kWhat, bytes, header.size, header.results, sizeof(ResultHeader)));
  reader.header_ = header;
  reader.rest_ = bytes.subspan(sizeof(ResponseHeader));
  reader.left_ = header.results;
  return reader;
}

absl::StatusOr<std::optional<Result>> ResponseReader::Next() {
  constexpr char kWhat[] = "result";
  if (left_ == 0) {
    if (!rest_.empty()) return Wrong("response", "bytes after the last result", rest_.size(), "0");
    return std::nullopt;
  }
  if (rest_.size() < sizeof(ResultHeader)) {
    return WrongSize(kWhat, rest_.size(), sizeof(ResultHeader));
  }
  Result result;
  result.header = LoadAs<ResultHeader>(rest_.data());
  if (result.header.code > static_cast<uint16_t>(ResultCode::kUnsupported)) {
    return Wrong(kWhat, "code", result.header.code, "0 to 12");
  }
  if (result.header.flags != 0) return Wrong(kWhat, "flags", result.header.flags, "0");
  VERBENA_ASSIGN_OR_RETURN(
      const std::span<const uint8_t> payload,
      TakePayload(kWhat, rest_, sizeof(ResultHeader), result.header.value_len));
  --left_;
  result.value = AsText(payload);
  return result;
}

}  // namespace verbena::wire
