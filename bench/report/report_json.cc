#include "bench/report/report_json.h"

#include <sys/utsname.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "bench/measure/ticks.h"
#include "bench/report/verbs_cost.h"
#include "common/base/whole_file.h"

namespace verbena::bench {
namespace {

using Json = nlohmann::json;

double Micros(double nanos) { return nanos / 1e3; }
double Micros(uint64_t nanos) { return static_cast<double>(nanos) / 1e3; }

// By the names of absl::StatusCode: {"NOT_FOUND":3}.
Json StatusesJson(const StatusCounts& statuses) {
  Json json = Json::object();
  for (size_t code = 1; code < statuses.size(); ++code) {
    if (statuses[code] > 0) {
      json[absl::StatusCodeToString(static_cast<absl::StatusCode>(code))] = statuses[code];
    }
  }
  return json;
}

// "latency_us" is what to judge by, and the two others are what they say.
Json OpJson(const OpResult& op) {
  Json json = {{"count", op.count},
               {"errors", op.errors},
               {"latency_us", LatencyJson(op.judged())},
               {"latency_is", op.response.count() > 0 ? "response time" : "service time"},
               {"service_us", LatencyJson(op.latency)}};
  if (op.response.count() > 0) json["response_us"] = LatencyJson(op.response);
  if (op.errors > 0) {
    json["statuses"] = StatusesJson(op.statuses);
    json["failed_us"] = LatencyJson(op.failed);
  }
  return json;
}

Json OpenLoopJson(const RunResult& result) {
  const OpenLoopResult& open = *result.open_loop;
  Json json = {{"target_ops_s", open.target},
               {"arrival", ArrivalName(open.arrival)},
               {"due", open.due},
               {"achieved_ops_s", result.throughput()},
               {"missed_share", result.missed()},
               {"schedule_kept", result.schedule_kept()}};
  if (open.arrival == Arrival::kTrace) {
    json["late_most_s"] = open.late_most;
  } else {
    json["backlog_most"] = open.backlog_most;
    json["backlog_end"] = open.backlog_end;
  }
  return json;
}

Json TraceJson(const TraceResult& trace) {
  const TraceFacts& facts = trace.facts;
  const TraceOutcome& outcome = trace.outcome;
  Json json = {{"lines", facts.lines},
               {"requests", facts.requests},
               {"bad_lines", facts.bad_lines},
               {"reasons", facts.reasons},
               {"stopped", facts.stopped},
               {"reads", outcome.reads},
               {"hits", outcome.reads - outcome.misses},
               {"misses", outcome.misses},
               {"not_stored", outcome.not_stored},
               {"not_found", outcome.not_found},
               {"fills", outcome.fills}};
  if (const auto rate = outcome.hit_rate()) json["hit_rate"] = *rate;
  if (!facts.unreadable.empty()) json["unreadable"] = facts.unreadable;
  return json;
}

Json SeriesJson(const std::vector<SeriesRow>& rows) {
  Json json = Json::array();
  for (const SeriesRow& row : rows) {
    Json ops = Json::object();
    for (size_t i = 0; i < kOpKinds; ++i) {
      const SeriesCell& cell = row.kinds[i];
      if (cell.count == 0 && cell.errors == 0) continue;
      ops[OpKindName(static_cast<OpKind>(i))] = {
          {"count", cell.count},
          {"errors", cell.errors},
          {"ops_s", row.seconds <= 0 ? 0 : static_cast<double>(cell.count) / row.seconds},
          {"mean_us", Micros(cell.mean)},
          {"p50_us", Micros(cell.p50)},
          {"p99_us", Micros(cell.p99)},
          {"p99.9_us", Micros(cell.p999)},
          {"max_us", Micros(cell.max)}};
    }
    json.push_back({{"end", row.end},
                    {"seconds", row.seconds},
                    {"throughput_ops_s", row.throughput()},
                    {"ops", std::move(ops)}});
  }
  return json;
}

Json FiguresJson(const Figures& figures) {
  Json json = Json::object();
  for (const auto& [name, figure] : figures) {
    json[absl::StrReplaceAll(name, {{" ", "_"}})] = figure;
  }
  return json;
}

Json SpreadJson(const Spread& spread, double unit = 1) {
  return {
      {"median", spread.median / unit}, {"min", spread.least / unit}, {"max", spread.most / unit}};
}

Json BaselineJson(const BaselineResult& baseline) {
  Json json;
  json["raw_read"] = {{"p50_us", Micros(baseline.raw_read_ns.median)},
                      {"ops_s", baseline.raw_read_rate.median}};
  json["send_pingpong"] = {{"p50_us", Micros(baseline.pingpong_ns.median)}};
  json["storage_put"] = {{"p50_us", Micros(baseline.storage_put_ns.median)}};
  json["get"] = {{"p50_us", Micros(baseline.get_ns.median)}, {"ops_s", baseline.get_rate.median}};
  json["put"] = {{"p50_us", Micros(baseline.put_ns.median)}};
  json["ratios"] = {{"get_p50_over_raw_read", baseline.get_over_raw_read.median},
                    {"get_rate_over_raw_read", baseline.get_rate_over_raw_read.median},
                    {"put_p50_over_send_pingpong", baseline.put_over_pingpong.median},
                    {"put_minus_pingpong_over_storage_put", baseline.put_over_storage.median}};
  json["spread"] = {{"raw_read_p50_us", SpreadJson(baseline.raw_read_ns, 1e3)},
                    {"raw_read_ops_s", SpreadJson(baseline.raw_read_rate)},
                    {"get_p50_us", SpreadJson(baseline.get_ns, 1e3)},
                    {"get_ops_s", SpreadJson(baseline.get_rate)},
                    {"send_pingpong_p50_us", SpreadJson(baseline.pingpong_ns, 1e3)},
                    {"put_p50_us", SpreadJson(baseline.put_ns, 1e3)},
                    {"storage_put_p50_us", SpreadJson(baseline.storage_put_ns, 1e3)},
                    {"get_p50_over_raw_read", SpreadJson(baseline.get_over_raw_read)},
                    {"get_rate_over_raw_read", SpreadJson(baseline.get_rate_over_raw_read)},
                    {"put_p50_over_send_pingpong", SpreadJson(baseline.put_over_pingpong)},
                    {"put_minus_pingpong_over_storage_put", SpreadJson(baseline.put_over_storage)}};
  json["method"] = {{"rounds", baseline.rounds},
                    {"depth", baseline.depth},
                    {"block_bytes", baseline.block_size},
                    {"region_bytes", baseline.region_size},
                    {"request_bytes", baseline.request_size},
                    {"response_bytes", baseline.response_size},
                    {"clock", baseline.clock},
                    {"clock_overhead_ns", baseline.clock_ns}};
  return json;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

nlohmann::json ThroughputJson(const RunResult& result) {
  Json json;
  json["throughput_ops_s"] = result.throughput();
  json["ops"] = Json::object();
  for (size_t i = 0; i < kOpKinds; ++i) {
    const OpResult& op = result.ops[i];
    if (op.count > 0) json["ops"][OpKindName(static_cast<OpKind>(i))] = OpJson(op);
  }
  return json;
}

nlohmann::json EnvironmentJson(const std::string& fabric, const std::string& device,
                               const std::map<std::string, std::string>& versions) {
  Json json = {{"verbena", VERBENA_VERSION},
               {"compiler", __VERSION__},
               {"cpu", CpuModel()},
               {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
               {"clock", TickSource()}};
  utsname system;
  if (uname(&system) == 0) {
    json["host"] = system.nodename;
    json["kernel"] = system.release;
  }
  if (!fabric.empty()) {
    json["fabric"] = fabric;
    json["device"] = device;
  }
  for (const auto& [program, version] : versions) json[program] = version;
  return json;
}

nlohmann::json EnvironmentJson(const RunContext& context) {
  std::map<std::string, std::string> versions;
  if (context.server.version.has_value()) versions["verbena-server"] = *context.server.version;
  return EnvironmentJson(context.fabric, context.device, versions);
}

nlohmann::json LatencyJson(const Histogram& latency) {
  Json json = {{"mean", Micros(latency.mean())},
               {"min", Micros(latency.min())},
               {"max", Micros(latency.max())}};
  constexpr std::pair<const char*, double> kPercentiles[] = {
      {"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}};
  for (const auto& [name, percent] : kPercentiles) {
    json[name] = Micros(latency.Percentile(percent));
  }
  return json;
}

nlohmann::json VerbsJson(const RunResult& result) {
  return {{"client", FiguresJson(ClientVerbs(result))},
          {"server", FiguresJson(ServerVerbs(result))}};
}

nlohmann::json ResultJson(const RunResult& result) {
  Json json = ThroughputJson(result);
  json["seconds"] = result.seconds;
  json["rdma"] = {{"read_retries", result.counters.read_retries},
                  {"rpc_gets", result.counters.rpc_gets},
                  {"reconnects", result.counters.reconnects}};
  if (const auto reads = result.reads_per_get()) json["rdma"]["reads_per_get"] = *reads;
  if (const auto doorbells = result.doorbells_per_op()) {
    json["rdma"]["doorbells_per_op"] = *doorbells;
  }
  json["verbs_per_op"] = VerbsJson(result);
  if (const auto rate = result.scanned_per_second()) {
    json["scans"] = {{"items", result.scanned},
                     {"items_s", *rate},
                     {"items_per_scan", *result.scanned_per_scan()}};
  }
  json["server"] = Json::object();
  if (const auto cpu = result.cpu_us_per_op()) {
    json["server"]["cpu_us_per_op"] = *cpu;
    json["server"]["cpu_percent_of_core"] = *result.server_cpu_seconds / result.seconds * 100;
  }
  json["verify"] = {{"checked", result.verify.checked}, {"wrong", result.verify.wrong}};
  if (result.open_loop.has_value()) json["open_loop"] = OpenLoopJson(result);
  if (result.trace.has_value()) json["trace"] = TraceJson(*result.trace);
  json["series"] = SeriesJson(result.series);
  if (!result.first_error.empty()) json["first_error"] = result.first_error;
  if (!result.lost.empty()) json["connection_lost"] = result.lost;
  if (!result.agent_errors.empty()) json["agent_errors"] = result.agent_errors;
  json["interrupted"] = result.interrupted;
  json["partial"] = result.partial();
  return json;
}

nlohmann::json RunJson(const Config& config, const RunContext& context, const RunResult& result,
                       const BaselineResult* baseline) {
  Json json = ResultJson(result);
  if (baseline != nullptr) json["baseline"] = BaselineJson(*baseline);
  const ServerFacts& server = context.server;
  if (server.items.has_value() && server.used_bytes.has_value()) {
    json["memory"] = {{"items", *server.items}, {"used_bytes", *server.used_bytes}};
    if (*server.items > 0) {
      json["memory"]["bytes_per_item"] =
          static_cast<double>(*server.used_bytes) / static_cast<double>(*server.items);
    }
  }
  json["config"] = ConfigJson(config);
  json["environment"] = EnvironmentJson(context);
  return json;
}

std::string JsonText(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  return WriteWholeFile(path, JsonText(json));
}

}  // namespace verbena::bench
