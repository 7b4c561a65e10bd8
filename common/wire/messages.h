// Messages on an established connection. Requests go from client to server, responses back, both by
// SEND; each message is one SEND of at most the size that the server names in Welcome.
//
// request   = RequestHeader (16) and 1 or more operations
// operation = OperationHeader (32), key, value or ValueReference, zero padding to 8 bytes
// response  = ResponseHeader (16) and 0 or more results (0: a probe or a change of the grant only)
// result    = ResultHeader (32), value, zero padding to 8 bytes
//
// Every request is answered by one response with one result per operation, in the same order. All
// integers little-endian; every field is checked against the bytes that arrived before it is used.
// The first request of a connection is one kHello, which the server answers with Welcome; the
// client speaks first because iWARP wants it so.
//
// Credits. A client has at most `grant` requests unanswered; the grant starts at 1 and every
// response carries the current one. From one response to the next the grant falls by at most 1.
// Then the requests that can be under way or waiting at the server never exceed the newest grant
// sent: a client that has seen only the s-th of S responses may have g(s) unanswered, S - s of
// which are answered already, and g(s) - (S - s) <= g(S).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::wire {

inline constexpr size_t kMessageAlignment = 8;
// Operations in one request, and so results in one response.
inline constexpr size_t kMaxOperations = 256;

enum class MessageKind : uint8_t { kRequest = 1, kResponse = 2 };

struct RequestHeader {
  uint32_t size;        // bytes of the whole message
  uint8_t kind;         // MessageKind::kRequest
  uint8_t reserved;     // 0
  uint16_t operations;  // 1 to kMaxOperations
  uint64_t acked : 48;  // answers of all operations up to this sequence number have been seen
  uint64_t
      wanted : 16;  // further requests that the client would send at once if it had the credits
};
static_assert(sizeof(RequestHeader) == 16);

enum class OpCode : uint8_t {
  kHello = 1,  // value: Hello; answered with Welcome
  kPing = 2,   // answered with the same value
  kGet = 3,    // by the server's CPU: the fallback of one-sided reads
  kPut = 4,
  kDelete = 5,
  kInfo = 6,      // answered with a JSON object
  kAdd = 7,       // argument: what to add, signed; answered with the new number as decimal text
  kAppend = 8,    // value: what to put behind the present value
  kExpire = 9,    // argument: time to live from now, ms; answered with argument 1 if it had one
  kTtl = 10,      // answered with argument: ms left, rounded up; 0 if the key stays for ever
  kScan = 11,     // key: where to start, may be empty; value: prefix; argument: how many keys, 1 or
                  // more; answered with ScanEntries, argument 1 if there may be more keys
  kTouch = 12,    // value: hashes (8 bytes each) of keys that were read; a hint for eviction
  kRelease = 13,  // argument: Location::pin of an answer on this connection; not found if there is
                  // none, or no longer
  kPersist = 14,  // takes the time to live away; answered with argument 1 if there was one
};

// Flags of an operation; each is refused with a code that it is not named for.
inline constexpr uint8_t kOpValueByReference = 1;  // kPut: a ValueReference stands for the value
// The condition, one at most. Judged and acted on in one step.
inline constexpr uint8_t kOpIfAbsent = 2;   // kPut
inline constexpr uint8_t kOpIfPresent = 4;  // kPut, kAdd, kAppend
inline constexpr uint8_t kOpIfVersion = 8;  // kPut, kDelete, kAdd, kAppend: it is `expected`
// kDelete: the answer's value is what was deleted; if it does not fit, nothing is (kTooLarge).
inline constexpr uint8_t kOpReturnValue = 16;
inline constexpr uint8_t kOpExpires = 32;  // kPut: the argument is a time to live, ms
inline constexpr uint8_t kOpAfter = 64;    // kScan: start behind the key, with the next one

// Longest time to live: 100 years. The shortest is 1 ms.
inline constexpr uint64_t kMaxTtlMillis = uint64_t{100} * 365 * 24 * 3600 * 1000;

// The flags that are conditions.
inline constexpr uint8_t kOpConditions = kOpIfAbsent | kOpIfPresent | kOpIfVersion;

struct OperationHeader {
  uint64_t sequence;  // grows by 1 with each operation of a session, from 1
  uint8_t code;       // OpCode
  uint8_t flags;
  uint16_t key_len;    // bytes
  uint32_t value_len;  // bytes of the value, also where it is given by reference
  uint64_t expected;   // version, with kOpIfVersion; else 0
  uint64_t argument;   // meaning by OpCode; else 0, and refused if it is not
};
static_assert(sizeof(OperationHeader) == 32);

// Where the server READs a large value from: memory that the client has registered with remote read
// and keeps unchanged until the answer.
struct ValueReference {
  uint64_t address;
  uint32_t rkey;
  uint32_t reserved;  // 0
};
static_assert(sizeof(ValueReference) == 16);

