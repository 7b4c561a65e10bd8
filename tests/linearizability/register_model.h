// What one key does, one operation after the other: the sequential specification that histories are
// checked against. A key is absent, or has a value and a version; versions grow with every change,
// across deletes too.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "tests/linearizability/value_id.h"

namespace verbena::linearizability {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// kExpire sets or takes away the time from which on the item may vanish, and nothing else.
enum class Kind : uint8_t { kGet, kPut, kDelete, kAdd, kAppend, kExpire };

// On which a change depends.
enum class Condition : uint8_t { kNone, kIfAbsent, kIfPresent, kIfVersion };

// The answer. All but kOk and kUnknown say that nothing has changed.
enum class Outcome : uint8_t {
  kOk,
  kNotFound,
  kExists,
  kOtherVersion,
  kNotANumber,
  kOverflow,
  kRefused,  // too large, no space: says nothing of the key
  kUnknown,  // no answer: a change that may take effect at any time after the invocation, or never
};

// One operation of a history. A plain value, fit for memory that processes share.
struct Operation {
  Kind kind = Kind::kGet;
  Condition condition = Condition::kNone;
  Outcome outcome = Outcome::kUnknown;
  // Changes with kOk: the answer says that the key was there before; expire with kOk: that it had a
  // time before.
  bool existed = false;
  bool tells_value = false;  // delete with kOk: `value` is what was deleted
  uint32_t key = 0;
  uint32_t process = 0;   // who did it, for people
  uint64_t expected = 0;  // the version of kIfVersion
  int64_t summand = 0;    // of add
  // get: what was found; put: what is stored; append: the suffix; add: the sum in the answer;
  // delete: see tells_value.
  ValueId value{};
  // In the answer: of the item after a change, in a get, of the item that a delete has removed, or
  // of what stood in the way of a change. 0: not told.
  uint64_t version = 0;
  int64_t invoked = 0;        // ns, any clock that is the same for all
  int64_t returned = kNever;  // ns
  // A put's value may vanish by itself from this time on (expiry), or the item after an expire.
  int64_t due = kNever;
};

std::string ToString(const Operation& operation);

// What is known of a key at a point of a linearisation.
struct State {
  bool present = false;
  // Present: the version is `version`, or, if not exact, one above it that no answer has told.
  // Absent: every later version is above `version`.
  bool exact = false;
  uint64_t version = 0;
  ValueId value{};       // present
  int64_t due = kNever;  // present: may vanish by itself from then on

  friend bool operator==(const State&, const State&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const State& s) {
    return H::combine(std::move(state), s.present, s.exact, s.version, s.value, s.due);
  }
};

std::string ToString(const State& state);

// The state after `operation` takes effect in `state`; nothing if its answer does not fit the
// state, or if an operation of unknown outcome changes nothing there (which is the same as never).
std::optional<State> Apply(const State& state, const Operation& operation);

// The state after the item has been removed by the server (delete, expiry, eviction).
State Removed(const State& state);

}  // namespace verbena::linearizability
