#include "bench/report/config_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace verbena::bench {
namespace {

using Json = nlohmann::json;

double Seconds(std::chrono::nanoseconds duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}

const char* FormatName(OutputFormat format) {
  switch (format) {
    case OutputFormat::kTable:
      return "table";
    case OutputFormat::kYcsb:
      return "ycsb";
    case OutputFormat::kJson:
      return "json";
    case OutputFormat::kNone:
      return "none";
  }
  return "";
}

// The mix, the choice of records, and what a record is.
void AddWorkload(const Config& config, Json& json) {
  const Workload& workload = config.workload;
  json["workload"] = workload.name;
  json["proportions"] = Json::object();
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (workload.proportion[i] > 0) {
      json["proportions"][OpKindName(static_cast<OpKind>(i))] = workload.proportion[i];
    }
  }
  const RequestDistribution& choice = config.distribution;
  json["distribution"] = DistributionName(choice);
  if (choice.kind == Distribution::kHotspot) {
    json["hotspot_data_fraction"] = choice.hotspot_data;
    json["hotspot_operation_fraction"] = choice.hotspot_operations;
  } else if (choice.kind == Distribution::kExponential) {
    json["exponential_percentile"] = choice.exponential_percentile;
    json["exponential_fraction"] = choice.exponential_part;
  }
  if (workload.scans()) {
    json["scan_lengths"] = {{"min", workload.min_scan_length},
                            {"max", workload.max_scan_length},
                            {"distribution", workload.short_scans ? "zipfian" : "uniform"}};
  }
  const RecordFields& fields = workload.fields;
  if (fields.count > 1 || fields.integrity) {
    json["fields"] = {{"count", fields.count},
                      {"name_prefix", fields.name_prefix},
                      {"write_all", fields.write_all},
                      {"data_integrity", fields.integrity}};
  }
}

void AddRecords(const Config& config, Json& json) {
  json["records"] = config.records;
  const RecordRange range = config.record_range();
  if (range.first != 0 || range.count != config.records) {
    json["insert_start"] = range.first;
    json["insert_count"] = range.count;
  }
  if (config.insert_retries > 0) {
    json["insert_retries"] = config.insert_retries;
    json["insert_retry_seconds"] = Seconds(config.insert_retry_interval);
  }
  json["key_size"] = config.key_size;
  json["key_sizes"] = config.key_sizes.has_value() ? SizeModelName(*config.key_sizes) : "constant";
  json["key_order"] = config.ordered_keys ? "ordered" : "hashed";
  json["zero_padding"] = config.zero_padding;
  json["value_size"] = config.value_size;
  // Of each field, where there are several.
  json["value_sizes"] =
      config.sizes.has_value() ? config.sizes->name() : absl::StrCat(config.value_size, "B");
}

void AddLoad(const Config& config, Json& json) {
  const LoadOptions& load = config.load;
  json["rate"] = load.rate;
  json["arrival"] = ArrivalName(load.arrival);
  json["warmup_operations"] = load.warmup_operations;
  json["format"] = FormatName(load.format);
  json["status_interval"] = Seconds(load.status_interval);
  if (load.ramp.has_value()) {
    json["ramp"] = {{"from", load.ramp->from},
                    {"to", load.ramp->to},
                    {"step", load.ramp->step},
                    {"seconds", Seconds(load.ramp->hold)}};
  }
  if (!load.sweep.empty()) json["sweep"] = load.sweep;
  if (load.search.has_value()) {
    json["search"] = {{"percentile", load.search->percent},
                      {"limit_us", Seconds(load.search->limit) * 1e6}};
  }
  if (!load.agents.empty()) json["agents"] = load.agents;
}

// It says what is done, and when.
void AddTrace(const TraceConfig& trace, Json& json) {
  json["trace"] = trace.file;
  json["speed"] = trace.speed;
  json["strict"] = trace.strict;
  json["fill_on_miss"] = trace.fill_on_miss;
  if (trace.speed > 0) json["arrival"] = ArrivalName(Arrival::kTrace);
}

void AddConnection(const Config& config, Json& json) {
  json["fabric"] = config.fabric;
  json["ack_timeout"] = config.connect.ack_timeout;
  json["retry_count"] = config.connect.retry_count;
  json["rnr_timer"] = config.connect.min_rnr_timer;
  if (config.connect.tos.has_value()) json["tos"] = *config.connect.tos;
  json["cache_bytes"] = config.cache_bytes;
  json["preload"] = config.preload;
  json["poll_us"] = config.poll.count();
  json["timeout_seconds"] = Seconds(config.timeout);
}

std::string PlacesText(const std::vector<RivalPlace>& places) {
  return absl::StrJoin(places, ",", [](std::string* out, const RivalPlace& place) {
    const bool local = place.kind == RivalPlace::Kind::kUnix;
    const bool off = place.kind == RivalPlace::Kind::kOff;
    absl::StrAppend(out, local ? "unix:" : off ? "off" : "", place.where);
  });
}

void AddComparison(const Config& config, Json& json) {
  json["rounds"] = config.rounds;
  json["redis"] = PlacesText(config.compare.redis);
  json["memcached"] = PlacesText(config.compare.memcached);
  json["memcached_protocol"] = config.compare.meta_protocol ? "meta" : "text";
  if (!config.compare.systems.empty()) json["systems"] = config.compare.systems;
  if (config.compare.scenario == Scenario::kStorage4k) json["scenario"] = "storage4k";
}

}  // namespace

Json ConfigJson(const Config& config) {
  Json json = {{"command", CommandName(config.command)},
               {"server", config.server},
               {"operations", config.operations},
               {"seconds", Seconds(config.duration)},
               {"warmup_seconds", Seconds(config.warmup)},
               {"threads", config.threads},
               {"connections", config.connections},
               {"depth", config.depth},
               {"seed", config.seed},
               {"max_errors", config.max_errors}};
  if (config.trace.file.empty()) {
    AddWorkload(config, json);
    AddRecords(config, json);
  }
  AddLoad(config, json);
  if (!config.trace.file.empty()) AddTrace(config.trace, json);
  AddConnection(config, json);
  if (config.baseline) json["baseline_rounds"] = config.rounds;
  if (config.server_pid != 0) json["server_pid"] = config.server_pid;
  if (config.command == Command::kCompare) AddComparison(config, json);
  for (const auto& [name, entry] : config.properties.entries()) {
    json["properties"][name] = entry.value;
  }
  return json;
}

}  // namespace verbena::bench