enum class ResultCode : uint16_t {
  kOk = 0,
  kNotFound = 1,
  kInvalid = 2,      // malformed or out of range; the value is a text
  kTooLarge = 3,     // key or value over the server's limit; text
  kNoSpace = 4,      // region full; text
  kUnavailable = 5,  // the server is stopping; text
  kLocated = 6,      // kGet: found, too large for a message; the value is a Location
  kInternal = 7,     // text
  // The condition does not hold, and nothing has changed; `version` is the present one. Text.
  kExists = 8,    // kOpIfAbsent, and the key is there
  kMismatch = 9,  // kOpIfVersion, and the key has another version (kNotFound if it is absent)
  // kAdd cannot be done, and nothing has changed; `version` is the present one. Text.
  kNotANumber = 10,   // the value is not a number
  kOverflow = 11,     // the sum does not fit 64 bits
  kUnsupported = 12,  // the server runs without what the operation needs; text
};
const char* ResultCodeName(ResultCode code);

struct ResultHeader {
  uint64_t sequence;   // of the operation
  uint16_t code;       // ResultCode
  uint16_t flags;      // 0
  uint32_t value_len;  // bytes
  uint64_t version;    // after a change, in a get; kDelete: of the item removed; else 0
  uint64_t argument;   // meaning by OpCode; of other changes 1 if the key existed before; else 0
};
static_assert(sizeof(ResultHeader) == 32);

// Where a value too large for a message lies, and the header of its item. The client READs the
// block and accepts key and value by this header and check: those in the block may be gone, as the
// item may have been replaced since the server looked. While the server keeps the pin, the bytes
// stay as they are.
struct Location {
  uint64_t slot;     // layout::Slot bits
  uint64_t version;  // this and the next three as in layout::ItemHeader; the key is that asked for
  uint64_t check;    // not 0
  uint64_t pin;      // to be given back with kRelease; 0: not pinned, there are too many
  uint32_t value_len;
  uint16_t flags;
  uint16_t reserved;  // 0
};
static_assert(sizeof(Location) == 40);

// A key that a scan has found; its bytes follow, with zero padding to 8 bytes.
struct ScanEntry {
  uint64_t slot;     // layout::Slot bits: where its item lay when the key was found
  uint16_t key_len;  // bytes
  uint16_t reserved;
  uint32_t reserved2;
};
static_assert(sizeof(ScanEntry) == 16);

struct ResponseHeader {
  uint32_t size;     // bytes of the whole message
  uint8_t kind;      // MessageKind::kResponse
  uint8_t reserved;  // 0
  uint16_t results;  // 0 to kMaxOperations
  uint16_t grant;    // 1 or more
  uint16_t reserved2;
  uint32_t reserved3;
};
static_assert(sizeof(ResponseHeader) == 16);

// Value of kHello.
struct Hello {
  uint32_t receive_size;   // bytes of each receive buffer of the client
  uint32_t receive_count;  // receive buffers that the client keeps posted
  uint32_t operations;     // that may be unanswered at once in its session; 0: it keeps no session
  uint32_t reserved;       // 0
};
static_assert(sizeof(Hello) == 16);

// Value of the answer to kHello: what a client needs to READ the tenant's slice, and the limits.
struct Welcome {
  uint64_t region_address;  // remote address of the slice's base
  uint64_t region_size;     // bytes
  uint64_t epoch;           // as in the region's header
  uint64_t max_value_size;  // bytes
  uint32_t region_rkey;
  uint32_t max_key_size;  // bytes
  uint32_t max_message;   // bytes of a request or response
  uint32_t eager_limit;   // values up to this many bytes travel inside requests
  uint16_t window;        // largest grant
  uint16_t layout;        // layout version of the slice
  uint32_t features;      // kFeature... bits; unknown ones are ignored
  uint32_t operations;    // sequence numbers above `acked` that the session may use; 0: no session
  // Of the session among all that this server process has made; 0: no session. Another one than
  // before: the session was forgotten meanwhile, and what it had changed is not known any more.
  uint32_t incarnation;
};
static_assert(sizeof(Welcome) == 64);

inline constexpr uint32_t kFeatureScans = 1;    // the server keeps its keys in order
inline constexpr uint32_t kFeatureTouches = 2;  // it evicts, and wants to be told of GETs

// Sequence numbers that a session may have above `acked` at most, and at least where there is one:
// those of a whole message, which could never be sent otherwise.
inline constexpr uint32_t kMaxSessionOperations = 2048;
inline constexpr uint32_t kMinSessionOperations = kMaxOperations;
// The last sequence number. A session ends with it.
inline constexpr uint64_t kLastSequence = (uint64_t{1} << 48) - 1;

constexpr size_t PadToAlignment(size_t size) {
  return (size + kMessageAlignment - 1) & ~(kMessageAlignment - 1);
}
// Bytes that an operation or a result takes in a message.
constexpr size_t OperationSize(size_t key_len, size_t value_len) {
  return PadToAlignment(sizeof(OperationHeader) + key_len + value_len);
}
constexpr size_t ResultSize(size_t value_len) {
  return PadToAlignment(sizeof(ResultHeader) + value_len);
}

// The bytes of one of the fixed structures above, as the value of an operation or result.
template <typename T>
std::string_view AsValue(const T& fixed) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&fixed), sizeof(T)};
}

