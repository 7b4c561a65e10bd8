#include "bench/compare/comparison.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/load/interrupt.h"
#include "bench/load/runner.h"
#include "bench/measure/wire_counter.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

// A system at one depth, its connections, and what its turns have given.
struct Lane {
  const System* system = nullptr;
  std::vector<std::unique_ptr<Backend>> backends;
  LaneResult result;
  uint64_t counted_bytes = 0;  // by the kernel or the device
  bool counted = true;         // in every turn
};

class Comparison {
 public:
  Comparison(const Config& config, const Peers& peers) : config_(config), peers_(peers) {}

  absl::StatusOr<ComparisonResult> Run() {
    std::vector<uint32_t> depths = {config_.depth};
    if (config_.depth != 1) depths.push_back(1);
    for (const System& system : peers_.systems()) {
      if (system.loads_data) VERBENA_RETURN_IF_ERROR(LoadRecords(config_, system));
      for (const uint32_t depth : depths) {
        Lane& lane = lanes_.emplace_back();
        lane.system = &system;
        lane.result.system = system.name;
        lane.result.depth = depth;
        VERBENA_ASSIGN_OR_RETURN(lane.backends, OpenBackends(config_, system, depth));
      }
    }
    for (uint32_t round = 0; round < config_.rounds && !Interrupted(); ++round) {
      // Each round begins with another system, so that none always follows the same one.
      for (size_t i = 0; i < lanes_.size() && !Interrupted(); ++i) {
        TakeTurn(lanes_[(i + round) % lanes_.size()], round);
      }
    }
    return Result();
  }

 private:
  // What has gone over the lane's wire, as far as somebody else than this program counts it.
  std::optional<uint64_t> CountedBytes(const Lane& lane) const {
    if (!lane.system->interface.empty()) return InterfaceBytes(lane.system->interface);
    const bool fabric =
        lane.result.system.rfind("verbena", 0) == 0 || lane.result.system.rfind("raw-", 0) == 0;
    return fabric && peers_.fabric() == "verbs" ? RdmaDeviceBytes(peers_.device()) : std::nullopt;
  }

  void TakeTurn(Lane& lane, uint32_t round) {
    if (!lane.result.sum.lost.empty()) return;
    Config turn = config_;
    turn.command = Command::kRun;
    turn.depth = lane.result.depth;
    turn.seed = config_.seed + round;  // the same operations for every system
    RunnerOptions options;
    options.server_pid = lane.system->server_pid;
    options.kernel_threads = true;
    const std::optional<uint64_t> before = CountedBytes(lane);
    const RunResult result = RunWorkload(turn, lane.backends, options);
    const std::optional<uint64_t> after = CountedBytes(lane);
    if (before.has_value() && after.has_value() && config_.warmup.count() == 0) {
      lane.counted_bytes += *after - *before;
    } else {
      lane.counted = false;
    }
    const Histogram& reads = result.op(OpKind::kRead).latency;
    lane.result.turns.push_back({round, result.throughput(),
                                 static_cast<double>(reads.Percentile(50)) / 1e3,
                                 static_cast<double>(reads.Percentile(99)) / 1e3});
    AddTo(lane.result.sum, result);
  }

  ComparisonResult Result() {
    ComparisonResult result;
    result.notes = peers_.notes();
    result.fabric = peers_.fabric();
    result.device = peers_.device();
    result.versions = peers_.versions();
    result.interrupted = Interrupted();
    for (Lane& lane : lanes_) {
      const uint64_t operations = lane.result.sum.operations();
      if (lane.counted && lane.counted_bytes > 0 && operations > 0) {
        lane.result.wire =
            WireBytes{static_cast<double>(lane.counted_bytes) / static_cast<double>(operations),
                      lane.system->interface.empty()
                          ? "counted by the RDMA device, all of its traffic"
                          : absl::StrCat("counted by the kernel on ", lane.system->interface,
                                         ", headers and all other traffic there included")};
      } else {
        lane.result.wire = PayloadOf(config_, lane.result.system, lane.result.sum);
      }
      result.lanes.push_back(std::move(lane.result));
    }
    return result;
  }

  const Config& config_;
  const Peers& peers_;
  std::deque<Lane> lanes_;  // lanes do not move
};

}  // namespace

Spread LaneResult::throughput() const {
  std::vector<double> rates;
  rates.reserve(turns.size());
  for (const Turn& turn : turns) rates.push_back(turn.throughput);
  return SpreadOf(std::move(rates));
}

std::map<std::string, double> ComparisonResult::Ratios(uint32_t depth) const {
  std::map<std::string, double> ratios;
  for (const LaneResult& mine : lanes) {
    if (mine.system != "verbena") continue;
    for (const LaneResult& other : lanes) {
      if (other.system == mine.system || other.depth != mine.depth) continue;
      std::vector<double> quotients;
      for (const Turn& turn : mine.turns) {
        const auto same =
            std::find_if(other.turns.begin(), other.turns.end(),
                         [&turn](const Turn& theirs) { return theirs.round == turn.round; });
        if (same == other.turns.end() || same->throughput <= 0) continue;
        quotients.push_back(turn.throughput / same->throughput);
      }
      if (quotients.empty()) continue;
      const bool shallow = mine.depth == 1 && depth != 1;
      ratios[absl::StrCat("verbena_over_", other.system, shallow ? "_depth1" : "")] =
          SpreadOf(std::move(quotients)).median;
    }
  }
  return ratios;
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> OpenBackends(const Config& config,
                                                                   const System& system,
                                                                   uint32_t depth) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (uint32_t i = 0; i < config.connections; ++i) {
    VERBENA_ASSIGN_OR_RETURN(auto backend, system.connect(depth, i));
    backends.push_back(std::move(backend));
  }
  return backends;
}

absl::Status LoadRecords(const Config& config, const System& system) {
  Config load = config;
  load.command = Command::kLoad;
  load.duration = load.warmup = {};
  load.operations = 0;
  VERBENA_ASSIGN_OR_RETURN(const auto backends, OpenBackends(config, system, config.depth));
  const RunResult result = RunWorkload(load, backends, {});
  if (result.errors() > 0 || !result.lost.empty()) {
    return absl::UnavailableError(absl::StrCat("loading ", system.name, ": ", result.first_error));
  }
  return absl::OkStatus();
}

void AddTo(RunResult& sum, const RunResult& turn) {
  MergeInto(sum, turn);
  sum.seconds += turn.seconds;
  if (turn.server_cpu_seconds.has_value()) {
    sum.server_cpu_seconds = sum.server_cpu_seconds.value_or(0) + *turn.server_cpu_seconds;
  }
  if (turn.server_usage.has_value()) {
    if (!sum.server_usage.has_value()) sum.server_usage.emplace();
    *sum.server_usage += *turn.server_usage;
  }
  sum.client_usage += turn.client_usage;
  if (turn.kernel_seconds.has_value()) {
    sum.kernel_seconds = sum.kernel_seconds.value_or(0) + *turn.kernel_seconds;
  }
}

int ExitStatusOf(const Config& config, const ComparisonResult& result) {
  int status = 0;
  for (const LaneResult& lane : result.lanes) {
    status = std::max(status, ExitStatusOf(config, lane.sum));
  }
  return status;
}

absl::StatusOr<ComparisonResult> RunComparison(const Config& config, const Peers& peers) {
  return Comparison(config, peers).Run();
}

}  // namespace verbena::bench
