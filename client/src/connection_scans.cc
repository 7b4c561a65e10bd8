// Scans, times to live, and telling the server what was read.
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "common/base/macros.h"
#include "common/base/text.h"

namespace verbena {

using std::chrono::milliseconds;

absl::Status Connection::Impl::CheckTtl(milliseconds ttl) {
  if (ttl.count() >= 1 && static_cast<uint64_t>(ttl.count()) <= wire::kMaxTtlMillis) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a time to live of ", ttl.count(),
                                                 " ms is out of range: 1 ms to 100 years (",
                                                 wire::kMaxTtlMillis, " ms)"));
}

absl::StatusOr<wire::OperationHeader> Connection::Impl::ExpireRequest(
    const std::optional<milliseconds>& ttl) {
  if (ttl.has_value()) VERBENA_RETURN_IF_ERROR(CheckTtl(*ttl));
  wire::OperationHeader header{};
  header.code =
      static_cast<uint8_t>(ttl.has_value() ? wire::OpCode::kExpire : wire::OpCode::kPersist);
  if (ttl.has_value()) header.argument = static_cast<uint64_t>(ttl->count());
  return header;
}

absl::StatusOr<ChangeResult> Connection::Impl::Expire(std::string_view key,
                                                      const std::optional<milliseconds>& ttl) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, ExpireRequest(ttl));
  return RequestChange(OperationKind::kExpire, header, key, {}, nullptr);
}

absl::Status Connection::Impl::SubmitExpire(std::string_view key,
                                            const std::optional<milliseconds>& ttl,
                                            ChangeCallback&& callback) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, ExpireRequest(ttl));
  return SubmitChange(OperationKind::kExpire, header, key, {}, std::move(callback));
}

absl::StatusOr<std::optional<milliseconds>> Connection::Impl::Ttl(std::string_view key) {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(wire::OpCode::kTtl);
  VERBENA_ASSIGN_OR_RETURN(const ChangeResult result,
                           RequestChange(OperationKind::kTtl, header, key, {}, nullptr));
  if (result.number == 0) return std::nullopt;
  return milliseconds(result.number);
}

// The server names keys and where their items lie, as many as fit a message; they are fetched by
// READs, posted together. An item that is not there any more is asked for like any other, so that
// what is delivered was the key's value at some time during the scan.
absl::Status Connection::Impl::Scan(const ScanRange& range, size_t limit,
                                    std::vector<ScanItem>* items) {
  items->clear();
  if (range.start.size() > limits_.max_key_size) return KeyError(range.start);
  if (range.prefix.size() > limits_.max_key_size) {
    return absl::InvalidArgumentError(absl::StrCat("the prefix has ", range.prefix.size(),
                                                   " bytes, keys have at most ",
                                                   limits_.max_key_size));
  }
  const size_t most =
      sizeof(wire::RequestHeader) + wire::OperationSize(limits_.max_key_size, range.prefix.size());
  if (most > requests_.max_message()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a scan with a prefix of ", range.prefix.size(), " bytes takes messages of ",
                     most, " bytes, the server takes ", requests_.max_message()));
  }
  std::string start(range.start);
  bool after = range.after;
  bool more = true;
  while (more && items->size() < limit) {
    ScanAnswer answer;
    VERBENA_RETURN_IF_ERROR(AskForKeys(start, after, range.prefix, limit - items->size(), &answer));
    more = answer.more;
    if (answer.keys.empty()) break;
    start.assign(answer.keys.back().key);
    after = true;
    VERBENA_RETURN_IF_ERROR(Fetch(answer.keys, range.keys_only, items));
  }
  return absl::OkStatus();
}

