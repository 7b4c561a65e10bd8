// A worker's connection and the operations in flight on it: a part of worker.cc and
// worker_trace.cc.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/load/worker.h"
#include "common/base/clock.h"
#include "common/base/text.h"

namespace verbena::bench {

// A connection and the operations in flight on it.
class Worker::Lane final : public CompletionSink {
 public:
  Lane(Worker* worker, Backend* backend, uint32_t depth)
      : worker_(worker), backend_(backend), slots_(depth) {
    backend_->set_sink(this);
    keys_.resize(worker->names_.max_size() * depth);
  }

  // Operations that were given up may still finish when the connection is closed.
  ~Lane() override { backend_->set_sink(nullptr); }

  // Closed loop: fills every slot.
  void Start() {
    for (uint32_t i = 0; i < slots_.size(); ++i) SubmitNext(i, 0);
  }
  // Open loop: every slot waits for what is due.
  void StartIdle() {
    for (uint32_t i = static_cast<uint32_t>(slots_.size()); i-- > 0;) free_.push_back(i);
  }
  bool has_room() const { return !free_.empty() && backend_->status().ok(); }
  // Submits the operation that was due then; only with has_room().
  void SubmitDue(int64_t due) {
    const uint32_t index = free_.back();
    free_.pop_back();
    if (!SubmitNext(index, due)) free_.push_back(index);
  }
  // Submits a request of a trace and takes its contents; `due` 0: now. Only with has_room().
  void SubmitRequest(TraceRequest* request, int64_t due) {
    const uint32_t index = free_.back();
    Slot& slot = slots_[index];
    std::swap(slot.request, *request);
    slot.key = slot.request.key;
    slot.kind = KindOf(slot.request.op);
    slot.field = Operation::kAllFields;
    if (const absl::Status status = SubmitFirst(index, due); !status.ok()) {
      worker_->RecordFailure(slot.kind, slot.times, status);
      if (!backend_->status().ok()) worker_->RecordLoss(backend_->status());
      return;
    }
    free_.pop_back();
    slot.busy = true;
    ++in_flight_;
  }
  bool active() const { return in_flight_ > 0; }
  BackendCounters counters() const { return backend_->counters(); }

  // `timeout` 0 polls.
  int Progress(std::chrono::nanoseconds timeout) {
    if (waiting_ > 0) TryAgain();
    const int finished = timeout.count() == 0 ? backend_->Poll() : backend_->Wait(timeout);
    if (!backend_->status().ok()) GiveUp(backend_->status());
    return finished;
  }

  // Counts everything in flight as failed.
  void GiveUp(const absl::Status& status) {
    for (Slot& slot : slots_) {
      if (slot.busy) worker_->RecordFailure(slot.kind, slot.times, status);
      slot.busy = false;
      slot.try_again_at = 0;
    }
    in_flight_ = waiting_ = 0;
    worker_->RecordLoss(status);
  }

  void OnRead(uint32_t index, const absl::Status& status, std::string_view value) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    if (slot.kind != OpKind::kRead) return OnFirstRead(index, now, status, value);
    if (status.ok()) {
      worker_->RecordSuccess(slot.kind, slot.times, now);
      if (backend_->keeps_values()) worker_->Verify(slot.key, value);
    } else if (worker_->CameToNothing(slot.kind, slot.times, status)) {
      worker_->RecordSuccess(slot.kind, slot.times, now);
      if (FillAfterMiss(index)) return;
    } else {
      worker_->RecordFailure(slot.kind, slot.times, status);
    }
    Finish(index);
  }

