#include "bench/load/worker.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/workload/random.h"
#include "bench/workload/value.h"
#include "common/base/clock.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

// How long a worker sleeps at most before it looks at RunControl again.
constexpr std::chrono::milliseconds kWaitSlice{50};
// How often a worker with several connections finds none of them ready before it waits for one.
constexpr int kIdleRounds = 1000;
// After `stop`, answers that are still missing are given up after this long. The clients' own
// timeouts are shorter.
constexpr int64_t kDrainNanos = 20'000'000'000;

}  // namespace

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

  void Start() {
    for (uint32_t i = 0; i < slots_.size(); ++i) SubmitNext(i);
  }
  bool active() const { return in_flight_ > 0; }
  BackendCounters counters() const { return backend_->counters(); }

  // `timeout` 0 polls.
  int Progress(std::chrono::nanoseconds timeout) {
    const int finished = timeout.count() == 0 ? backend_->Poll() : backend_->Wait(timeout);
    if (!backend_->status().ok()) GiveUp(backend_->status());
    return finished;
  }

  // Counts everything in flight as failed.
  void GiveUp(const absl::Status& status) {
    for (Slot& slot : slots_) {
      if (slot.busy) worker_->RecordFailure(slot.kind, slot.started, status);
      slot.busy = false;
    }
    in_flight_ = 0;
    worker_->RecordLoss(status);
  }

  void OnRead(uint32_t index, const absl::Status& status, std::string_view value) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    if (status.ok()) {
      worker_->RecordSuccess(slot.kind, slot.started, now);
      if (backend_->keeps_values()) worker_->Verify({KeyOf(index), slot.key_size}, value);
    } else {
      worker_->RecordFailure(slot.kind, slot.started, status);
    }
    Finish(index);
  }

  void OnWrite(uint32_t index, const absl::Status& status) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    if (status.ok()) {
      worker_->RecordSuccess(slot.kind, slot.started, now);
    } else {
      worker_->RecordFailure(slot.kind, slot.started, status);
    }
    Finish(index);
  }

  // Nobody deletes: the record that a scan starts at is there, and the scan's first.
  void OnScan(uint32_t index, const absl::Status& status,
              std::span<const ScannedRecord> records) override {
    const int64_t now = worker_->clock_.Now();
    Slot& slot = slots_[index];
    if (!slot.busy) return;  // given up
    const std::string_view start(KeyOf(index), slot.key_size);
    if (!status.ok()) {
      worker_->RecordFailure(slot.kind, slot.started, status);
    } else if (records.empty() || records.front().key != start) {
      worker_->RecordFailure(
          slot.kind, slot.started,
          absl::NotFoundError(absl::StrCat("a scan did not find ", ToAbsl(start))));
    } else {
      worker_->RecordSuccess(slot.kind, slot.started, now);
      worker_->VerifyScan(records, slot.scan_length);
    }
    Finish(index);
  }

 private:
  struct Slot {
    int64_t started = 0;
    OpKind kind = OpKind::kRead;
    bool busy = false;
    size_t key_size = 0;
    uint32_t scan_length = 0;  // most records that a scan may find
    std::vector<char> value;   // made when first needed
  };

  char* KeyOf(uint32_t index) { return keys_.data() + index * worker_->names_.max_size(); }

  void Finish(uint32_t index) {
    slots_[index].busy = false;
    --in_flight_;
    SubmitNext(index);
  }

  void SubmitNext(uint32_t index) {
    Slot& slot = slots_[index];
    Operation operation;
    while (backend_->status().ok() && worker_->NextOperation(&operation)) {
      char* const key_bytes = KeyOf(index);
      slot.key_size =
          worker_->names_.Write(operation.record, {key_bytes, worker_->names_.max_size()});
      slot.kind = operation.kind;
      const std::string_view key(key_bytes, slot.key_size);
      slot.scan_length = operation.length;
      const bool writes = operation.kind == OpKind::kUpdate || operation.kind == OpKind::kInsert;
      if (writes) {
        slot.value.resize(worker_->config_.value_size);
        FillValue(key, worker_->stamp_++, slot.value);
      }
      slot.started = worker_->clock_.Now();
      const absl::Status status =
          writes ? backend_->SubmitWrite(index, key, {slot.value.data(), slot.value.size()})
          : operation.kind == OpKind::kScan
              ? backend_->SubmitScan(index, key, worker_->prefix_, operation.length)
              : backend_->SubmitRead(index, key);
      if (status.ok()) {
        slot.busy = true;
        ++in_flight_;
        return;
      }
      worker_->RecordFailure(slot.kind, slot.started, status);
    }
    if (!backend_->status().ok()) worker_->RecordLoss(backend_->status());
  }

  Worker* const worker_;
  Backend* const backend_;
  std::vector<Slot> slots_;
  std::vector<char> keys_;
  uint32_t in_flight_ = 0;
};

