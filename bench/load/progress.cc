#include "bench/load/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace verbena::bench {

std::string FormatRate(double per_second) {
  if (per_second >= 1e6) return absl::StrFormat("%.2f M", per_second / 1e6);
  if (per_second >= 1e3) return absl::StrFormat("%.1f k", per_second / 1e3);
  return absl::StrFormat("%.0f", per_second);
}

ProgressLine::ProgressLine(const Config& config,
                           const std::vector<std::unique_ptr<Worker>>& workers)
    : config_(config),
      workers_(workers),
      begin_nanos_(MonotonicNanos()),
      last_nanos_(begin_nanos_) {}

std::string ProgressLine::Next(int64_t now_nanos, bool measuring) {
  if (measuring && measured_nanos_ == 0) measured_nanos_ = now_nanos;
  Histogram all;
  uint64_t errors = 0;
  uint64_t parts = 0;
  for (const auto& worker : workers_) {
    parts += worker->good_parts();
    for (size_t kind = 0; kind < kOpKinds; ++kind) {
      all.Merge(worker->latency(static_cast<OpKind>(kind)));
      errors += worker->errors(static_cast<OpKind>(kind));
    }
    errors -= std::min(errors, worker->part_errors());
  }
  // The end of the warm-up starts the counting anew.
  const bool restarted = all.count() < last_.count();
  Histogram recent = all;
  if (!restarted) recent.Subtract(last_);
  const double seconds = static_cast<double>(now_nanos - last_nanos_) * 1e-9;
  // Parts of read-modify-writes are no operations of their own.
  const uint64_t recent_parts = restarted ? parts : parts - std::min(parts, last_parts_);
  const uint64_t operations = recent.count() - std::min(recent.count(), recent_parts);
  const double rate = seconds <= 0 ? 0 : static_cast<double>(operations) / seconds;
  const uint64_t done = all.count() + errors - std::min(all.count(), parts);
  last_parts_ = parts;
  last_ = all;
  last_nanos_ = now_nanos;
  const std::string failed = errors == 0 ? "" : absl::StrFormat("  %d errors", errors);
  double measured = static_cast<double>(now_nanos - begin_nanos_ - config_.warmup.count()) * 1e-9;
  if (config_.load.warmup_operations > 0) {
    measured = static_cast<double>(now_nanos - measured_nanos_) * 1e-9;
  }
  return absl::StrFormat(
      "%d s  %s  %s%s", (now_nanos - begin_nanos_) / 1000000000, RateText(rate, recent),
      measuring ? TimeLeft(config_, measured, done, rate) : "warming up", failed);
}

std::string RateText(double rate, const Histogram& recent) {
  const auto micros = [&recent](double percent) {
    return static_cast<double>(recent.Percentile(percent)) / 1e3;
  };
  return absl::StrFormat("%s ops/s  p50 %.1f us  p99 %.1f us  p99.9 %.1f us", FormatRate(rate),
                         micros(50), micros(99), micros(99.9));
}

std::string TimeLeft(const Config& config, double measured, uint64_t done, double rate) {
  double left = -1;
  if (config.duration.count() > 0) {
    left = std::max(static_cast<double>(config.duration.count()) * 1e-9 - measured, 0.0);
  }
  uint64_t goal =
      config.command == Command::kLoad ? config.record_range().count : config.operations;
  goal /= config.processes;
  if (goal > 0 && rate > 0) {
    const double by_count = static_cast<double>(goal - std::min(done, goal)) / rate;
    left = left < 0 ? by_count : std::min(left, by_count);
  }
  if (left < 0) return "";
  const absl::Time end = absl::Now() + absl::Seconds(left);
  return absl::StrFormat("%.0f s left, until %s", left,
                         absl::FormatTime("%H:%M:%S", end, absl::LocalTimeZone()));
}

}  // namespace verbena::bench
