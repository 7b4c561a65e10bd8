#include "bench/load/agent_messages.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

using Json = nlohmann::json;

constexpr std::array kAgentFlags = {
    "server",   "workload",        "records", "operations",     "seconds",
    "threads",  "connections",     "depth",   "warmup_seconds", "warmup_operations",
    "key_size", "value_size",      "seed",    "distribution",   "cache_bytes",
    "preload",  "timeout_seconds", "poll_us", "fabric",         "max_errors",
    "rate",     "arrival",         "tos",     "ack_timeout",    "retry_count",
    "rnr_timer"};
// What only the coordinator does.
constexpr std::array kOwnFlags = {"json", "csv",   "hgrm",   "format", "status_interval", "agents",
                                  "ramp", "sweep", "search", "report", "flagfile"};
constexpr size_t kMostText = 4096;
constexpr char kHistogramProperty[] = "fieldlengthhistogram";

template <size_t n>
bool Contains(const std::array<const char*, n>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool NamesFile(const std::string& sizes) { return sizes.rfind("file:", 0) == 0; }

absl::Status NoFiles(const char* dashes, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("a coordinator may not have ", dashes, name, " name a file of this host"));
}

absl::Status Bad(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("a message's '", what, "' is missing or wrong"));
}

// Members of messages; an absent or misformed one is an error that names it.
class FieldReader {
 public:
  explicit FieldReader(const Json& json) : json_(json) {}

  uint64_t Count(const char* name) {
    const auto at = json_.find(name);
    if (at == json_.end() || !at->is_number_unsigned()) return Fail(name), 0;
    return at->template get<uint64_t>();
  }
  double Number(const char* name, double least, double most) {
    const auto at = json_.find(name);
    if (at == json_.end() || !at->is_number()) return Fail(name), 0;
    const double value = at->template get<double>();
    if (!(value >= least && value <= most)) return Fail(name), 0;
    return value;
  }
  bool Flag(const char* name) {
    const auto at = json_.find(name);
    if (at == json_.end() || !at->is_boolean()) return Fail(name), false;
    return at->template get<bool>();
  }
  std::string Text(const char* name) {
    const auto at = json_.find(name);
    if (at == json_.end() || !at->is_string()) return Fail(name), "";
    return at->template get<std::string>().substr(0, kMostText);
  }
  // An empty one where there is none.
  const Json& Array(const char* name, size_t most) {
    static const Json kNone = Json::array();
    const auto at = json_.find(name);
    if (at == json_.end() || !at->is_array() || at->size() > most) return Fail(name), kNone;
    return *at;
  }
  const Json& Object(const char* name) {
    static const Json kNone = Json::object();
    const auto at = json_.find(name);
    if (at == json_.end() || !at->is_object()) return Fail(name), kNone;
    return *at;
  }
  void Fail(const char* name) {
    if (status_.ok()) status_ = Bad(name);
  }
  void Take(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& json_;
  absl::Status status_;
};

Json HistogramJson(const Histogram& histogram) {
  Json cells = Json::array();
  for (const auto& [index, count] : histogram.Cells()) cells.push_back({index, count});
  return {{"cells", std::move(cells)}, {"sum", histogram.sum()}, {"max", histogram.max()}};
}

absl::Status ReadHistogram(const Json& json, Histogram* histogram) {
  FieldReader reader(json);
  std::vector<Histogram::CellCount> cells;
  for (const Json& cell : reader.Array("cells", Histogram::kCells)) {
    if (!cell.is_array() || cell.size() != 2 || !cell[0].is_number_unsigned() ||
        !cell[1].is_number_unsigned() || cell[0].get<uint64_t>() >= Histogram::kCells) {
      return Bad("cells");
    }
    cells.emplace_back(cell[0].get<uint32_t>(), cell[1].get<uint64_t>());
  }
  const uint64_t sum = reader.Count("sum");
  const uint64_t max = reader.Count("max");
  VERBENA_RETURN_IF_ERROR(reader.status());
  return histogram->MergeParts(cells, sum, max) ? absl::OkStatus() : Bad("cells");
}

Json OpMessage(const OpResult& op) {
  return {{"count", op.count},
          {"errors", op.errors},
          {"latency", HistogramJson(op.latency)},
          {"response", HistogramJson(op.response)},
          {"failed", HistogramJson(op.failed)},
          {"statuses", op.statuses}};
}

absl::Status ReadOp(const Json& json, OpResult* op) {
  if (!json.is_object()) return Bad("ops");
  FieldReader reader(json);
  op->count = reader.Count("count");
  op->errors = reader.Count("errors");
  reader.Take(ReadHistogram(reader.Object("latency"), &op->latency));
  reader.Take(ReadHistogram(reader.Object("response"), &op->response));
  reader.Take(ReadHistogram(reader.Object("failed"), &op->failed));
  const Json& statuses = reader.Array("statuses", kStatusCodes);
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!statuses[i].is_number_unsigned()) return Bad("statuses");
    op->statuses[i] = statuses[i].get<uint64_t>();
  }
  return reader.status();
}