// The structures that travel as values, checked. InvalidArgument names the field that is wrong and
// its value.
absl::StatusOr<Hello> DecodeHello(std::string_view value);
absl::StatusOr<Welcome> DecodeWelcome(std::string_view value);
absl::StatusOr<Location> DecodeLocation(std::string_view value);

// One entry of a scan's answer.
struct FoundKey {
  std::string_view key;
  uint64_t slot = 0;
};
// Takes the next entry off the front of a scan's answer; nullopt after the last one.
absl::StatusOr<std::optional<FoundKey>> TakeFoundKey(std::string_view* value);
// Appends an entry at `*used` of `room` and moves `*used` on; false if it does not fit.
bool AppendFoundKey(const FoundKey& found, std::span<uint8_t> room, size_t* used);

// The smallest size of message that a peer may name: room for a Welcome and for an error text.
inline constexpr size_t kMinMessage = 256;

// One operation, with views into the message it was decoded from.
struct Operation {
  OperationHeader header;
  std::string_view key;
  std::string_view value;  // empty where `reference` is set
  std::optional<ValueReference> reference;
};

struct Result {
  ResultHeader header;
  std::string_view value;
};

// Builds a request in memory of the caller (a registered send buffer). Not thread-safe.
class RequestWriter {
 public:
  // `buffer` must hold at least the header and be 8-byte aligned; it is borrowed.
  explicit RequestWriter(std::span<uint8_t> buffer) : buffer_(buffer) {}

  // Appends an operation; false (and nothing changed) if it does not fit. `header.key_len` and
  // `header.value_len` are set from `key` and `value`, and kOpValueByReference by which of the two
  // functions it is.
  bool Add(OperationHeader header, std::string_view key, std::string_view value);
  // Appends a kPut whose value the server READs.
  bool AddByReference(OperationHeader header, std::string_view key, uint32_t value_len,
                      const ValueReference& reference);
  // Writes the header; the message is then the first `size()` bytes of the buffer. May be called
  // again, with other figures or after changes.
  void Finish(uint64_t acked, uint16_t wanted);

  size_t size() const { return size_; }
  uint16_t operations() const { return operations_; }

  // Changes to what has been added. An operation is named by its position: the first one's is
  // kFirst, the next one's is EndOf() of the one before, and the last one ends at size().
  static constexpr size_t kFirst = sizeof(RequestHeader);
  OperationHeader HeaderAt(size_t at) const;
  size_t EndOf(size_t at) const;
  // Only of an operation that was added by reference.
  void SetReference(size_t at, const ValueReference& reference);
  // Takes the operation out; the ones behind it move up.
  void Remove(size_t at);
  // Copies the message to other memory, at least as large, and goes on there.
  void MoveTo(std::span<uint8_t> buffer);

 private:
  uint8_t* Reserve(OperationHeader header, std::string_view key, size_t value_bytes);

  std::span<uint8_t> buffer_;
  size_t size_ = sizeof(RequestHeader);
  uint16_t operations_ = 0;
};

// Builds a response, likewise.
class ResponseWriter {
 public:
  explicit ResponseWriter(std::span<uint8_t> buffer) : buffer_(buffer) {}

  bool Add(ResultHeader header, std::string_view value);
  // Room for a result whose value of `value_len` bytes the caller writes itself (one copy less):
  // nullptr if it does not fit, else where to write.
  uint8_t* AddInPlace(ResultHeader header, uint32_t value_len);
  void Finish(uint16_t grant);

  size_t size() const { return size_; }
  // Bytes of value that a further result could carry.
  size_t room() const;
  uint16_t results() const { return results_; }

 private:
  std::span<uint8_t> buffer_;
  size_t size_ = sizeof(ResponseHeader);
  uint16_t results_ = 0;
};

// Reads a request. Every length, code, flag (and that flags and fields go together), reserved field
// and padding byte is checked; what the
// numbers mean (sequence, versions, limits of keys and values) is for the server to judge. The
// views point into `bytes`.
class RequestReader {
 public:
  // InvalidArgument names the field that is wrong and its value.
  static absl::StatusOr<RequestReader> Open(std::span<const uint8_t> bytes);

  const RequestHeader& header() const { return header_; }
  // The next operation; nullopt after the last one. An error ends the message (and the connection).
  absl::StatusOr<std::optional<Operation>> Next();
  // The keys of the operations that Next will come to, without those that have none: how many were
  // set, at most keys.size(). For getting ready only: ends where an operation leads out of the
  // message, and checks nothing else.
  size_t KeysAhead(std::span<std::string_view> keys) const;

 private:
  RequestHeader header_{};
  std::span<const uint8_t> rest_;
  uint16_t left_ = 0;
};

// Reads a response, likewise.
class ResponseReader {
 public:
  static absl::StatusOr<ResponseReader> Open(std::span<const uint8_t> bytes);

  const ResponseHeader& header() const { return header_; }
  absl::StatusOr<std::optional<Result>> Next();

 private:
  ResponseHeader header_{};
  std::span<const uint8_t> rest_;
  uint16_t left_ = 0;
};

}  // namespace verbena::wire
