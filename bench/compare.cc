#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/commands.h"
#include "bench/load/interrupt.h"
#include "bench/load/progress.h"
#include "bench/load/runner.h"
#include "bench/measure/process_cpu.h"
#include "bench/measure/statistics.h"
#include "bench/report/output.h"
#include "bench/report/report_json.h"
#include "bench/report/report_table.h"
#include "bench/systems/peers.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

// A system at one depth: its connections and what its turns gave.
struct Lane {
  const System* system = nullptr;
  uint32_t depth = 0;
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<double> throughput;  // of each turn
  RunResult sum;                   // of all turns
};

absl::StatusOr<Lane> OpenLane(const Config& config, const System& system, uint32_t depth) {
  Lane lane;
  lane.system = &system;
  lane.depth = depth;
  for (uint32_t i = 0; i < config.connections; ++i) {
    VERBENA_ASSIGN_OR_RETURN(auto backend, system.connect(depth));
    lane.backends.push_back(std::move(backend));
  }
  return lane;
}

void AddTo(RunResult& sum, const RunResult& turn) {
  MergeInto(sum, turn);
  sum.seconds += turn.seconds;
  if (turn.server_cpu_seconds.has_value()) {
    sum.server_cpu_seconds = sum.server_cpu_seconds.value_or(0) + *turn.server_cpu_seconds;
  }
}

absl::Status LoadRecords(const Config& config, const System& system) {
  Config load = config;
  load.command = Command::kLoad;
  load.duration = load.warmup = {};
  load.operations = 0;
  VERBENA_ASSIGN_OR_RETURN(const Lane lane, OpenLane(config, system, config.depth));
  const RunResult result = RunWorkload(load, lane.backends, {});
  if (result.errors() > 0 || !result.lost.empty()) {
    return absl::UnavailableError(absl::StrCat("loading ", system.name, ": ", result.first_error));
  }
  return absl::OkStatus();
}

// The median over the turns of lane `a`'s throughput over lane `b`'s.
double RatioOf(const Lane& a, const Lane& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.throughput.size(), b.throughput.size()); ++i) {
    if (b.throughput[i] > 0) ratios.push_back(a.throughput[i] / b.throughput[i]);
  }
  return SpreadOf(std::move(ratios)).median;
}

class Comparison {
 public:
  Comparison(const Config& config, const Peers& peers) : config_(config), peers_(peers) {}

  absl::Status Run() {
    std::vector<uint32_t> depths = {config_.depth};
    if (config_.depth != 1) depths.push_back(1);
    for (const System& system : peers_.systems()) {
      if (system.loads_data) VERBENA_RETURN_IF_ERROR(LoadRecords(config_, system));
      for (const uint32_t depth : depths) {
        VERBENA_ASSIGN_OR_RETURN(Lane lane, OpenLane(config_, system, depth));
        lanes_.push_back(std::move(lane));
      }
    }
    for (uint32_t round = 0; round < config_.rounds && !Interrupted(); ++round) {
      // Each round begins with another system, so that none always follows the same one.
      for (size_t i = 0; i < lanes_.size() && !Interrupted(); ++i) {
        TakeTurn(lanes_[(i + round) % lanes_.size()], round);
      }
    }
    return absl::OkStatus();
  }

  std::string Table() const {
    std::string text = absl::StrFormat(
        "%s, %d records, values of %d bytes, %s keys, %d thread%s; %d rounds of %.1f s each\n"
        "\n%-16s %6s %14s %24s %10s %10s %10s %14s\n",
        config_.workload.Title(), config_.records, config_.value_size,
        DistributionName(config_.distribution), config_.threads, config_.threads == 1 ? "" : "s",
        config_.rounds, static_cast<double>(config_.duration.count()) * 1e-9, "system", "depth",
        "ops/s", "(least to most)", "read p50", "p99", "p99.9", "server us/op");
    for (const Lane& lane : lanes_) {
      const Spread rate = SpreadOf(lane.throughput);
      const Histogram& reads = lane.sum.op(OpKind::kRead).latency;
      const auto cpu = lane.sum.cpu_us_per_op();
      absl::StrAppendFormat(
          &text, "%-16s %6d %14s %24s %10s %10s %10s %14s\n", lane.system->name, lane.depth,
          FormatRate(rate.median),
          absl::StrCat("(", FormatRate(rate.least), " to ", FormatRate(rate.most), ")"),
          Latency(reads, 50), Latency(reads, 99), Latency(reads, 99.9),
          cpu.has_value() ? absl::StrFormat("%.3f", *cpu) : "-");
    }
    text += "\nthroughput of verbena, median of the rounds' ratios\n";
    for (const auto& [name, ratio] : Ratios()) {
      absl::StrAppendFormat(&text, "  %-36s %6.2f\n", name, ratio);
    }
    for (const std::string& note : peers_.notes()) absl::StrAppend(&text, "note: ", note, "\n");
    for (const Lane& lane : lanes_) {
      if (!lane.sum.first_error.empty()) {
        absl::StrAppend(&text, "error of ", lane.system->name, ": ", lane.sum.first_error, "\n");
      }
    }
    if (Interrupted()) text += "INTERRUPTED: these are partial results\n";
    return text;
  }

