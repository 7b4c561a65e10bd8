// Several operations at once, asynchronously: as many as there is room for are begun, and another
// one whenever one has ended.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "client/src/batch_run.h"
#include "client/src/connection_impl.h"
#include "common/base/macros.h"
#include "verbena/batch.h"

namespace verbena {

using client::BatchRun;
using client::OperationGroup;
using client::SyncCall;

absl::Status Connection::Impl::SubmitExecute(Batch&& batch, BatchCallback&& callback,
                                             const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckRoom());
  VERBENA_ASSIGN_OR_RETURN(const OperationGroup group, GroupFor(options.timeout));
  auto made = std::make_unique<BatchRun>(std::move(batch), group, std::move(callback));
  made->batch.results_.assign(made->batch.size(), BatchResult());
  BatchRun& run = *made.release();  // see EndedOf
  BeginMore(run);
  if (run.in_flight != 0) return absl::OkStatus();
  // The callback must not run in here, so it comes with the answer to a request that does nothing.
  Operation& op = pool_.Acquire(OperationKind::kPing);
  op.sync = &run.place;
  op.timeout_ns = run.group.timeout_ns;
  ++run.in_flight;
  requests_.Add(op.slot, wire::OpCode::kPing, {}, {});
  return absl::OkStatus();
}

// Of a dead connection all fail at once. None ends while it is begun.
void Connection::Impl::BeginMore(BatchRun& run) {
  while (run.next < run.batch.size() && (!dead_.ok() || !pool_.full())) {
    const size_t i = run.next++;
    SyncCall& call = run.calls[i];
    call.value = &run.batch.results_[i].value;
    call.status = StartOfBatch(run.batch, i, &call);
    if (call.status.ok()) ++run.in_flight;
  }
}

// One of its operations has ended, so there is room for another. Each run has one in flight until
// nothing is left to be begun: so it gets on, whatever others do.
void Connection::Impl::EndedOf(BatchRun& run) {
  --run.in_flight;
  BeginMore(run);
  if (run.in_flight != 0) return;
  const std::unique_ptr<BatchRun> ended(&run);
  absl::Status first = std::move(run.place.status);
  if (!run.calls.empty()) first = absl::OkStatus();
  for (size_t i = 0; i < run.batch.size(); ++i) TakeOutcome(run.calls[i], i, &run.batch, &first);
  RunCallback(run.callback, first, std::move(run.batch));
}

// Whether SubmitExecute would refuse. Those below ask before they take their callback: one that is
// refused goes with the caller, when nothing of this is used any more. (It may own the connection.)
absl::Status Connection::Impl::CheckRun(const Timeout& timeout) {
  VERBENA_RETURN_IF_ERROR(CheckRoom());
  return TimeoutOf(timeout).status();
}

// An empty batch is nothing but the round trip.
absl::Status Connection::Impl::SubmitPing(StatusCallback&& callback, const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckRun(options.timeout));
  auto kept = std::make_unique<StatusCallback>(std::move(callback));
  return SubmitExecute(
      Batch(),
      [kept = std::move(kept)](const absl::Status& status, const Batch&) {
        if (*kept) (*kept)(status);
      },
      options);
}

// The others are batches of one kind, whose callback does not fit into that of a batch.

absl::Status Connection::Impl::SubmitMultiGet(std::span<const std::string_view> keys,
                                              MultiGetCallback&& callback,
                                              const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckRun(options.timeout));
  Batch batch;
  for (const std::string_view key : keys) batch.Get(key);
  auto kept = std::make_unique<MultiGetCallback>(std::move(callback));
  return SubmitExecute(
      std::move(batch),
      [kept = std::move(kept)](const absl::Status& status, Batch ended) {
        if (!*kept) return;
        std::vector<GetItem> items(ended.size());
        for (size_t i = 0; i < items.size(); ++i) {
          BatchResult& result = ended.results_[i];
          items[i] = {std::move(result.status), std::move(result.value), result.change.version};
        }
        (*kept)(status, std::move(items));
      },
      options);
}

namespace {

BatchCallback ForChanges(MultiChangeCallback&& callback) {
  auto kept = std::make_unique<MultiChangeCallback>(std::move(callback));
  return [kept = std::move(kept)](const absl::Status& status, const Batch& ended) {
    if (!*kept) return;
    std::vector<absl::StatusOr<ChangeResult>> outcomes;
    outcomes.reserve(ended.size());
    for (size_t i = 0; i < ended.size(); ++i) {
      const BatchResult& result = ended.result(i);
      if (result.status.ok()) {
        outcomes.emplace_back(result.change);
      } else {
        outcomes.emplace_back(result.status);
      }
    }
    (*kept)(status, std::move(outcomes));
  };
}

}  // namespace

absl::Status Connection::Impl::SubmitMultiPut(std::span<const KeyValue> items,
                                              MultiChangeCallback&& callback,
                                              const PutOptions& options) {
  VERBENA_RETURN_IF_ERROR(PutRequest(options).status());
  VERBENA_RETURN_IF_ERROR(CheckRun(options.timeout));
  const PutOptions each = {.condition = options.condition, .ttl = options.ttl};
  Batch batch;
  for (const KeyValue& item : items) batch.Put(item.key, item.value, each);
  return SubmitExecute(std::move(batch), ForChanges(std::move(callback)),
                       {.timeout = options.timeout});
}

absl::Status Connection::Impl::SubmitMultiDelete(std::span<const std::string_view> keys,
                                                 MultiChangeCallback&& callback,
                                                 const CallOptions& options) {
  VERBENA_RETURN_IF_ERROR(CheckRun(options.timeout));
  Batch batch;
  for (const std::string_view key : keys) batch.Delete(key);
  return SubmitExecute(std::move(batch), ForChanges(std::move(callback)), options);
}

absl::Status Connection::SubmitExecute(Batch&& batch, BatchCallback callback,
                                       const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitExecute(std::move(batch), std::move(callback), options);
}
absl::Status Connection::SubmitPing(StatusCallback callback, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitPing(std::move(callback), options);
}
absl::Status Connection::SubmitMultiGet(std::span<const std::string_view> keys,
                                        MultiGetCallback callback, const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitMultiGet(keys, std::move(callback), options);
}
absl::Status Connection::SubmitMultiPut(std::span<const KeyValue> items,
                                        MultiChangeCallback callback, const PutOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitMultiPut(items, std::move(callback), options);
}
absl::Status Connection::SubmitMultiDelete(std::span<const std::string_view> keys,
                                           MultiChangeCallback callback,
                                           const CallOptions& options) {
  const Impl::Call call(*impl_);
  return impl_->SubmitMultiDelete(keys, std::move(callback), options);
}

}  // namespace verbena