constexpr std::pair<const char*, uint64_t BackendCounters::*> kCounters[] = {
    {"gets", &BackendCounters::gets},
    {"reads", &BackendCounters::reads},
    {"read_retries", &BackendCounters::read_retries},
    {"rpc_gets", &BackendCounters::rpc_gets},
    {"doorbells", &BackendCounters::doorbells},
    {"completions", &BackendCounters::completions},
    {"sends", &BackendCounters::sends},
    {"bytes_read", &BackendCounters::bytes_read},
    {"bytes_sent", &BackendCounters::bytes_sent},
    {"reconnects", &BackendCounters::reconnects}};

constexpr std::pair<const char*, uint64_t ServerVerbCounters::*> kServerCounters[] = {
    {"sends", &ServerVerbCounters::sends},
    {"reads", &ServerVerbCounters::reads},
    {"receives", &ServerVerbCounters::receives},
    {"doorbells", &ServerVerbCounters::doorbells},
    {"completions", &ServerVerbCounters::completions},
    {"bytes_sent", &ServerVerbCounters::bytes_sent}};

template <typename Counters, size_t n>
Json CountersJson(const Counters& counters,
                  const std::pair<const char*, uint64_t Counters::*> (&names)[n]) {
  Json json = Json::object();
  for (const auto& [name, member] : names) json[name] = counters.*member;
  return json;
}

template <typename Counters, size_t n>
absl::Status ReadCounters(const Json& json,
                          const std::pair<const char*, uint64_t Counters::*> (&names)[n],
                          Counters* counters) {
  FieldReader reader(json);
  for (const auto& [name, member] : names) counters->*member = reader.Count(name);
  return reader.status();
}

Json PartsJson(const std::vector<SeriesPart>& parts) {
  Json json = Json::array();
  for (const SeriesPart& part : parts) {
    Json kinds = Json::object();
    for (size_t i = 0; i < kOpKinds; ++i) {
      if (part.kinds[i] == nullptr) continue;
      kinds[OpKindName(static_cast<OpKind>(i))] = {
          {"errors", part.kinds[i]->errors}, {"latency", HistogramJson(part.kinds[i]->latency)}};
    }
    json.push_back({{"end", part.end},
                    {"seconds", part.seconds},
                    {"operations", part.operations},
                    {"kinds", std::move(kinds)}});
  }
  return json;
}

absl::Status ReadKinds(const Json& json, SeriesPart* part) {
  size_t known = 0;
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto at = json.find(OpKindName(static_cast<OpKind>(i)));
    if (at == json.end()) continue;
    if (!at->is_object()) return Bad("kinds");
    ++known;
    FieldReader reader(*at);
    part->kinds[i] = std::make_unique<SeriesPart::Kind>();
    part->kinds[i]->errors = reader.Count("errors");
    reader.Take(ReadHistogram(reader.Object("latency"), &part->kinds[i]->latency));
    VERBENA_RETURN_IF_ERROR(reader.status());
  }
  return known == json.size() ? absl::OkStatus() : Bad("kinds");
}