  void OnWrite(uint32_t index, const absl::Status& status) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    if (!status.ok() && WaitToTryAgain(index)) return;
    if (slot.kind == OpKind::kReadModifyWrite) {
      worker_->RecordPart(OpKind::kUpdate, slot.times, slot.part, now, status);
    }
    if (status.ok() || worker_->CameToNothing(slot.kind, slot.times, status)) {
      worker_->RecordSuccess(slot.kind, slot.times, now);
    } else {
      worker_->RecordFailure(slot.kind, slot.times, status);
    }
    Finish(index);
  }

  // Nobody deletes: the record that a scan starts at is there, and the scan's first.
  void OnScan(uint32_t index, const absl::Status& status,
              std::span<const ScannedRecord> records) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    const std::string_view start = slot.key;
    if (!status.ok()) {
      worker_->RecordFailure(slot.kind, slot.times, status);
    } else if (records.empty() || records.front().key != start) {
      worker_->RecordFailure(
          slot.kind, slot.times,
          absl::NotFoundError(absl::StrCat("a scan did not find ", ToAbsl(start))));
    } else {
      worker_->RecordSuccess(slot.kind, slot.times, now);
      worker_->VerifyScan(records, slot.scan_length);
    }
    Finish(index);
  }

 private:
  struct Slot {
    Times times;
    OpKind kind = OpKind::kRead;
    bool busy = false;
    std::string_view key;  // of keys_, or of the request
    uint64_t record = 0;
    uint32_t scan_length = 0;  // most records that a scan may find
    uint32_t field = 0;        // the one to write anew, or Operation::kAllFields
    Times part;                // of the write that follows a read
    uint32_t attempts = 0;     // of an insert of the load
    int64_t try_again_at = 0;  // monotonic nanoseconds; 0: it is under way
    std::vector<char> value;   // made when first needed
    TraceRequest request;      // of a trace
  };

  // As what a request of a trace counts.
  static OpKind KindOf(TraceOp op) {
    switch (op) {
      case TraceOp::kRead:
        return OpKind::kRead;
      case TraceOp::kStore:
      case TraceOp::kReplace:
        return OpKind::kUpdate;
      case TraceOp::kAdd:
        return OpKind::kInsert;
      case TraceOp::kExtend:
      case TraceOp::kCount:
        return OpKind::kReadModifyWrite;
      case TraceOp::kDelete:
        return OpKind::kDelete;
    }
    return OpKind::kRead;
  }

  // How its value is written. What was read before is still wanted only if it is still there.
  static WriteOptions WriteOptionsOf(const TraceRequest& request) {
    WriteOptions options;
    options.ttl = std::chrono::seconds(request.ttl_seconds);
    if (request.op == TraceOp::kAdd) {
      options.condition = WriteOptions::Condition::kIfAbsent;
    } else if (request.op != TraceOp::kStore) {
      options.condition = WriteOptions::Condition::kIfPresent;
    }
    return options;
  }

  char* KeyOf(uint32_t index) { return keys_.data() + index * worker_->names_.max_size(); }

  void Finish(uint32_t index) {
    Slot& slot = slots_[index];
    slot.busy = false;
    --in_flight_;
    EndInsert(slot);
    if (worker_->open_.has_value() || worker_->trace_.has_value()) {
      free_.push_back(index);
    } else {
      SubmitNext(index, 0);
    }
  }

  void EndInsert(const Slot& slot) {
    if (slot.kind == OpKind::kInsert && worker_->config_.command != Command::kLoad &&
        !worker_->trace_.has_value()) {
      worker_->control_->inserts.Acknowledge(slot.record);
    }
  }

  // The first half of a read-modify-write, and of an update that leaves other fields what they are.
  void OnFirstRead(uint32_t index, int64_t now, const absl::Status& status,
                   std::string_view value) {
    Slot& slot = slots_[index];
    if (worker_->CameToNothing(slot.kind, slot.times, status)) {
      worker_->RecordSuccess(slot.kind, slot.times, now);
      return Finish(index);
    }
    if (slot.kind == OpKind::kReadModifyWrite) {
      worker_->RecordPart(OpKind::kRead, slot.times, slot.times, now, status);
    }
    absl::Status result = status;
    if (status.ok()) {
      if (backend_->keeps_values()) worker_->Verify(slot.key, value);
      const uint64_t longer = slot.request.op == TraceOp::kExtend ? slot.request.value_size : 0;
      const uint64_t size = worker_->trace_ ? value.size() + longer : RecordValues::kBySizes;
      worker_->MakeValue(slot.key, size, slot.field, value, &slot.value);
      slot.part.due = slot.part.started = worker_->clock_.Now();
      result = SubmitValue(index);
      if (result.ok()) return;
    }
    worker_->RecordFailure(slot.kind, slot.times, result);
    Finish(index);
  }

  absl::Status SubmitValue(uint32_t index) {
    const Slot& slot = slots_[index];
    const std::string_view value(slot.value.data(), slot.value.size());
    if (!worker_->trace_.has_value()) return backend_->SubmitWrite(index, slot.key, value);
    return backend_->SubmitWriteWith(index, slot.key, value, WriteOptionsOf(slot.request));
  }

  // What a cache's user does after a miss: writes the value. That is an insert of its own.
  bool FillAfterMiss(uint32_t index) {
    Slot& slot = slots_[index];
    if (!worker_->config_.trace.fill_on_miss || slot.request.value_size == 0) return false;
    slot.kind = OpKind::kInsert;
    slot.request.op = TraceOp::kStore;
    const absl::Status status = SubmitFirst(index, 0);
    if (!status.ok()) worker_->RecordFailure(slot.kind, slot.times, status);
    if (slot.times.due >= worker_->begin_ticks_) ++worker_->trace_->outcome.fills;
    return status.ok();
  }

  // Whether an insert of the load that has failed is to be tried again, after a pause.
  bool WaitToTryAgain(uint32_t index) {
    Slot& slot = slots_[index];
    const Config& config = worker_->config_;
    if (config.command != Command::kLoad || slot.attempts >= config.insert_retries) return false;
    ++slot.attempts;
    ++waiting_;
    slot.try_again_at = MonotonicNanos() + worker_->RetryPause();
    return true;
  }

  // Inserts whose pause is over. A lane with nothing else to do sleeps for a moment.
  void TryAgain() {
    if (waiting_ == in_flight_) std::this_thread::sleep_for(kRetrySlice);
    const bool stopped = worker_->control_->stop.load(std::memory_order_relaxed);
    const int64_t now = MonotonicNanos();
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.busy || slot.try_again_at == 0 || (slot.try_again_at > now && !stopped)) continue;
      slot.try_again_at = 0;
      --waiting_;
      absl::Status status = stopped ? absl::CancelledError("the load was stopped") : SubmitValue(i);
      if (status.ok()) continue;
      worker_->RecordFailure(slot.kind, slot.times, status);
      Finish(i);
    }
  }

  // Submits what the operation begins with; where that is a write, makes its value first.
  absl::Status SubmitFirst(uint32_t index, int64_t due) {
    Slot& slot = slots_[index];
    const std::string_view key = slot.key;
    const bool one_field = slot.field != Operation::kAllFields;
    const bool writes =
        slot.kind == OpKind::kInsert || (slot.kind == OpKind::kUpdate && !one_field);
    if (writes) {
      const uint64_t size =
          worker_->trace_.has_value() ? slot.request.value_size : RecordValues::kBySizes;
      worker_->MakeValue(key, size, Operation::kAllFields, {}, &slot.value);
    }
    slot.times.started = worker_->clock_.Now();
    slot.times.due = due == 0 ? slot.times.started : due;
    if (writes) return SubmitValue(index);
    switch (slot.kind) {
      case OpKind::kScan:
        return backend_->SubmitScan(index, key, worker_->prefix_, slot.scan_length);
      case OpKind::kDelete:
        return backend_->SubmitDelete(index, key);
      default:
        return backend_->SubmitRead(index, key);
    }
  }

  // The next operation of the worker, if there is one; `due` 0: when it is submitted. Returns
  // whether one is in flight in this slot then. In a closed loop what cannot be submitted is
  // followed by the next.
  bool SubmitNext(uint32_t index, int64_t due) {
    Slot& slot = slots_[index];
    Operation operation;
    while (backend_->status().ok() && worker_->NextOperation(due, &operation)) {
      char* const key_bytes = KeyOf(index);
      slot.key = {key_bytes,
                  worker_->names_.Write(operation.record, {key_bytes, worker_->names_.max_size()})};
      slot.kind = operation.kind;
      slot.record = operation.record;
      slot.scan_length = operation.length;
      slot.field = operation.field;
      slot.attempts = 0;
      const absl::Status status = SubmitFirst(index, due);
      if (status.ok()) {
        slot.busy = true;
        ++in_flight_;
        return true;
      }
      worker_->RecordFailure(slot.kind, slot.times, status);
      EndInsert(slot);
      if (due != 0) break;
    }
    if (!backend_->status().ok()) worker_->RecordLoss(backend_->status());
    return false;
  }

  // How exactly the pause before an insert is tried again is kept, where there is nothing else to
  // do.
  static constexpr std::chrono::milliseconds kRetrySlice{1};

  Worker* const worker_;
  Backend* const backend_;
  std::vector<Slot> slots_;
  std::vector<char> keys_;
  std::vector<uint32_t> free_;  // open loop: slots that nothing is in flight in
  uint32_t in_flight_ = 0;
  uint32_t waiting_ = 0;  // of these, how many are inserts that wait to be tried again
};

}  // namespace verbena::bench