Worker::Worker(const Config& config, const WorkerPlan& plan, std::vector<Backend*> backends,
               RunControl* control)
    : config_(config),
      plan_(plan),
      control_(control),
      names_(config.key_names()),
      prefix_(names_.prefix()),
      source_(config.workload, config.distribution, config.records, Mix64(config.seed) + plan.index,
              {.index = plan.index, .step = config.threads}),
      // Distinct for all writes of a run; which phase wrote a value does not matter.
      stamp_(Mix64(config.seed) ^ (uint64_t{plan.index} << 44)) {
  for (Backend* backend : backends) {
    lanes_.push_back(std::make_unique<Lane>(this, backend, config.lane_depth()));
  }
}

Worker::~Worker() = default;

void Worker::Run() {
  for (auto& lane : lanes_) lane->Start();
  int idle_rounds = 0;
  size_t turn = 0;
  int64_t drain_until = 0;
  for (;;) {
    bool active = false;
    int finished = 0;
    for (auto& lane : lanes_) {
      if (!lane->active()) continue;
      active = true;
      finished += lane->Progress(lanes_.size() == 1 ? kWaitSlice : std::chrono::nanoseconds(0));
    }
    if (!active) break;
    if (finished > 0) {
      idle_rounds = 0;
    } else if (control_->stop.load(std::memory_order_relaxed)) {
      const int64_t now = MonotonicNanos();
      if (drain_until == 0) drain_until = now + kDrainNanos;
      if (now > drain_until) {
        for (auto& lane : lanes_) lane->GiveUp(absl::DeadlineExceededError("no answer"));
      }
    } else if (lanes_.size() > 1 && ++idle_rounds > kIdleRounds) {
      turn = (turn + 1) % lanes_.size();
      if (lanes_[turn]->active()) lanes_[turn]->Progress(std::chrono::microseconds(200));
    }
  }
  // One that had no turn between the end of the warm-up and the end has measured nothing.
  if (!measuring_ && control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  end_nanos_ = MonotonicNanos();
  control_->running.fetch_sub(1, std::memory_order_release);
}

bool Worker::NextOperation(Operation* operation) {
  if (control_->stop.load(std::memory_order_relaxed)) return false;
  if (!measuring_ && control_->measuring.load(std::memory_order_relaxed)) BeginMeasuring();
  if (measuring_ && plan_.operations != 0) {
    if (issued_ == plan_.operations) return false;
    ++issued_;
  }
  if (config_.command == Command::kLoad) {
    *operation = {OpKind::kInsert, plan_.first_record + issued_ - 1};
  } else {
    *operation = source_.Next();
  }
  return true;
}

void Worker::BeginMeasuring() {
  measuring_ = true;
  for (Tally& tally : tallies_) {
    tally.latency.Reset();
    tally.errors.store(0, std::memory_order_relaxed);
  }
  verify_ = {};
  scanned_ = 0;
  counters_at_begin_ = CountersNow();
  begin_nanos_ = MonotonicNanos();
  begin_ticks_ = clock_.Now();
}

void Worker::RecordSuccess(OpKind kind, int64_t started, int64_t ended) {
  if (started >= begin_ticks_) tallies_[Index(kind)].latency.Record(clock_.Nanos(started, ended));
}

void Worker::Verify(std::string_view key, std::string_view value) {
  ++verify_.checked;
  if (!VerifyValue(key, value)) ++verify_.wrong;
}

// A record out of its place is as wrong as one with another's value; so are more than were wanted.
void Worker::VerifyScan(std::span<const ScannedRecord> records, uint32_t most) {
  scanned_ += records.size();
  if (records.size() > most) ++verify_.wrong;
  std::string_view before;
  for (const ScannedRecord& record : records) {
    Verify(record.key, record.value);
    if (record.key <= before) ++verify_.wrong;
    before = record.key;
  }
}

void Worker::RecordFailure(OpKind kind, int64_t started, const absl::Status& status) {
  if (first_error_.empty()) first_error_ = status.ToString();
  if (started < begin_ticks_) return;
  auto& errors = tallies_[Index(kind)].errors;
  errors.store(errors.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void Worker::RecordLoss(const absl::Status& status) {
  if (lost_.empty()) lost_ = status.ToString();
  control_->stop.store(true, std::memory_order_relaxed);
}

BackendCounters Worker::CountersNow() const {
  BackendCounters sum;
  for (const auto& lane : lanes_) sum += lane->counters();
  return sum;
}

void Worker::AddTo(RunResult& result) const {
  for (size_t i = 0; i < kOpKinds; ++i) {
    OpResult& op = result.ops[i];
    op.latency.Merge(tallies_[i].latency);
    const uint64_t errors = tallies_[i].errors.load(std::memory_order_relaxed);
    op.errors += errors;
    op.count += tallies_[i].latency.count() + errors;
  }
  result.verify.checked += verify_.checked;
  result.verify.wrong += verify_.wrong;
  result.scanned += scanned_;
  result.counters += CountersNow() - counters_at_begin_;
  if (result.first_error.empty()) result.first_error = first_error_;
  if (result.lost.empty()) result.lost = lost_;
}

}  // namespace verbena::bench