absl::Status ReadParts(const Json& json, std::vector<SeriesPart>* parts) {
  for (const Json& entry : json) {
    if (!entry.is_object()) return Bad("parts");
    FieldReader reader(entry);
    SeriesPart& part = parts->emplace_back();
    part.end = reader.Number("end", 0, 1e9);
    part.seconds = reader.Number("seconds", 0, 1e9);
    part.operations = reader.Count("operations");
    reader.Take(ReadKinds(reader.Object("kinds"), &part));
    VERBENA_RETURN_IF_ERROR(reader.status());
  }
  return absl::OkStatus();
}

}  // namespace

bool IsAgentFlag(const std::string& name) { return Contains(kAgentFlags, name); }

absl::StatusOr<FlagValues> FlagsForAgents(const Config& config) {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  FlagValues flags;
  for (const gflags::CommandLineFlagInfo& flag : all) {
    if (flag.is_default) continue;
    if (IsAgentFlag(flag.name)) {
      flags[flag.name] = flag.current_value;
    } else if (!Contains(kOwnFlags, flag.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, "=", flag.current_value, " cannot be used with --agents"));
    }
  }
  // Agents read no files: what stands in one goes along.
  if (const auto size = flags.find("value_size"); size != flags.end() && NamesFile(size->second)) {
    size->second = config.sizes->ListText();
  }
  return flags;
}

PropertyValues PropertiesForAgents(const Config& config) {
  PropertyValues values;
  for (const auto& [name, entry] : config.properties.entries()) values[name] = entry.value;
  if (const auto by = values.find("fieldlengthdistribution");
      by != values.end() && by->second == "histogram" && config.sizes.has_value()) {
    values[kHistogramProperty] = config.sizes->ListText();
  } else {
    values.erase(kHistogramProperty);
  }
  return values;
}

nlohmann::json PreparationMessage(const Preparation& preparation) {
  return {{"verbena_bench", kAgentProtocol},
          {"type", "prepare"},
          {"process", preparation.process},
          {"processes", preparation.processes},
          {"flags", preparation.flags},
          {"properties", preparation.properties},
          {"has_properties", preparation.has_properties}};
}

absl::StatusOr<Preparation> ParsePreparation(const nlohmann::json& message) {
  FieldReader reader(message);
  const uint64_t version = reader.Count("verbena_bench");
  VERBENA_RETURN_IF_ERROR(reader.status());
  if (version != kAgentProtocol) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator speaks version ", version,
                                                   " of the protocol, this agent ", kAgentProtocol,
                                                   ": use the same verbena-bench on both sides"));
  }
  if (MessageType(message) != "prepare") return Bad("type");
  Preparation preparation;
  preparation.process = static_cast<uint32_t>(reader.Number("process", 0, 999));
  preparation.processes = static_cast<uint32_t>(reader.Number("processes", 1, 1000));
  for (const auto& [name, value] : reader.Object("flags").items()) {
    if (!value.is_string()) return Bad("flags");
    if (!IsAgentFlag(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a coordinator may not set --", name.substr(0, 100)));
    }
    if (name == "value_size" && NamesFile(value.get<std::string>())) return NoFiles("--", name);
    preparation.flags[name] = value.get<std::string>();
  }
  preparation.has_properties = reader.Flag("has_properties");
  for (const auto& [name, value] : reader.Object("properties").items()) {
    if (!value.is_string()) return Bad("properties");
    if (name == kHistogramProperty && !Sizes::IsList(value.get<std::string>())) {
      return NoFiles("", name);
    }
    preparation.properties[name] = value.get<std::string>();
  }
  if (const auto by = preparation.properties.find("fieldlengthdistribution");
      by != preparation.properties.end() && by->second == "histogram" &&
      preparation.properties.count(kHistogramProperty) == 0) {
    return NoFiles("", kHistogramProperty);  // by default it would be one
  }
  VERBENA_RETURN_IF_ERROR(reader.status());
  if (preparation.process >= preparation.processes) return Bad("process");
  return preparation;
}

