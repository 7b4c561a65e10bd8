// Scans, times to live, and telling the server what was read.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/connection_impl.h"
#include "client/src/scan_run.h"
#include "common/base/macros.h"
#include "common/base/text.h"

namespace verbena {

using client::ScanRun;
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
                                                      const std::optional<milliseconds>& ttl,
                                                      const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, ExpireRequest(ttl));
  return RequestChange(OperationKind::kExpire, header, key, {}, options.timeout, nullptr);
}

absl::Status Connection::Impl::SubmitExpire(std::string_view key,
                                            const std::optional<milliseconds>& ttl,
                                            ChangeCallback&& callback, const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(const wire::OperationHeader header, ExpireRequest(ttl));
  return SubmitChange(OperationKind::kExpire, header, key, {}, options.timeout,
                      std::move(callback));
}

namespace {

wire::OperationHeader TtlRequest() {
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(wire::OpCode::kTtl);
  return header;
}

std::optional<milliseconds> TimeLeft(const ChangeResult& result) {
  if (result.number == 0) return std::nullopt;
  return milliseconds(result.number);
}

}  // namespace

absl::StatusOr<std::optional<milliseconds>> Connection::Impl::Ttl(std::string_view key,
                                                                  const CallOptions& options) {
  VERBENA_ASSIGN_OR_RETURN(
      const ChangeResult result,
      RequestChange(OperationKind::kTtl, TtlRequest(), key, {}, options.timeout, nullptr));
  return TimeLeft(result);
}

absl::Status Connection::Impl::SubmitTtl(std::string_view key, TtlCallback&& callback,
                                         const CallOptions& options) {
  // Asked here, so that a callback that is refused is left to the caller (see CheckRun).
  VERBENA_RETURN_IF_ERROR(CheckSubmit(key));
  VERBENA_RETURN_IF_ERROR(TimeoutOf(options.timeout).status());
  // It does not fit into the callback of a change.
  auto kept = std::make_unique<TtlCallback>(std::move(callback));
  return SubmitChange(
      OperationKind::kTtl, TtlRequest(), key, {}, options.timeout,
      [kept = std::move(kept)](const absl::Status& status, const ChangeResult& result) {
        if (!*kept) return;
        (*kept)(status, status.ok() ? TimeLeft(result) : std::nullopt);
      });
}

absl::StatusOr<std::shared_ptr<ScanRun>> Connection::Impl::MakeScan(const ScanRange& range,
                                                                    size_t limit,
                                                                    const CallOptions& options) {
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
  auto run = std::make_shared<ScanRun>();
  VERBENA_ASSIGN_OR_RETURN(run->timeout_ns, TimeoutOf(options.timeout));
  run->start = range.start;
  run->after = range.after;
  run->prefix = range.prefix;
  run->keys_only = range.keys_only;
  run->limit = limit == 0 ? SIZE_MAX : limit;
  return run;
}

absl::Status Connection::Impl::Scan(const ScanRange& range, size_t limit,
                                    std::vector<ScanItem>* items, const CallOptions& options) {
  if (items == nullptr) return absl::InvalidArgumentError("the place for the items is null");
  items->clear();
  VERBENA_ASSIGN_OR_RETURN(const std::shared_ptr<ScanRun> run, MakeScan(range, limit, options));
  SyncCall call;
  VERBENA_ASSIGN_OR_RETURN(Operation* const op, AcquireSync(OperationKind::kScan, &call));
  run->call = &call;
  op->scan = run;
  AskForKeys(*op);
  FinishSync(&call);
  *items = std::move(run->items);
  return std::move(call.status);
}

absl::Status Connection::Impl::SubmitScan(const ScanRange& range, size_t limit,
                                          ScanCallback&& callback, const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckRoom());
  VERBENA_ASSIGN_OR_RETURN(std::shared_ptr<ScanRun> run, MakeScan(range, limit, options));
  run->callback = std::move(callback);
  Operation& op = pool_.Acquire(OperationKind::kScan);
  op.scan = std::move(run);
  AskForKeys(op);
  return absl::OkStatus();
}

// The server names keys and where their items lie, as many as fit a message.
void Connection::Impl::AskForKeys(Operation& op) {
  const ScanRun& run = *op.scan;
  op.kind = OperationKind::kScan;
  BeginStep(op);
  wire::OperationHeader header{};
  header.code = static_cast<uint8_t>(wire::OpCode::kScan);
  header.flags = run.after ? wire::kOpAfter : uint8_t{0};
  header.argument = run.limit - run.items.size();
  requests_.Add(op.slot, header, run.start, run.prefix);
}

// Each step of a scan has a deadline of its own.
void Connection::Impl::BeginStep(Operation& op) {
  op.first_seen = 0;
  op.late = false;
  op.asks = 0;
  op.timeout_ns = op.scan->timeout_ns;
}