absl::Status Connection::Impl::AskForKeys(std::string_view start, bool after,
                                          std::string_view prefix, uint64_t limit,
                                          ScanAnswer* answer) {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(wire::OpCode::kScan);
  header.flags = after ? wire::kOpAfter : uint8_t{0};
  header.argument = limit;
  SyncCall call;
  call.value = &answer->bytes;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kScan, &call));
  requests_.Add(op->slot, header, start, prefix);
  FinishSync(&call);
  VERBENA_RETURN_IF_ERROR(call.status);
  answer->more = call.change.number != 0;
  std::string_view rest = answer->bytes;
  std::string_view last = start;
  for (;;) {
    const absl::StatusOr<std::optional<wire::FoundKey>> found = wire::TakeFoundKey(&rest);
    if (!found.ok()) {
      return absl::InternalError(
          absl::StrCat("the server's answer to a scan makes no sense: ", found.status().message()));
    }
    if (!found->has_value()) return absl::OkStatus();
    const std::string_view key = (*found)->key;
    // A key has to fit a request, and a scan comes to its end because its keys ascend.
    if (key.size() > limits_.max_key_size || !key.starts_with(prefix) || key < last ||
        (after && key == last)) {
      return absl::InternalError(
          absl::StrCat("the server's answer to a scan makes no sense: a key of ", key.size(),
                       " bytes is too long, out of order or without the prefix"));
    }
    answer->keys.push_back(**found);
    last = key;
    after = true;
  }
}

// Appends the items of `keys` that are still there, in this order.
absl::Status Connection::Impl::Fetch(const std::vector<wire::FoundKey>& keys, bool keys_only,
                                     std::vector<ScanItem>* items) {
  if (keys_only) {
    for (const wire::FoundKey& found : keys) items->push_back({std::string(found.key), {}, 0});
    return absl::OkStatus();
  }
  std::vector<SyncCall> calls(keys.size());
  std::vector<std::string> values(keys.size());
  // All calls end before this returns, whatever happens: they lie on its stack.
  size_t started = 0;
  for (; started < keys.size(); ++started) {
    SyncCall& call = calls[started];
    call.value = &values[started];
    const absl::StatusOr<Operation*> op = AcquireSync(OperationKind::kGet, &call);
    if (!op.ok()) break;
    StartGetAt(**op, keys[started].key, layout::Slot{keys[started].slot});
  }
  for (size_t i = 0; i < started; ++i) {
    if (!calls[i].done) FinishSync(&calls[i]);
  }
  VERBENA_RETURN_IF_ERROR(started == keys.size() ? absl::OkStatus() : dead_);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (absl::IsNotFound(calls[i].status)) continue;
    VERBENA_RETURN_IF_ERROR(calls[i].status);
    items->push_back({std::string(keys[i].key), std::move(values[i]), calls[i].version});
  }
  return absl::OkStatus();
}

// A GET of an item that lay in `slot` a moment ago.
void Connection::Impl::StartGetAt(Operation& op, std::string_view key, layout::Slot slot) {
  op.key = key;
  op.hash = layout::KeyHash::Of(key, context_->shape.hash_seed);
  if (options_.one_sided_reads) {
    ActOtherwise(op, op.lookup.StartAt(*context_, slot, key, op.sink));
  } else {
    Ask(op);
  }
}

// A GET in `kTouchEvery`, on average, is reported; the distance varies, so that no pattern of the
// application's hides keys from it. The report has an operation of its own; while it is under way,
// samples that do not fit the next one are dropped.
void Connection::Impl::NoteTouch(layout::KeyHash hash) {
  touch_random_ ^= touch_random_ << 13;
  touch_random_ ^= touch_random_ >> 7;
  touch_random_ ^= touch_random_ << 17;
  touch_countdown_ = 1 + static_cast<uint32_t>(touch_random_ % (2 * kTouchEvery - 1));
  if (!touches_wanted_) return;
  if (touches_.size() < kTouchesInReport) touches_.push_back(hash.bits);
  if (touches_.size() < kTouchesInReport || !dead_.ok()) return;
  Operation* const op = pool_.AcquireExtra(OperationKind::kTouch);
  if (op == nullptr) return;
  requests_.Add(
      op->slot, wire::OpCode::kTouch, {},
      {reinterpret_cast<const char*>(touches_.data()), touches_.size() * sizeof(touches_[0])});
  touches_.clear();
}

}  // namespace verbena