nlohmann::json RunMessage(const Config& config) {
  return {{"type", "run"},
          {"rate", config.load.rate},
          {"duration_ns", config.duration.count()},
          {"warmup_ns", config.warmup.count()},
          {"warmup_operations", config.load.warmup_operations},
          {"seed", config.seed}};
}

absl::Status ApplyRunMessage(const nlohmann::json& message, Config* config) {
  FieldReader reader(message);
  config->load.rate = reader.Number("rate", 0, 1e8);
  config->duration =
      std::chrono::nanoseconds(static_cast<int64_t>(reader.Number("duration_ns", 0, 1e15)));
  config->warmup =
      std::chrono::nanoseconds(static_cast<int64_t>(reader.Number("warmup_ns", 0, 1e14)));
  config->load.warmup_operations = reader.Count("warmup_operations");
  config->seed = reader.Count("seed");
  return reader.status();
}

nlohmann::json ProgressMessage(uint64_t operations, const std::vector<SeriesPart>& parts) {
  return {{"type", "progress"}, {"operations", operations}, {"parts", PartsJson(parts)}};
}

absl::StatusOr<AgentProgress> ParseProgress(const nlohmann::json& message) {
  AgentProgress progress;
  FieldReader reader(message);
  progress.operations = reader.Count("operations");
  reader.Take(ReadParts(reader.Array("parts", SeriesMerger::kMostAhead), &progress.parts));
  VERBENA_RETURN_IF_ERROR(reader.status());
  return progress;
}

nlohmann::json ResultMessage(const RunResult& result, const RunContext& context,
                             const std::vector<SeriesPart>& parts) {
  Json ops = Json::array();
  for (const OpResult& op : result.ops) ops.push_back(OpMessage(op));
  Json message = {{"type", "result"},
                  {"seconds", result.seconds},
                  {"ops", std::move(ops)},
                  {"checked", result.verify.checked},
                  {"wrong", result.verify.wrong},
                  {"scanned", result.scanned},
                  {"rmw_parts", result.parts},
                  {"rmw_part_errors", result.part_errors},
                  {"counters", CountersJson(result.counters, kCounters)},
                  {"first_error", result.first_error},
                  {"lost", result.lost},
                  {"parts", PartsJson(parts)},
                  {"fabric", context.fabric},
                  {"device", context.device},
                  {"server_version", context.server.version.value_or("")},
                  {"items", context.server.items.value_or(0)},
                  {"used_bytes", context.server.used_bytes.value_or(0)},
                  {"server_cpu_seconds", result.server_cpu_seconds.value_or(-1)}};
  if (result.server_verbs.has_value()) {
    message["server_verbs"] = CountersJson(*result.server_verbs, kServerCounters);
  }
  if (result.open_loop.has_value()) {
    const OpenLoopResult& open = *result.open_loop;
    message["open_loop"] = {{"due", open.due},
                            {"seconds", open.seconds},
                            {"backlog_most", open.backlog_most},
                            {"backlog_end", open.backlog_end}};
  }
  return message;
}

