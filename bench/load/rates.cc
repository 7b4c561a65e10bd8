#include "bench/load/rates.h"

#include <algorithm>

#include "bench/workload/random.h"

namespace verbena::bench {
namespace {

// A search begins with the closed loop's rate as the upper bound, with a margin, since an open loop
// may use the connections better.
constexpr double kMargin = 1.1;
// It ends when the bounds are so near, or the rate has become so small a part of the first bound.
constexpr double kNear = 0.05;
constexpr double kHopeless = 1.0 / 1024;
constexpr int kConfirmations = 2;
// How often a rate that was not confirmed is lowered by kNear.
constexpr int kMostRetreats = 8;

class Prober {
 public:
  Prober(const Config& config, const RunOnce& run) : config_(config), run_(run) {}

  // Makes a run and notes it; false: it is the last one.
  bool Run(const char* purpose, double rate) {
    Config config = config_;
    config.load.rate = rate;
    // Different records and arrivals each time; the same for the same seed.
    config.seed = number_ == 0 ? config_.seed : Mix64(config_.seed + number_);
    ++number_;
    if (hold_.count() > 0) config.duration = hold_;
    if (without_warmup_) {
      config.warmup = {};
      config.load.warmup_operations = 0;
    }
    auto result = run_(config);
    if (!result.ok()) {
      result_.failure = result.status();
      return false;
    }
    Probe probe;
    probe.purpose = purpose;
    probe.rate = rate;
    probe.result = *std::move(result);
    result_.probes.push_back(std::move(probe));
    const RunResult& last = result_.probes.back().result;
    return last.lost.empty() && !last.interrupted;
  }

  Probe& last() { return result_.probes.back(); }
  RatesResult& result() { return result_; }
  void set_hold(std::chrono::nanoseconds hold) { hold_ = hold; }
  void LeaveOutWarmup() { without_warmup_ = true; }

 private:
  const Config& config_;
  const RunOnce& run_;
  uint64_t number_ = 0;
  std::chrono::nanoseconds hold_{0};
  bool without_warmup_ = false;
  RatesResult result_;
};

class Search {
 public:
  Search(const SearchOptions& options, Prober* prober) : options_(options), prober_(*prober) {}

  void Run() {
    if (!prober_.Run("closed loop", 0)) return;
    const double most = prober_.last().result.throughput() * kMargin;
    if (most <= 0) return;
    double low = 0;  // kept
    double high = most;
    if (!Try("search", high)) return;
    if (kept_) {
      prober_.result().at_least = true;
      low = high;
    }
    while (high - low > kNear * high && high > most * kHopeless) {
      const double middle = (low + high) / 2;
      if (!Try("search", middle)) return;
      (kept_ ? low : high) = middle;
    }
    if (low > 0) Confirm(low);
  }

 private:
  void Confirm(double rate) {
    for (int retreat = 0; retreat <= kMostRetreats; ++retreat) {
      int good = 0;
      while (good < kConfirmations) {
        if (!Try("confirmation", rate)) return;
        if (!kept_) break;
        ++good;
      }
      if (good == kConfirmations) {
        prober_.result().best = rate;
        return;
      }
      prober_.result().at_least = false;
      rate *= 1 - kNear;
    }
  }

  // False: the search ends here. Else kept_ tells what came out.
  bool Try(const char* purpose, double rate) {
    const bool more = prober_.Run(purpose, rate);
    if (!prober_.result().failure.ok()) return false;
    Probe& probe = prober_.last();
    const Histogram latency = JudgedLatency(probe.result);
    probe.percentile = latency.Percentile(options_.percent);
    probe.kept = kept_ = more && latency.count() > 0 && probe.result.errors() == 0 &&
                         probe.result.schedule_kept() &&
                         probe.percentile <= static_cast<uint64_t>(options_.limit.count());
    return more;
  }

  const SearchOptions& options_;
  Prober& prober_;
  bool kept_ = false;
};

}  // namespace

Histogram JudgedLatency(const RunResult& result) {
  Histogram all;
  for (const OpResult& op : result.ops) all.Merge(op.judged());
  return all;
}

RunResult RatesResult::Sum() const {
  RunResult sum;
  double offset = 0;
  for (const Probe& probe : probes) {
    MergeInto(sum, probe.result);
    sum.seconds += probe.result.seconds;
    if (probe.result.server_cpu_seconds.has_value()) {
      sum.server_cpu_seconds =
          sum.server_cpu_seconds.value_or(0) + *probe.result.server_cpu_seconds;
    }
    for (SeriesRow row : probe.result.series) {
      row.end += offset;
      sum.series.push_back(row);
    }
    offset += probe.result.seconds;
  }
  return sum;
}

RatesResult RunRates(const Config& config, const RunOnce& run) {
  Prober prober(config, run);
  if (config.load.search.has_value()) {
    Search(*config.load.search, &prober).Run();
  } else if (config.load.ramp.has_value()) {
    prober.set_hold(config.load.ramp->hold);
    for (const double rate : config.load.ramp->Rates()) {
      if (!prober.Run("ramp", rate)) break;
      prober.LeaveOutWarmup();
    }
  } else {
    for (const double rate : config.load.sweep) {
      if (!prober.Run("sweep", rate)) break;
    }
  }
  return std::move(prober.result());
}

}  // namespace verbena::bench