  nlohmann::json Json() const {
    nlohmann::json json;
    json["systems"] = nlohmann::json::array();
    for (const System& system : peers_.systems()) {
      nlohmann::json entry = {{"name", system.name}};
      for (const Lane& lane : lanes_) {
        if (lane.system != &system) continue;
        // The depth asked for is the system's figure; depth 1 stands beside it.
        if (lane.depth == config_.depth) {
          entry.update(LaneJson(lane));
        } else {
          entry["depth1"] = LaneJson(lane);
        }
      }
      json["systems"].push_back(entry);
    }
    json["ratios"] = Ratios();
    json["notes"] = peers_.notes();
    json["interrupted"] = Interrupted();
    json["config"] = ConfigJson(config_);
    json["config"]["rounds"] = config_.rounds;
    json["environment"] = EnvironmentJson();
    return json;
  }

  int ExitStatus() const {
    int status = kExitOk;
    for (const Lane& lane : lanes_) {
      status = std::max(status, ExitStatusOf(config_, lane.sum));
    }
    return status;
  }

 private:
  void TakeTurn(Lane& lane, uint32_t round) {
    Config turn = config_;
    turn.command = Command::kRun;
    turn.depth = lane.depth;
    turn.seed = config_.seed + round;  // the same operations for every system
    RunnerOptions options;
    options.server_pid = lane.system->server_pid;
    const RunResult result = RunWorkload(turn, lane.backends, options);
    lane.throughput.push_back(result.throughput());
    AddTo(lane.sum, result);
  }

  std::map<std::string, double> Ratios() const {
    std::map<std::string, double> ratios;
    for (const Lane& mine : lanes_) {
      if (mine.system->name != "verbena") continue;
      for (const Lane& other : lanes_) {
        if (other.system == mine.system || other.depth != mine.depth) continue;
        const bool shallow = mine.depth == 1 && config_.depth != 1;
        ratios[absl::StrCat("verbena_over_", other.system->name, shallow ? "_depth1" : "")] =
            RatioOf(mine, other);
      }
    }
    return ratios;
  }

  static std::string Latency(const Histogram& histogram, double percent) {
    return FormatNanos(static_cast<double>(histogram.Percentile(percent)));
  }

  static nlohmann::json LaneJson(const Lane& lane) {
    nlohmann::json json = ThroughputJson(lane.sum);
    const Spread rate = SpreadOf(lane.throughput);
    json["throughput_ops_s"] = rate.median;
    json["throughput_spread"] = {{"min", rate.least}, {"max", rate.most}};
    json["depth"] = lane.depth;
    json["server"] = nlohmann::json::object();
    if (const auto cpu = lane.sum.cpu_us_per_op()) json["server"]["cpu_us_per_op"] = *cpu;
    json["verify"] = {{"checked", lane.sum.verify.checked}, {"wrong", lane.sum.verify.wrong}};
    return json;
  }

  const Config& config_;
  const Peers& peers_;
  std::deque<Lane> lanes_;  // lanes do not move
};

}  // namespace

int Compare(const Config& config) {
  if (const int checked = CheckJsonFile(config.json_file); checked != kExitOk) return checked;
  const auto peers = Peers::Start(config);
  if (!peers.ok()) return Fail(config.json_file, peers.status(), kExitConnection);
  for (const std::string& note : peers->notes()) {
    std::fprintf(stderr, "verbena-bench: %s\n", note.c_str());
  }
  Comparison comparison(config, *peers);
  if (const absl::Status status = comparison.Run(); !status.ok()) {
    return Fail(config.json_file, status, kExitConnection);
  }
  int exit_status = Print(comparison.Table(), comparison.ExitStatus());
  if (!config.json_file.empty()) {
    const absl::Status written = WriteJson(config.json_file, comparison.Json());
    if (!written.ok()) {
      std::fprintf(stderr, "verbena-bench: --json: %s\n", std::string(written.message()).c_str());
      if (exit_status == kExitOk) exit_status = kExitOutput;
    }
  }
  return exit_status;
}

}  // namespace verbena::bench
