#include "bench/load/runner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "bench/load/interrupt.h"
#include "bench/load/progress.h"
#include "bench/load/series.h"
#include "bench/load/worker.h"
#include "bench/measure/process_usage.h"
#include "common/base/clock.h"
#include "common/base/wait_notice.h"

namespace verbena::bench {
namespace {

constexpr int64_t kProgressNanos = 1'000'000'000;
// The longest that an interrupt or the end of all workers goes unnoticed.
constexpr int64_t kSliceNanos = 20'000'000;

uint64_t Share(uint64_t total, uint64_t parts, uint64_t index) {
  return total / parts + (index < total % parts ? 1 : 0);
}

std::vector<std::unique_ptr<Worker>> MakeWorkers(
    const Config& config, const std::vector<std::unique_ptr<Backend>>& backends,
    RunControl* control) {
  std::vector<std::unique_ptr<Worker>> workers;
  // There is no worker without work: a share of 0 would mean no limit.
  const RecordRange range = config.record_range();
  uint64_t total = config.command == Command::kLoad ? range.count : config.operations;
  if (control->trace != nullptr) total = 0;  // the reader counts its requests
  // Those of other processes have numbers, shares and a pace too.
  uint64_t all = uint64_t{config.threads} * config.processes;
  if (total != 0) all = std::min(all, total);
  const size_t each = backends.size() / config.threads;
  uint64_t first_record = range.first;
  for (uint64_t number = 0; number < all; ++number) {
    WorkerPlan plan;
    plan.index = static_cast<uint32_t>(number);
    plan.workers = static_cast<uint32_t>(all);
    plan.first_record = first_record;
    plan.operations = Share(total, all, number);
    first_record += plan.operations;
    if (number / config.threads != config.process) continue;
    const size_t i = number % config.threads;
    std::vector<Backend*> mine;
    for (size_t b = i * each; b < (i + 1) * each; ++b) mine.push_back(backends[b].get());
    workers.push_back(std::make_unique<Worker>(config, plan, std::move(mine), control));
  }
  return workers;
}

// What the two sides and the kernel have used so far.
struct UsageNow {
  explicit UsageNow(const RunnerOptions& options)
      : server(UsageOf(options.server_pid)), client(OwnUsage()) {
    if (options.kernel_threads) kernel = KernelThreadSeconds();
  }
  std::optional<ProcessUsage> server;
  ProcessUsage client;
  std::optional<double> kernel;
};

void PutDifference(const UsageNow& begin, const UsageNow& end, RunResult& result) {
  if (begin.server.has_value() && end.server.has_value()) {
    result.server_usage = *end.server - *begin.server;
    result.server_cpu_seconds = result.server_usage->cpu_seconds;
  }
  result.client_usage = end.client - begin.client;
  if (begin.kernel.has_value() && end.kernel.has_value()) {
    result.kernel_seconds = *end.kernel - *begin.kernel;
  }
}

// Ends the warm-up and the run when it is time, and shows progress.
class Conductor {
 public:
  Conductor(const Config& config, const RunnerOptions& options, RunControl* control,
            const std::vector<std::unique_ptr<Worker>>& workers)
      : config_(config),
        options_(options),
        control_(control),
        workers_(workers),
        line_(config, workers),
        begin_(MonotonicNanos()),
        last_end_(begin_),
        end_(config.duration.count() == 0 || config.load.warmup_operations > 0
                 ? INT64_MAX
                 : begin_ + (config.warmup + config.duration).count()) {
    if (IsWarm(begin_)) BeginMeasuring();
  }

  void Conduct() {
    const bool in_place = options_.progress;
    const int64_t line_nanos = in_place ? kProgressNanos : options_.status_interval.count();
    int64_t next_line = begin_ + line_nanos;
    int64_t next_report = begin_ + kProgressNanos;
    while (control_->running.load(std::memory_order_acquire) > 0) {
      const int64_t now = MonotonicNanos();
      if (!measuring_ && IsWarm(now)) BeginMeasuring();
      if (now >= end_ || Interrupted() || StopWanted()) {
        control_->stop.store(true, std::memory_order_relaxed);
      }
      TellIfNothingEnds(now);
      if (series_.has_value() && now >= next_row_) {
        series_->Take(now);
        while (next_row_ <= now) next_row_ += kProgressNanos;
      }
      if (line_nanos > 0 && now >= next_line) {
        std::fprintf(stderr, in_place ? "\r\033[K%s" : "%s\n", line_.Next(now, measuring_).c_str());
        while (next_line <= now) next_line += line_nanos;
      }
      if (options_.on_progress && now >= next_report) {
        options_.on_progress(Done());
        next_report = now + kProgressNanos;
      }
      std::this_thread::sleep_for(std::chrono::nanoseconds(NextLook(now) - now));
    }
    if (in_place) std::fprintf(stderr, "\r\033[K");
    if (series_.has_value()) series_->Take(MonotonicNanos());
  }

  std::vector<SeriesRow> rows() {
    return series_.has_value() ? series_->rows() : std::vector<SeriesRow>();
  }
  bool measuring() const { return measuring_; }
  // Once it is measuring.
  const UsageNow& usage_at_begin() const { return *usage_at_begin_; }

