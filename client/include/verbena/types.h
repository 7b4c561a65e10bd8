/// \file
/// What goes into a call and what comes out of it. Plain values: copy them freely; views in them
/// are borrowed as each one says.
#include "verbena/cxx20.h"  // ahead of all else
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace verbena {

struct ChangeOptions;
struct PutOptions;

/// What must hold of a key for a change to be made.
///
/// The server judges it and makes the change in one step: no other change of the key comes between.
/// A condition may stand wherever a call takes ChangeOptions or PutOptions:
/// `Put(key, value, Condition::IfAbsent())`.
struct Condition {
  /// What is asked for.
  enum class Kind : uint8_t { kNone, kIfAbsent, kIfPresent, kIfVersion };

  /// The key must not be there, else AlreadyExists. For Put only.
  static constexpr Condition IfAbsent() { return {Kind::kIfAbsent, 0}; }
  /// The key must be there, else NotFound. Not for Delete, which says so by itself.
  static constexpr Condition IfPresent() { return {Kind::kIfPresent, 0}; }
  /// The key must have this version, that of a GET or of an earlier change, else Aborted (NotFound
  /// if it is not there at all).
  static constexpr Condition IfVersion(uint64_t version) { return {Kind::kIfVersion, version}; }

  /// A condition stands for options with nothing else.
  constexpr operator ChangeOptions() const;  // NOLINT(google-explicit-constructor): see above
  /// The same.
  constexpr operator PutOptions() const;  // NOLINT(google-explicit-constructor): see above

  Kind kind = Kind::kNone;  ///< best set by the functions above
  uint64_t version = 0;     ///< of kIfVersion
};

/// How one call behaves.
struct CallOptions {
  /// How long this call may take, in place of Options::operation_timeout, which says how the time
  /// is counted and what happens when it passes: a short one costs the connection. At least 1 ms,
  /// else InvalidArgument. A call about several operations (MultiGet, Execute...) has it as a
  /// whole, a scan for each of its steps.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// How one change behaves.
struct ChangeOptions {
  Condition condition = {};  ///< none: whatever is there
  /// As CallOptions::timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// How one Put behaves.
struct PutOptions {
  Condition condition = {};  ///< none: whatever is there
  /// How long the key stays, 1 ms to 100 years (else InvalidArgument), counted from when the server
  /// makes the change; it goes at most the server's --expiry_tick later. Not set: for ever, also
  /// where the key had a time.
  std::optional<std::chrono::milliseconds> ttl = {};
  /// As CallOptions::timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
};

constexpr Condition::operator ChangeOptions() const { return {.condition = *this}; }
constexpr Condition::operator PutOptions() const { return {.condition = *this}; }

/// What a GET found.
struct GetResult {
  std::string_view value;  ///< valid only during the callback
  uint64_t version = 0;    ///< grows with every change of the key
  uint64_t size = 0;       ///< bytes of the value; of SubmitGetInto also if it does not fit
};

/// What a change did.
///
/// With an error that says that it could not be made of the key as it is (AlreadyExists, Aborted,
/// NotFound, FailedPrecondition, OutOfRange): what is there instead.
struct ChangeResult {
  uint64_t version = 0;  ///< of the key after the change; of the key as it is; 0: there is none
  bool existed = false;  ///< whether the key was there before
  int64_t number = 0;    ///< after Add: the sum
};

/// A temporary that owns its bytes, such as a std::string that a function has just returned: they
/// are gone before an operation ends that borrows them.
template <typename T>
concept OwningTemporary =
    !std::is_lvalue_reference_v<T> && std::is_convertible_v<T, std::string_view> &&
    !std::is_trivially_destructible_v<T>;

/// Which keys to scan, in the order of their bytes. The views are copied by the call.
struct ScanRange {
  std::string_view start = {};   ///< the first key, which need not exist; empty: from the beginning
  bool after = false;            ///< begin behind `start`, with the next key
  std::string_view prefix = {};  ///< only keys that begin so
  bool keys_only = false;        ///< no values and versions
};

/// A key that a scan has found.
struct ScanItem {
  std::string key;       ///< any bytes
  std::string value;     ///< empty with ScanRange::keys_only
  uint64_t version = 0;  ///< 0 with ScanRange::keys_only
};

/// Limits that the server named when the connection was made.
struct ServerLimits {
  uint32_t max_key_size = 0;    ///< bytes
  uint64_t max_value_size = 0;  ///< bytes
  uint32_t eager_limit = 0;     ///< bytes: larger values are fetched by the server with a READ
  uint32_t window = 0;          ///< most requests that may be unanswered at once
};

/// Counters of one connection since it was made. Large values are those over
/// ServerLimits::eager_limit.
struct ConnectionStats {
  uint64_t gets = 0;               ///< finished
  uint64_t changes = 0;            ///< finished
  uint64_t reads = 0;              ///< RDMA READs posted, all kinds
  uint64_t read_retries = 0;       ///< items that were not accepted and read again
  uint64_t rpc_gets = 0;           ///< GETs answered by the server's CPU
  uint64_t pinned_gets = 0;        ///< of these, large values that it kept as they were meanwhile
  uint64_t cache_hits = 0;         ///< GETs that READ a block which the cache had named
  uint64_t cache_stale = 0;        ///< of these, the ones that had to READ the bucket after all
  uint64_t cache_misses = 0;       ///< GETs that READ the bucket at once
  uint64_t directory_reads = 0;    ///< pages of the server's directory that were READ
  uint64_t sends = 0;              ///< request messages
  uint64_t doorbells = 0;          ///< lists of READs posted, each with one call of ibv_post_send
  uint64_t completions = 0;        ///< entries taken from the completion queue
  uint64_t bytes_read = 0;         ///< asked for with READs
  uint64_t bytes_sent = 0;         ///< of request messages
  uint64_t gets_without_copy = 0;  ///< by GetInto, the value READ to where it was wanted
  uint64_t gets_copied = 0;        ///< by GetInto, with one copy
  uint64_t puts_without_copy = 0;  ///< large values that the server READ from registered memory
  uint64_t reconnects = 0;         ///< connections made in place of lost ones
};

}  // namespace verbena
