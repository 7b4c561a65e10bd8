// What a record holds: one value, or several named fields in one, as YCSB's records have them.
//
// A record of one field is that field's contents. One of several is, in the machine's byte order:
//
//   0   u64 check    over all that follows, seeded with a hash of the key (see value.h)
//   8   u32 fields   how many there are; then each of them:
//       u32 bytes of its name, u32 bytes of its contents, the name, the contents
//
// The contents of a field verify themselves (value.h) or are incompressible under the record's
// check; or, with data integrity, they are YCSB's: the key, ':', the field's name, and then as
// often as there is room ':' and the hash code that Java has for the text so far, in decimal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload/sizes.h"

namespace verbena::bench {

// The fields of each record.
struct RecordFields {
  uint32_t count = 1;
  std::string name_prefix = "field";  // their names are "field0", "field1" and so on
  bool read_all = true;               // whether a read is of all of them, or of one
  bool write_all = true;              // whether an update writes all of them, or one
  bool integrity = false;             // YCSB's contents, which follow from key and field

  // Whether an update must read the record first, to leave the other fields what they are.
  bool updates_read() const { return count > 1 && !write_all; }

  bool operator==(const RecordFields&) const = default;
};

// The text that YCSB's dataintegrity has for a field, of exactly `size` bytes.
std::string IntegrityText(std::string_view key, std::string_view field, size_t size);

// Makes and checks the values of records. Const members are thread-safe.
class RecordValues {
 public:
  // `sizes` are those of each field. With integrity they must be constant.
  RecordValues(RecordFields fields, Sizes sizes);

  // The record `key` as write `stamp` leaves it. Its sizes follow from key and stamp; a `size`
  // other than kBySizes is that of the value instead (one field only).
  static constexpr uint64_t kBySizes = UINT64_MAX;
  void Fill(std::string_view key, uint64_t stamp, uint64_t size, std::vector<char>* value) const;
  // The record `old` with field number `field` written anew; the whole record anew if `old` is
  // none.
  void Replace(std::string_view key, uint64_t stamp, uint32_t field, std::string_view old,
               std::vector<char>* value) const;
  // Whether `value` is one whole write of the record `key`.
  bool Verify(std::string_view key, std::string_view value) const;

  // Bytes of a value in the mean.
  uint64_t MeanSize() const;

 private:
  struct FieldView {
    std::string_view name;
    std::string_view contents;
  };

  // The fields of a record of several; false if it is none of this form.
  bool Split(std::string_view value, std::vector<FieldView>* fields) const;
  uint64_t SizeOf(std::string_view key, uint64_t stamp, uint32_t field) const;
  void AppendField(std::string_view key, uint64_t stamp, uint32_t field,
                   std::vector<char>* value) const;
  void SetCheck(std::string_view key, std::vector<char>* value) const;

  const RecordFields fields_;
  const Sizes sizes_;
  std::vector<std::string> names_;
};

}  // namespace verbena::bench