absl::Status Connection::Impl::TakeKeys(ScanRun& run, const wire::Result& result) {
  VERBENA_RETURN_IF_ERROR(ResultError(result));
  run.bytes = result.value;
  run.more = result.header.argument != 0;
  run.keys.clear();
  std::string_view rest = run.bytes;
  std::string_view last = run.start;
  bool after = run.after;
  for (;;) {
    const absl::StatusOr<std::optional<wire::FoundKey>> found = wire::TakeFoundKey(&rest);
    if (!found.ok()) {
      return absl::InternalError(
          absl::StrCat("the server's answer to a scan makes no sense: ", found.status().message()));
    }
    if (!found->has_value()) return absl::OkStatus();
    if (run.keys.size() == run.limit - run.items.size()) {
      return absl::InternalError(
          "the server's answer to a scan makes no sense: it has more keys than were asked for");
    }
    const std::string_view key = (*found)->key;
    // A key has to fit a request, and a scan comes to its end because its keys ascend.
    if (key.size() > limits_.max_key_size || !key.starts_with(run.prefix) || key < last ||
        (after && key == last)) {
      return absl::InternalError(
          absl::StrCat("the server's answer to a scan makes no sense: a key of ", key.size(),
                       " bytes is too long, out of order or without the prefix"));
    }
    run.keys.push_back(**found);
    last = key;
    after = true;
  }
}

// The values are fetched by READs, posted together: by the operation that asked, and by others as
// far as there are free places. A scan gets on with the one that it has, whatever others do.
void Connection::Impl::OnScanAnswer(Operation& op, const wire::Result& result) {
  const std::shared_ptr<ScanRun> run = op.scan;
  run->status = TakeKeys(*run, result);
  run->next = 0;
  run->base = run->items.size();
  if (!run->status.ok()) run->keys.clear();
  if (run->keys_only) {
    for (const wire::FoundKey& found : run->keys) {
      run->items.push_back({std::string(found.key), {}, 0});
    }
    run->next = run->keys.size();
  } else {
    run->items.resize(run->base + run->keys.size());
  }
  ContinueScan(op);
  const uint32_t most = std::max(options_.depth / 2, 1u);
  while (run->status.ok() && run->next < run->keys.size() && run->workers < most && !pool_.full()) {
    Operation& helper = pool_.Acquire(OperationKind::kScanGet);
    helper.scan = run;
    ++run->workers;
    ContinueScan(helper);
  }
}

// The operation's next step: a key, or the next answer if it is the last one, or its end.
void Connection::Impl::ContinueScan(Operation& op) {
  ScanRun& run = *op.scan;
  if (run.status.ok() && run.next < run.keys.size()) {
    const wire::FoundKey& found = run.keys[run.next];
    op.kind = OperationKind::kScanGet;
    op.scan_key = run.next++;
    BeginStep(op);
    StartGetAt(op, found.key, layout::Slot{found.slot});
    return;
  }
  if (run.workers > 1) {
    --run.workers;
    op.scan.reset();
    pool_.Finish(op);
    pool_.Free(op);
    return;
  }
  if (!run.status.ok()) {
    run.items.resize(run.base);
    EndScan(op);
    return;
  }
  std::erase_if(run.items, [](const ScanItem& item) { return item.key.empty(); });
  if (!run.more || run.keys.empty() || run.items.size() >= run.limit) {
    EndScan(op);
    return;
  }
  run.start = run.keys.back().key;
  run.after = true;
  AskForKeys(op);
}

// What a key of a scan has led to. An item that is not there any more is left away.
void Connection::Impl::OnScanGot(Operation& op, const absl::Status& status,
                                 const GetResult& result) {
  ScanRun& run = *op.scan;
  if (status.ok()) {
    run.items[run.base + op.scan_key] = {std::string(op.key), std::string(result.value),
                                         result.version};
  } else if (!absl::IsNotFound(status) && run.status.ok()) {
    run.status = status;
  }
  if (op.space != nullptr) DropSpace(op);
  if (op.pin != 0) DropPin(op);
  ++stats_.gets;
  if (--touch_countdown_ == 0) NoteTouch(op.lookup.hash());
  ContinueScan(op);
}

void Connection::Impl::FailScan(Operation& op, const absl::Status& status) {
  ScanRun& run = *op.scan;
  if (run.status.ok()) run.status = status;
  run.base = run.items.size();
  EndScan(op);
}

void Connection::Impl::EndScan(Operation& op) {
  const std::shared_ptr<ScanRun> run = std::move(op.scan);
  pool_.Finish(op);
  if (run->call != nullptr) {
    run->call->status = run->status;
    run->call->done = true;
  } else {
    RunCallback(run->callback, run->status, std::move(run->items));
  }
  pool_.Free(op);
}

// A GET of an item that lay in `slot` a moment ago.
void Connection::Impl::StartGetAt(Operation& op, std::string_view key, layout::Slot slot) {
  op.key = key;
  op.lookup.set_hash(layout::KeyHash::Of(key, context_->hash_seed));
  if (options_.one_sided_reads) {
    ActOtherwise(op, op.lookup.StartAt(*context_, slot, key));
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
  if (touches_.size() == kTouchesInReport) ReportTouches();
}

void Connection::Impl::ReportTouches() {
  if (!up_ || touches_.empty()) return;
  Operation* const op = pool_.AcquireExtra(OperationKind::kTouch);
  if (op == nullptr) return;
  requests_.Add(
      op->slot, wire::OpCode::kTouch, {},
      {reinterpret_cast<const char*>(touches_.data()), touches_.size() * sizeof(touches_[0])});
  touches_.clear();
}

// Short connections must not keep what they have read to themselves. The answer is waited for,
// since what a queue pair has not sent goes with it, but not for long: it is a hint.
void Connection::Impl::ReportLastTouches() {
  if (touches_.empty() || pool_.used() != 0) return;
  ReportTouches();
  const int64_t until = MonotonicNanos() + kLastReportNanos;
  while (up_ && pool_.extra() != nullptr && MonotonicNanos() < until) PollOnce();
}

}  // namespace verbena
