// Store: changes that depend on what is there. Deletions, and edits, which make a new value out of
// the present one.
#include <array>
#include <cassert>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/macros.h"
#include "server/storage/allocator.h"
#include "server/storage/index.h"
#include "server/storage/item_parts.h"
#include "server/storage/pins.h"
#include "server/storage/store.h"
#include "server/storage/store_worker.h"

namespace verbena::storage {
namespace {

using layout::ItemHeader;
using layout::KeyHash;

// The longest number: a minus and 19 digits.
constexpr size_t kMaxNumberSize = 20;

// Numbers have one form each, so that what Add has written it can read, and nothing else is taken
// for a number: an optional minus and digits, no zeros ahead, in the range of int64_t.
std::optional<int64_t> ParseNumber(std::span<const uint8_t> value) {
  const char* const begin = AsChars(value.data());
  const char* const end = begin + value.size();
  if (value.empty() || value.size() > kMaxNumberSize) return std::nullopt;
  const bool negative = *begin == '-';
  const char* const digits = begin + (negative ? 1 : 0);
  if (digits == end || (*digits == '0' && value.size() > 1)) return std::nullopt;
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

// What an edit makes of a value: itself or nothing, and `tail` behind that.
struct Store::Edited {
  bool keep = false;
  std::span<const uint8_t> tail;
};

// What an edit has found.
struct Store::Found {
  bool found = false;
  ItemHeader header{};
  uint64_t offset = 0;  // of the block

  uint64_t kept(const Edited& edited) const { return edited.keep ? header.value_len : 0; }
};

absl::StatusOr<DeleteResult> Store::DeleteIf(int worker, std::string_view key,
                                             const Condition& condition,
                                             absl::FunctionRef<bool(ValueBytes)> take) {
  assert(worker >= 0 && worker <= options_.workers);
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, 0));
  const KeyHash hash = index_->Hash(key);
  index_->Prefetch(hash);
  ChangeScope scope(*index_, hash);
  DeleteResult result;
  if (!Find(scope, worker, hash, key)) {
    result.outcome = Outcome::kAbsent;
    return result;
  }
  const ItemHeader header = scope.item();
  result = {.existed = true,
            .outcome = Judge(condition, true, header.version),
            .value_len = header.value_len,
            .version = header.version};
  if (result.outcome != Outcome::kDone) return result;
  if (!take({scope.block() + kBodyOffset + header.key_len, header.value_len})) {
    result.outcome = Outcome::kTooLong;
    return result;
  }
  RemoveFound(scope, worker, hash);
  return result;
}

absl::StatusOr<DeleteResult> Store::Delete(int worker, std::string_view key,
                                           const Condition& condition) {
  return DeleteIf(worker, key, condition, [](ValueBytes) { return true; });
}

absl::StatusOr<DeleteResult> Store::Take(int worker, std::string_view key, std::span<uint8_t> out,
                                         const Condition& condition) {
  return DeleteIf(worker, key, condition, [out](ValueBytes value) {
    if (value.size() > out.size()) return false;
    if (!value.empty()) std::memcpy(out.data(), value.data(), value.size());
    return true;
  });
}

absl::StatusOr<AddResult> Store::Add(int worker, std::string_view key, int64_t summand,
                                     const Condition& condition) {
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, 0));
  std::array<char, kMaxNumberSize> text;
  int64_t sum = 0;
  const auto add = [&](bool found, ValueBytes value, Edited* edited) {
    const std::optional<int64_t> old = found ? ParseNumber(value) : 0;
    if (!old.has_value()) return Outcome::kNotANumber;
    if (__builtin_add_overflow(*old, summand, &sum)) return Outcome::kOverflow;
    const char* const end = std::to_chars(text.data(), text.data() + text.size(), sum).ptr;
    edited->tail = {reinterpret_cast<const uint8_t*>(text.data()),
                    static_cast<size_t>(end - text.data())};
    return Outcome::kDone;
  };
  VERBENA_ASSIGN_OR_RETURN(const PutResult put, Edit(worker, key, condition, add));
  AddResult result{put};
  if (put.outcome == Outcome::kDone) result.number = sum;
  return result;
}

absl::StatusOr<PutResult> Store::Append(int worker, std::string_view key,
                                        std::span<const uint8_t> suffix,
                                        const Condition& condition) {
  VERBENA_RETURN_IF_ERROR(CheckSizes(key, suffix.size()));
  uint64_t size = 0;
  const auto append = [&](bool /*found*/, ValueBytes value, Edited* edited) {
    size = uint64_t{value.size()} + suffix.size();
    if (size > options_.max_value_size) return Outcome::kTooLong;
    *edited = {true, suffix};
    return Outcome::kDone;
  };
  VERBENA_ASSIGN_OR_RETURN(const PutResult put, Edit(worker, key, condition, append));
  if (put.outcome == Outcome::kTooLong) return CheckSizes(key, size);
  return put;
}