absl::StatusOr<AgentResult> ParseResult(const nlohmann::json& message) {
  AgentResult agent;
  RunResult& result = agent.result;
  FieldReader reader(message);
  result.seconds = reader.Number("seconds", 0, 1e9);
  const Json& ops = reader.Array("ops", kOpKinds);
  if (ops.size() != kOpKinds) reader.Fail("ops");
  for (size_t i = 0; i < ops.size(); ++i) reader.Take(ReadOp(ops[i], &result.ops[i]));
  result.verify = {reader.Count("checked"), reader.Count("wrong")};
  result.scanned = reader.Count("scanned");
  result.parts = reader.Count("rmw_parts");
  result.part_errors = reader.Count("rmw_part_errors");
  reader.Take(ReadCounters(reader.Object("counters"), kCounters, &result.counters));
  result.first_error = reader.Text("first_error");
  result.lost = reader.Text("lost");
  reader.Take(ReadParts(reader.Array("parts", SeriesMerger::kMostAhead), &agent.parts));
  agent.context.fabric = reader.Text("fabric");
  agent.context.device = reader.Text("device");
  if (std::string version = reader.Text("server_version"); !version.empty()) {
    agent.context.server.version = std::move(version);
  }
  if (const uint64_t items = reader.Count("items"); items > 0) {
    agent.context.server.items = items;
    agent.context.server.used_bytes = reader.Count("used_bytes");
  }
  const double cpu = reader.Number("server_cpu_seconds", -1, 1e12);
  if (cpu >= 0) result.server_cpu_seconds = cpu;
  if (message.contains("server_verbs")) {
    result.server_verbs.emplace();
    reader.Take(
        ReadCounters(reader.Object("server_verbs"), kServerCounters, &*result.server_verbs));
  }
  if (message.contains("open_loop")) {
    FieldReader open(reader.Object("open_loop"));
    result.open_loop.emplace();
    result.open_loop->due = open.Count("due");
    result.open_loop->seconds = open.Number("seconds", 0, 1e9);
    result.open_loop->backlog_most = open.Count("backlog_most");
    result.open_loop->backlog_end = open.Count("backlog_end");
    reader.Take(open.status());
  }
  VERBENA_RETURN_IF_ERROR(reader.status());
  // What belongs to something else cannot be more than all.
  uint64_t all = 0;
  uint64_t errors = 0;
  for (const OpResult& op : result.ops) {
    all += op.count;
    errors += op.errors;
  }
  if (result.parts > all || result.part_errors > errors) return Bad("rmw_parts");
  return agent;
}

nlohmann::json ErrorMessage(const absl::Status& status) {
  return {{"type", "error"},
          {"code", static_cast<int>(status.code())},
          {"text", std::string(status.message())}};
}

absl::Status ParseError(const nlohmann::json& message) {
  FieldReader reader(message);
  const auto code = static_cast<int>(reader.Number("code", 1, 16));
  const std::string text = reader.Text("text");
  VERBENA_RETURN_IF_ERROR(reader.status());
  return absl::Status(static_cast<absl::StatusCode>(code), text);
}

std::string MessageType(const nlohmann::json& message) {
  const auto type = message.find("type");
  return type != message.end() && type->is_string() ? type->get<std::string>() : "";
}

ResultMerger::ResultMerger(const Config& config) {
  if (config.load.rate > 0) {
    sum_.open_loop = {.target = config.load.rate, .arrival = config.load.arrival};
  }
}

void ResultMerger::Add(const RunResult& part) {
  MergeInto(sum_, part);
  sum_.seconds = std::max(sum_.seconds, part.seconds);
  // Each agent on the server's host has seen the same process.
  if (part.server_cpu_seconds.has_value()) {
    sum_.server_cpu_seconds =
        std::max(sum_.server_cpu_seconds.value_or(0), *part.server_cpu_seconds);
  }
  if (part.server_verbs.has_value()) {
    if (!sum_.server_verbs.has_value()) sum_.server_verbs.emplace();
    for (const auto& [name, member] : kServerCounters) {
      uint64_t& most = *sum_.server_verbs.*member;
      most = std::max(most, (*part.server_verbs).*member);
    }
  }
  if (sum_.open_loop.has_value() && part.open_loop.has_value()) {
    OpenLoopResult& open = *sum_.open_loop;
    open.due += part.open_loop->due;
    open.backlog_most += part.open_loop->backlog_most;
    open.backlog_end += part.open_loop->backlog_end;
    open.seconds = std::max(open.seconds, part.open_loop->seconds);
  }
}

}  // namespace verbena::bench