 private:
  // Of a server that is frozen or out of reach, before its operations time out.
  void TellIfNothingEnds(int64_t now) {
    // In an open loop of few operations a second none may be due for that long.
    if (config_.load.rate > 0 && config_.load.rate < 10) return;
    // Nor in a trace with its own times, or one that comes through a pipe.
    if (options_.trace != nullptr && (options_.trace->speed() > 0 || options_.trace->starved())) {
      last_end_ = now;
      return;
    }
    const uint64_t ended = Done();
    if (ended != ended_before_) {
      ended_before_ = ended;
      last_end_ = now;
    }
    const std::chrono::nanoseconds quiet(now - last_end_);
    if (told_ || options_.awaited.empty() || quiet < WaitNotice::kPatience ||
        quiet >= config_.timeout) {
      return;
    }
    told_ = true;
    const std::string text = WaitNoticeText(
        "verbena-bench", options_.awaited,
        std::chrono::duration_cast<std::chrono::milliseconds>(config_.timeout - quiet),
        options_.bound);
    std::fprintf(stderr, "%s%s\n", options_.progress ? "\r\033[K" : "", text.c_str());
  }

  // Time and operations of the warm-up are over.
  bool IsWarm(int64_t now) const {
    if (now < begin_ + config_.warmup.count()) return false;
    const uint64_t processes = config_.processes;
    return Done() >= (config_.load.warmup_operations + processes - 1) / processes;
  }
  bool StopWanted() const {
    return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
  }
  // When something is to be done next, at the latest.
  int64_t NextLook(int64_t now) const {
    int64_t until = now + kSliceNanos;
    if (now < end_) until = std::min(until, end_);
    if (!measuring_) until = std::min(until, std::max(begin_ + config_.warmup.count(), now + 1));
    if (series_.has_value()) until = std::min(until, next_row_);
    return until;
  }
  uint64_t Done() const {
    uint64_t done = 0;
    for (const auto& worker : workers_) done += worker->ended();
    return done;
  }
  void BeginMeasuring() {
    measuring_ = true;
    const int64_t now = MonotonicNanos();
    // A warm-up that goes by operations takes its own time.
    if (config_.load.warmup_operations > 0 && config_.duration.count() > 0) {
      end_ = now + config_.duration.count();
    }
    series_.emplace(workers_, now, options_.on_part);
    next_row_ = now + kProgressNanos;
    usage_at_begin_.emplace(options_);
    control_->measuring.store(true, std::memory_order_relaxed);
  }

  const Config& config_;
  const RunnerOptions& options_;
  RunControl* const control_;
  const std::vector<std::unique_ptr<Worker>>& workers_;
  ProgressLine line_;
  const int64_t begin_;
  int64_t last_end_;  // when an operation was last seen to have ended
  uint64_t ended_before_ = 0;
  bool told_ = false;
  int64_t end_;
  std::optional<SeriesSampler> series_;  // once it is measuring
  int64_t next_row_ = 0;
  bool measuring_ = false;
  std::optional<UsageNow> usage_at_begin_;
};

}  // namespace

RunResult RunWorkload(const Config& config, const std::vector<std::unique_ptr<Backend>>& backends,
                      const RunnerOptions& options) {
  RunControl control(config);
  control.trace = options.trace;
  const auto workers = MakeWorkers(config, backends, &control);
  control.running.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
  Conductor conductor(config, options, &control, workers);
  std::vector<std::thread> threads;
  for (const auto& worker : workers) threads.emplace_back([&worker] { worker->Run(); });
  conductor.Conduct();
  const UsageNow usage_at_end(options);
  for (std::thread& thread : threads) thread.join();

  RunResult result;
  result.interrupted = Interrupted();
  if (config.load.rate > 0)
    result.open_loop = {.target = config.load.rate, .arrival = config.load.arrival};
  if (options.trace != nullptr) {
    result.trace = {.facts = options.trace->facts(), .outcome = {}};
    if (options.trace->speed() > 0) result.open_loop = {.arrival = Arrival::kTrace};
  }
  // Stopped in the warm-up: nothing was measured.
  if (!conductor.measuring()) return result;
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  int64_t schedule_end = 0;
  for (const auto& worker : workers) {
    worker->AddTo(result);
    begin = std::min(begin, worker->begin_nanos());
    end = std::max(end, worker->end_nanos());
    schedule_end = std::max(schedule_end, worker->schedule_end_nanos());
  }
  if (result.open_loop.has_value()) {
    OpenLoopResult& open = *result.open_loop;
    open.seconds = schedule_end > begin ? static_cast<double>(schedule_end - begin) * 1e-9 : 0;
    if (open.arrival == Arrival::kTrace && open.seconds > 0) {
      open.target = static_cast<double>(open.due) / open.seconds;
    }
  }
  result.series = conductor.rows();
  result.seconds = end > begin ? static_cast<double>(end - begin) * 1e-9 : 0;
  PutDifference(conductor.usage_at_begin(), usage_at_end, result);
  return result;
}

}  // namespace verbena::bench
