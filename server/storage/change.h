// What a change of a key may ask for, and what became of it.
#pragma once

#include <cstdint>

namespace verbena::storage {

// What must hold of a key for a change to be made.
enum class Require : uint8_t { kNothing, kAbsent, kPresent, kVersion };

struct Condition {
  Require require = Require::kNothing;
  uint64_t version = 0;  // kVersion: the one that the key must have
};

// When an item ends: a time of MonotonicNanos, or never.
inline constexpr int64_t kNever = INT64_MAX;

struct PutOptions {
  uint16_t flags = 0;  // kept with the item
  Condition condition = {};
  int64_t due_ns = kNever;
  bool keep_due = false;  // the time of the item that was there goes on, whatever due_ns says
};

enum class Outcome : uint8_t {
  kDone,
  // Nothing has changed, since
  kExists,        // the key is there, against Require::kAbsent
  kAbsent,        // the key is not there
  kOtherVersion,  // against Require::kVersion
  kNotANumber,    // Add: the value is not a number
  kOverflow,      // Add: the sum does not fit 64 bits
  kTooLong,       // Take: the value is longer than the room given
};

struct PutResult {
  // After kDone of the new item; else of the one that is there, 0 if there is none. Grows with each
  // change of a key, also across its deletion and restarts.
  uint64_t version = 0;
  // Whether the key was there before.
  bool existed = false;
  Outcome outcome = Outcome::kDone;
};

struct AddResult : PutResult {
  int64_t number = 0;  // after kDone: the sum
};

struct DeleteResult {
  bool existed = false;
  // kAbsent where the key was not there.
  Outcome outcome = Outcome::kDone;
  uint32_t value_len = 0;  // of the item that `version` is of
  // Of the item that was removed, or of the one that is there still; 0 if there was none.
  uint64_t version = 0;
};

struct ExpireResult {
  bool found = false;
  uint64_t version = 0;  // of the item, which has not changed
  // When the item ends; after a change of the time, when it would have ended without that.
  int64_t due_ns = kNever;
};

// What a condition says to a key that is there (`found`) with a version, or is not there.
constexpr Outcome Judge(const Condition& condition, bool found, uint64_t version) {
  switch (condition.require) {
    case Require::kNothing:
      break;
    case Require::kAbsent:
      if (found) return Outcome::kExists;
      break;
    case Require::kPresent:
      if (!found) return Outcome::kAbsent;
      break;
    case Require::kVersion:
      if (!found) return Outcome::kAbsent;
      if (version != condition.version) return Outcome::kOtherVersion;
      break;
  }
  return Outcome::kDone;
}

}  // namespace verbena::storage
