// Names of records: YCSB's, or fitted to a length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bench/workload/size_models.h"

namespace verbena::bench {

// YCSB's hash of a record number: FNV over the eight octets, lowest first, then the absolute value
// of the result as a signed number.
uint64_t FnvHash64(uint64_t value);

// Turns record numbers into keys. A value type; thread-safe.
//
//   key_size 0         YCSB's own: "user" and the decimal FNV hash of the number, 14 to 23 bytes
//   key_size 23 or up  the same, the hash padded with zeros in front (YCSB's `zeropadding`)
//   key_size 16 to 22  "user" and the hash in base 32 (60 bits and more, so that the names of a
//                      billion records still differ with near certainty)
//   key_size 8 to 15   the number itself, scrambled in place, in base 32: no two are equal
struct KeyForm {
  size_t size = 0;  // as below
  std::optional<SizeModel> model =
      std::nullopt;         // each key has a size of its own instead, at least kMinKeySize,
                            // and 16 where the model's keys are mostly longer
  bool ordered = false;     // the number itself, not its hash: keys sort as the numbers do
                            // where they are padded (YCSB's insertorder=ordered)
  size_t zero_padding = 1;  // size 0: digits of the number, at least (YCSB's zeropadding)
};

class KeyNames {
 public:
  static constexpr size_t kMinKeySize = 8;
  static constexpr size_t kMaxKeySize = 1024;
  static constexpr size_t kNaturalKeySize = 23;  // the longest of YCSB's own

  // `key_size` is 0 or within the limits above.
  explicit KeyNames(size_t key_size) : KeyNames(KeyForm{.size = key_size}) {}
  explicit KeyNames(const KeyForm& form) : form_(form) {}

  // Bytes that a buffer for Write must have.
  size_t max_size() const;
  // Mean length: what sizes are computed from.
  size_t typical_size() const;

  // How the names of all records begin; empty where they have nothing in common.
  std::string_view prefix() const;

  // Writes the key of record `number` and returns its length.
  size_t Write(uint64_t number, std::span<char> buffer) const;
  std::string Name(uint64_t number) const;

 private:
  size_t SizeOf(uint64_t number) const;

  KeyForm form_;
};

}  // namespace verbena::bench
