#include "server/store_handler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "server/storage/change.h"
#include "server/storage/ordered_index.h"

namespace verbena::server {
namespace {

using wire::ResultCode;

constexpr int64_t kMillisecond = 1'000'000;

int64_t DueIn(uint64_t millis) {
  return MonotonicNanos() + static_cast<int64_t>(millis) * kMillisecond;
}

class PendingPut : public net::PendingChange {
 public:
  // `ttl_millis`: 0 for ever.
  PendingPut(storage::PreparedPut put, uint64_t ttl_millis)
      : put_(std::move(put)), ttl_millis_(ttl_millis) {}
  std::span<uint8_t> value() const override { return put_.value(); }
  void Filled(uint64_t bytes) override { put_.Filled(bytes); }
  // To be published now: from here on the time to live counts, however long the value was under
  // way.
  storage::PreparedPut Take() {
    if (ttl_millis_ != 0) put_.set_due_ns(DueIn(ttl_millis_));
    return std::move(put_);
  }

 private:
  storage::PreparedPut put_;
  const uint64_t ttl_millis_;
};

// The store says InvalidArgument for sizes only.
ResultCode CodeOf(const absl::Status& status, std::string_view key) {
  if (absl::IsInvalidArgument(status)) {
    return key.empty() ? ResultCode::kInvalid : ResultCode::kTooLarge;
  }
  return absl::IsResourceExhausted(status) ? ResultCode::kNoSpace : ResultCode::kInternal;
}

net::Change Failed(const absl::Status& status, std::string_view key) {
  net::Change change;
  change.code = CodeOf(status, key);
  change.text = std::string(status.message());
  return change;
}

ResultCode CodeOf(storage::Outcome outcome) {
  switch (outcome) {
    case storage::Outcome::kDone:
      return ResultCode::kOk;
    case storage::Outcome::kExists:
      return ResultCode::kExists;
    case storage::Outcome::kAbsent:
      return ResultCode::kNotFound;
    case storage::Outcome::kOtherVersion:
      return ResultCode::kMismatch;
    case storage::Outcome::kNotANumber:
      return ResultCode::kNotANumber;
    case storage::Outcome::kOverflow:
      return ResultCode::kOverflow;
    case storage::Outcome::kTooLong:
      return ResultCode::kTooLarge;
  }
  return ResultCode::kInternal;
}

// Why nothing was changed, for people; what there is to say beyond the code.
std::string TextOf(storage::Outcome outcome, uint64_t version) {
  switch (outcome) {
    case storage::Outcome::kExists:
      return absl::StrCat("the key is there already, with version ", version);
    case storage::Outcome::kOtherVersion:
      return absl::StrCat("the key has another version, ", version);
    case storage::Outcome::kNotANumber:
      return "the value is not a number: a decimal of 64 bits, with no spaces or zeros ahead";
    case storage::Outcome::kOverflow:
      return "the sum is out of range: numbers have 64 bits with their sign";
    case storage::Outcome::kDone:
    case storage::Outcome::kAbsent:
    case storage::Outcome::kTooLong:
      break;
  }
  return {};
}

// Of a PutResult and what derives from it, or a DeleteResult.
net::Change ChangeOf(const auto& result) {
  net::Change change;
  change.code = CodeOf(result.outcome);
  change.existed = result.existed;
  change.version = result.version;
  if (result.outcome != storage::Outcome::kDone) {
    change.text = TextOf(result.outcome, result.version);
  }
  return change;
}

storage::Condition ConditionOf(const wire::OperationHeader& header) {
  storage::Condition condition;
  if ((header.flags & wire::kOpIfAbsent) != 0) condition.require = storage::Require::kAbsent;
  if ((header.flags & wire::kOpIfPresent) != 0) condition.require = storage::Require::kPresent;
  if ((header.flags & wire::kOpIfVersion) != 0) condition.require = storage::Require::kVersion;
  condition.version = header.expected;
  return condition;
}

// Whether an operation's argument is a time to live that can be.
bool IsTtl(uint64_t millis) { return millis >= 1 && millis <= wire::kMaxTtlMillis; }

net::Change WrongTtl(uint64_t millis) {
  net::Change change;
  change.code = ResultCode::kInvalid;
  change.text =
      absl::StrCat("a time to live of ", millis, " ms is out of range: 1 to ", wire::kMaxTtlMillis);
  return change;
}

bool HasWrongTtl(const wire::OperationHeader& header) {
  return (header.flags & wire::kOpExpires) != 0 && !IsTtl(header.argument);
}

storage::PutOptions OptionsOf(const wire::OperationHeader& header) {
  storage::PutOptions options;
  options.condition = ConditionOf(header);
  if ((header.flags & wire::kOpExpires) != 0) options.due_ns = DueIn(header.argument);
  return options;
}

std::span<const uint8_t> Bytes(std::string_view value) {
  return {reinterpret_cast<const uint8_t*>(value.data()), value.size()};
}

}  // namespace

net::Lookup StoreHandler::Get(int worker, std::string_view key, std::span<uint8_t> room, bool pin) {
  net::Lookup lookup;
  const absl::StatusOr<storage::GetResult> got =
      pin ? store_.GetOrPin(worker, key, room) : store_.Get(worker, key, room);
  if (!got.ok()) {
    lookup.code = CodeOf(got.status(), key);
    lookup.text = std::string(got.status().message());
    return lookup;
  }
  if (!got->found) return lookup;
  lookup.code = got->copied ? ResultCode::kOk : ResultCode::kLocated;
  lookup.value_len = got->value_len;
  lookup.version = got->version;
  lookup.slot = got->slot.bits;
  lookup.check = got->check;
  lookup.flags = got->flags;
  lookup.pin = got->pin;
  return lookup;
}

net::Change StoreHandler::Put(int worker, const wire::Operation& operation) {
  if (HasWrongTtl(operation.header)) return WrongTtl(operation.header.argument);
  const absl::StatusOr<storage::PutResult> put =
      store_.Put(worker, operation.key, Bytes(operation.value), OptionsOf(operation.header));
  return put.ok() ? ChangeOf(*put) : Failed(put.status(), operation.key);
}

net::Change StoreHandler::Delete(int worker, const wire::Operation& operation) {
  const absl::StatusOr<storage::DeleteResult> deleted =
      store_.Delete(worker, operation.key, ConditionOf(operation.header));
  return deleted.ok() ? ChangeOf(*deleted) : Failed(deleted.status(), operation.key);
}

net::Lookup StoreHandler::Take(int worker, const wire::Operation& operation,
                               std::span<uint8_t> room) {
  net::Lookup lookup;
  const absl::StatusOr<storage::DeleteResult> taken =
      store_.Take(worker, operation.key, room, ConditionOf(operation.header));
  if (!taken.ok()) {
    lookup.code = CodeOf(taken.status(), operation.key);
    lookup.text = std::string(taken.status().message());
    return lookup;
  }
  lookup.code = CodeOf(taken->outcome);
  lookup.value_len = taken->value_len;
  lookup.version = taken->version;
  lookup.text = taken->outcome == storage::Outcome::kTooLong
                    ? absl::StrCat("the value has ", taken->value_len,
                                   " bytes and does not fit the answer; it was not deleted")
                    : TextOf(taken->outcome, taken->version);
  return lookup;
}

net::Change StoreHandler::Add(int worker, const wire::Operation& operation) {
  const auto summand = static_cast<int64_t>(operation.header.argument);
  const absl::StatusOr<storage::AddResult> added =
      store_.Add(worker, operation.key, summand, ConditionOf(operation.header));
  if (!added.ok()) return Failed(added.status(), operation.key);
  net::Change change = ChangeOf(*added);
  if (change.code == ResultCode::kOk) {
    change.number = added->number;
    change.text = absl::StrCat(added->number);
  }
  return change;
}

net::Change StoreHandler::Append(int worker, const wire::Operation& operation) {
  const absl::StatusOr<storage::PutResult> put =
      store_.Append(worker, operation.key, Bytes(operation.value), ConditionOf(operation.header));
  return put.ok() ? ChangeOf(*put) : Failed(put.status(), operation.key);
}

net::Change StoreHandler::Expire(int worker, const wire::Operation& operation) {
  const bool persist = operation.header.code == static_cast<uint8_t>(wire::OpCode::kPersist);
  const uint64_t millis = operation.header.argument;
  if (!persist && !IsTtl(millis)) return WrongTtl(millis);
  const absl::StatusOr<storage::ExpireResult> result =
      store_.Expire(worker, operation.key, persist ? storage::kNever : DueIn(millis));
  if (!result.ok()) return Failed(result.status(), operation.key);
  net::Change change;
  change.code = result->found ? ResultCode::kOk : ResultCode::kNotFound;
  change.existed = result->due_ns != storage::kNever;
  change.version = result->version;
  return change;
}

net::TimeLeft StoreHandler::Ttl(int worker, std::string_view key) {
  net::TimeLeft left;
  const absl::StatusOr<storage::ExpireResult> result = store_.Due(worker, key);
  if (!result.ok()) {
    left.code = CodeOf(result.status(), key);
    left.text = std::string(result.status().message());
    return left;
  }
  if (!result->found) return left;
  left.code = ResultCode::kOk;
  left.version = result->version;
  if (result->due_ns != storage::kNever) {
    const int64_t nanos = std::max<int64_t>(result->due_ns - MonotonicNanos(), 1);
    left.millis = static_cast<uint64_t>((nanos + kMillisecond - 1) / kMillisecond);
  }
  return left;
}

net::ScanPage StoreHandler::Scan(const wire::Operation& operation, std::span<uint8_t> room) {
  net::ScanPage page;
  if (store_.ordered_index() == nullptr) {
    page.code = ResultCode::kUnsupported;
    page.text = "the server keeps no order of the keys: it runs with --ordered_index=off";
    return page;
  }
  const uint64_t limit = operation.header.argument;
  if (limit == 0) {
    page.code = ResultCode::kInvalid;
    page.text = "a scan of 0 keys: ask for 1 or more";
    return page;
  }
  const storage::OrderedIndex::Range range = {
      .start = operation.key,
      .after = (operation.header.flags & wire::kOpAfter) != 0,
      .prefix = operation.value};
  size_t used = 0;
  uint64_t keys = 0;
  // Looks one key further than it takes, so that the end is known without asking again.
  store_.ordered_index()->Scan(range, [&](const storage::OrderedIndex::Found& found) {
    page.more = keys == limit || !wire::AppendFoundKey({found.key, found.slot.bits}, room, &used);
    ++keys;
    return !page.more;
  });
  if (used == 0 && page.more) {
    page.code = ResultCode::kTooLarge;
    page.text = "too many in one request";
    return page;
  }
  page.bytes = static_cast<uint32_t>(used);
  return page;
}

void StoreHandler::Touch(std::string_view hashes) {
  for (; hashes.size() >= sizeof(uint64_t); hashes.remove_prefix(sizeof(uint64_t))) {
    layout::KeyHash hash;
    std::memcpy(&hash.bits, hashes.data(), sizeof(hash.bits));
    store_.Touch(hash);
  }
}

net::Change StoreHandler::Prepare(int worker, const wire::Operation& operation,
                                  std::unique_ptr<net::PendingChange>* pending) {
  if (HasWrongTtl(operation.header)) return WrongTtl(operation.header.argument);
  const storage::PutOptions options = OptionsOf(operation.header);
  // Judged with the change itself, but nothing is to go for one that is refused now.
  if (store_.evicts()) {
    const auto refused = store_.Refused(worker, operation.key, options.condition);
    if (refused.has_value()) return ChangeOf(*refused);
  }
  absl::StatusOr<storage::PreparedPut> prepared =
      store_.PreparePutInto(worker, operation.key, operation.header.value_len, options);
  if (!prepared.ok()) {
    if (absl::IsResourceExhausted(prepared.status())) {
      const auto refused = store_.Refused(worker, operation.key, options.condition);
      if (refused.has_value()) return ChangeOf(*refused);
    }
    return Failed(prepared.status(), operation.key);
  }
  const bool expires = (operation.header.flags & wire::kOpExpires) != 0;
  *pending =
      std::make_unique<PendingPut>(*std::move(prepared), expires ? operation.header.argument : 0);
  return net::Change{};
}

net::Change StoreHandler::Publish(int /*worker*/, std::unique_ptr<net::PendingChange> pending) {
  const absl::StatusOr<storage::PutResult> put =
      store_.Publish(static_cast<PendingPut&>(*pending).Take());
  // The key was judged when the change was prepared.
  return put.ok() ? ChangeOf(*put) : Failed(put.status(), "key");
}

}  // namespace verbena::server
