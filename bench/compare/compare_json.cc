#include "bench/compare/compare_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/report/report_json.h"

namespace verbena::bench {
namespace {

using Json = nlohmann::json;

Json LaneJson(const LaneResult& lane, bool soft) {
  Json json = ThroughputJson(lane.sum);
  const Spread rate = lane.throughput();
  json["throughput_ops_s"] = rate.median;
  json["throughput_spread"] = {{"min", rate.least}, {"max", rate.most}};
  json["depth"] = lane.depth;
  const uint64_t operations = lane.sum.operations();
  json["server"] = Json::object();
  if (lane.sum.server_usage.has_value()) {
    json["server"] = UsageJson(*lane.sum.server_usage, operations);
  }
  json["client"] = UsageJson(lane.sum.client_usage, operations);
  if (lane.sum.counters.system_calls > 0 && operations > 0) {
    json["client"]["system_calls_per_op"] =
        static_cast<double>(lane.sum.counters.system_calls) / static_cast<double>(operations);
  }
  if (lane.sum.kernel_seconds.has_value() && operations > 0) {
    json["kernel_threads_us_per_op"] =
        *lane.sum.kernel_seconds * 1e6 / static_cast<double>(operations);
  }
  const CopyFacts copies = CopiesOf(lane.system, soft);
  json["copies"] = {
      {"server", copies.server}, {"client", copies.client}, {"explanation", copies.explanation}};
  if (lane.wire.has_value()) {
    json["wire"] = {{"bytes_per_op", lane.wire->per_op}, {"source", lane.wire->source}};
  }
  json["verbs_per_op"] = VerbsJson(lane.sum);
  json["turns"] = Json::array();
  for (const Turn& turn : lane.turns) {
    json["turns"].push_back({{"round", turn.round},
                             {"throughput_ops_s", turn.throughput},
                             {"read_p50_us", turn.p50_us},
                             {"read_p99_us", turn.p99_us}});
  }
  json["verify"] = {{"checked", lane.sum.verify.checked}, {"wrong", lane.sum.verify.wrong}};
  json["partial"] = lane.partial();
  if (!lane.sum.first_error.empty()) json["first_error"] = lane.sum.first_error;
  if (!lane.sum.lost.empty()) json["connection_lost"] = lane.sum.lost;
  return json;
}

}  // namespace

Json UsageJson(const ProcessUsage& usage, uint64_t operations) {
  if (operations == 0) return Json::object();
  const auto each = [operations](double amount) {
    return amount / static_cast<double>(operations);
  };
  return {{"cpu_us_per_op", each(usage.cpu_seconds * 1e6)},
          {"cpu_user_us_per_op", each(usage.user_seconds * 1e6)},
          {"cpu_kernel_us_per_op", each(usage.system_seconds * 1e6)},
          {"voluntary_switches_per_op", each(static_cast<double>(usage.voluntary_switches))},
          {"involuntary_switches_per_op", each(static_cast<double>(usage.involuntary_switches))}};
}

Json CompareJson(const Config& config, const ComparisonResult& result) {
  const bool soft = result.fabric == "soft";
  Json json;
  json["systems"] = Json::array();
  for (const LaneResult& lane : result.lanes) {
    // The depth asked for is the system's figure; depth 1 stands beside it.
    if (lane.depth != config.depth) continue;
    Json entry = LaneJson(lane, soft);
    entry["name"] = lane.system;
    const auto shallow =
        std::find_if(result.lanes.begin(), result.lanes.end(), [&lane](const LaneResult& other) {
          return other.system == lane.system && other.depth != lane.depth;
        });
    if (shallow != result.lanes.end()) entry["depth1"] = LaneJson(*shallow, soft);
    json["systems"].push_back(std::move(entry));
  }
  json["ratios"] = result.Ratios(config.depth);
  json["notes"] = result.notes;
  json["interrupted"] = result.interrupted;
  json["config"] = ConfigJson(config);
  json["environment"] = EnvironmentJson(result.fabric, result.device, result.versions);
  return json;
}

}  // namespace verbena::bench