// An item that keeps its size class is changed in place, under the lock, if it is small or there is
// no memory for another one. Else the new item is made ahead of the lock and published only if the
// key has the same version still: a version stands for one value, so nothing can have happened in
// between that is lost. If it has another one, somebody else has made a change, and all begins
// anew; so of several that edit one key, one always gets on.
absl::StatusOr<PutResult> Store::Edit(
    int worker, std::string_view key, const Condition& condition,
    absl::FunctionRef<Outcome(bool found, ValueBytes, Edited*)> edit) {
  assert(worker >= 0 && worker <= options_.workers);
  const KeyHash hash = index_->Hash(key);
  index_->Prefetch(hash);
  bool no_memory = false;
  for (;;) {
    Found old;
    Edited edited;
    {
      ChangeScope scope(*index_, hash);
      old.found = Find(scope, worker, hash, key);
      if (old.found) old.header = scope.item();
      PutResult present = {old.header.version, old.found,
                           Judge(condition, old.found, old.header.version)};
      ValueBytes value;
      if (old.found) value = {scope.block() + kBodyOffset + key.size(), old.header.value_len};
      if (present.outcome == Outcome::kDone) present.outcome = edit(old.found, value, &edited);
      if (present.outcome != Outcome::kDone) return present;
      if (old.found) {
        old.offset = scope.slot().offset();
        const uint64_t size = layout::ItemSize(key.size(), old.kept(edited) + edited.tail.size());
        const uint32_t size_class = layout::SizeClassFor(size);
        if (size_class == scope.slot().size_class() && size_class != layout::kRunClass &&
            (size <= kMaxStaged || no_memory) && !pins_->IsPinned(old.offset)) {
          return EditInPlace(scope, worker, old.kept(edited), edited.tail);
        }
      }
    }
    absl::StatusOr<PreparedPut> put = PrepareEdited(worker, hash, key, old, edited);
    if (!put.ok()) {
      if (no_memory || !absl::IsResourceExhausted(put.status())) return std::move(put).status();
      no_memory = true;
      continue;
    }
    if (!put->valid()) continue;
    VERBENA_ASSIGN_OR_RETURN(const PutResult result, Publish(*std::move(put)));
    if (result.outcome == Outcome::kDone) return result;
  }
}

PutResult Store::EditInPlace(ChangeScope& scope, int worker, uint64_t keep,
                             std::span<const uint8_t> tail) {
  const ItemHeader header = scope.item();
  const std::span<const uint8_t> front(scope.block() + kBodyOffset, header.key_len + keep);
  const uint64_t body_check = BodyCheckOfParts(front, tail, region_.hash_seed());
  return OverwriteFound(scope, worker, keep, tail, header.flags, body_check);
}

// The edited item in a block of its own, to be published if the key is still as it was found. Not
// valid() if it is known not to be.
//
// The value that is kept is copied without the lock, and others may write to its block meanwhile.
// So the copy is judged as a remote reader judges it: by the check of the item that was found.
absl::StatusOr<PreparedPut> Store::PrepareEdited(int worker, KeyHash hash, std::string_view key,
                                                 const Found& old, const Edited& edited) {
  const uint64_t keep = old.kept(edited);
  PutOptions options;
  options.flags = old.header.flags;
  options.keep_due = true;
  options.condition =
      old.found ? Condition{Require::kVersion, old.header.version} : Condition{Require::kAbsent, 0};
  VERBENA_ASSIGN_OR_RETURN(PreparedPut put,
                           PrepareBlock(worker, hash, key, keep + edited.tail.size(), options));
  uint8_t* const value = put.value().data();
  CopyToShared(value + keep, edited.tail.data(), edited.tail.size());
  if (keep == 0) return put;
  const uint64_t key_size = key.size();
  CopyShared(value, region_.At(old.offset) + kBodyOffset + key_size, keep);
  layout::BodyHash body(region_.hash_seed());
  body.Add({value - key_size, key_size + keep});
  const uint64_t header_check = layout::HeaderCheck(old.header, old.offset, region_.hash_seed());
  if (layout::CombineChecks(header_check, body.Check()) != old.header.check) return PreparedPut();
  body.Add(edited.tail);
  put.body_check_ = body.Check();
  put.sealed_ = true;
  return put;
}

}  // namespace verbena::storage
