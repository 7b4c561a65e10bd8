#include "server/admin/info.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/layout/item.h"
#include "common/layout/region_header.h"
#include "common/wire/handshake.h"
#include "common/wire/messages.h"
#include "server/storage/eviction.h"

namespace verbena::admin {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOpNames[net::kOpCodes] = {"",       "hello", "ping",  "get",     "put",
                                                 "delete", "info",  "add",   "append",  "expire",
                                                 "ttl",    "scan",  "touch", "release", "persist"};

Json MemoryJson(const storage::StoreStats& stats) {
  return {{"total_bytes", stats.slice_bytes},
          {"used_bytes", stats.used_bytes},
          {"index_bytes", stats.index_bytes},
          {"live_bytes", stats.live_bytes},
          {"pinned_bytes", stats.pinned_bytes},
          {"free_bytes",
           stats.slice_bytes > stats.used_bytes ? stats.slice_bytes - stats.used_bytes : 0}};
}

// How the heap's pages are used, and the size classes that there are blocks of.
Json HeapJson(const storage::StoreStats& stats) {
  Json classes = Json::array();
  for (uint32_t i = 0; i < layout::kSizeClasses; ++i) {
    if (stats.class_bytes[i] == 0) continue;
    const uint64_t used = stats.class_blocks[i] * layout::BlockSize(i);
    classes.push_back(
        {{"block_size", layout::BlockSize(i)},
         {"items", stats.class_blocks[i]},
         {"bytes", stats.class_bytes[i]},
         {"used_bytes", used},
         {"free_bytes", stats.class_bytes[i] - std::min(stats.class_bytes[i], used)}});
  }
  return {{"page_size", layout::kPageSize},           {"pages", stats.heap_pages},
          {"free_pages", stats.free_pages},           {"segment_pages", stats.segment_pages},
          {"slab_pages", stats.slab_pages},           {"run_pages", stats.run_pages},
          {"left_over_bytes", stats.left_over_bytes}, {"classes", std::move(classes)}};
}

Json CompactionJson(const storage::CompactionCounters& compaction) {
  return {{"items_moved", compaction.items_moved},
          {"bytes_moved", compaction.bytes_moved},
          {"windows_emptied", compaction.windows_emptied},
          {"bytes_emptied", compaction.bytes_emptied},
          {"pages_emptied", compaction.pages_emptied},
          {"given_up", compaction.given_up},
          {"turned_away", compaction.turned_away},
          {"gave_way", compaction.gave_way},
          {"most_waited_bytes", compaction.most_waited_bytes}};
}

// Where an adapter can be reached.
Json ListenerJson(const net::ListenerInfo& listener) {
  Json json = {{"address", listener.address},       {"port", listener.port.port},
               {"port_state", listener.port.state}, {"link_layer", listener.port.link_layer},
               {"gid", listener.gid.gid},           {"gid_index", listener.gid.index},
               {"gid_type", listener.gid.type},     {"mtu", listener.port.mtu},
               {"gbps", listener.port.gbps}};
  if (listener.port.lid != 0) {
    json["lid"] = listener.port.lid;
    json["sm_lid"] = listener.port.sm_lid;
  }
  return json;
}

// The adapter, described by its first listener; `listeners` has them all.
Json AdapterJson(const net::AdapterInfo& info) {
  const net::QueuePlan& plan = info.plan;
  Json json = {{"fabric", info.fabric}, {"device", info.device}, {"transport", info.transport}};
  if (!info.listeners.empty()) json.update(ListenerJson(info.listeners.front()));
  json["listeners"] = Json::array();
  for (const net::ListenerInfo& listener : info.listeners) {
    json["listeners"].push_back(ListenerJson(listener));
  }
  json["connections"] = info.connections;
  json["queues"] = {{"srq", plan.shared_receives()},
                    {"srq_depth", plan.receives},
                    {"receive_cq_depth", plan.receive_cq_depth},
                    {"send_cq_depth", plan.send_cq_depth},
                    {"qp_depth", plan.send_depth},
                    {"connections_per_worker", plan.connections_per_worker},
                    {"staging_pieces", plan.staging_pieces},
                    {"staging_bytes", plan.staging_bytes()}};
  json["srq_limit_events"] = info.srq_limit_events;
  json["async_events"] = info.async_events;
  return json;
}

// A counter of net::WorkerCounters, summed over the workers.
using Member = net::Counter net::WorkerCounters::*;
constexpr std::pair<const char*, Member> kSums[] = {
    {"requests", &net::WorkerCounters::requests},
    {"bytes_received", &net::WorkerCounters::bytes_received},
    {"bytes_sent", &net::WorkerCounters::bytes_sent},
    {"bytes_read", &net::WorkerCounters::bytes_read},
    {"malformed", &net::WorkerCounters::malformed},
    {"receives_posted", &net::WorkerCounters::receives_posted},
    {"sends_posted", &net::WorkerCounters::sends_posted},
    {"reads_posted", &net::WorkerCounters::reads_posted},
    {"doorbells", &net::WorkerCounters::doorbells},
    {"completions", &net::WorkerCounters::completions},
    {"probes", &net::WorkerCounters::probes},
    {"waits_for_room", &net::WorkerCounters::waits_for_room},
    {"staging_in_use", &net::WorkerCounters::staging_in_use},
    {"waits_for_staging", &net::WorkerCounters::waits_for_staging},
    {"pins", &net::WorkerCounters::pins},
    {"pins_made", &net::WorkerCounters::pins_made},
    {"pins_refused", &net::WorkerCounters::pins_refused},
    {"pins_expired", &net::WorkerCounters::pins_expired},
    {"repeated", &net::WorkerCounters::repeated},
    {"sleeps", &net::WorkerCounters::sleeps},
    {"connections_opened", &net::WorkerCounters::connections_opened},
};

Json CountersJson(const net::Network& network) {
  Json counters = Json::object();
  for (const auto& [name, member] : kSums) {
    uint64_t sum = 0;
    for (const auto& worker : network.workers()) sum += (worker->counters().*member).Get();
    counters[name] = sum;
  }
  Json closed = Json::object();
  for (size_t reason = 0; reason < net::kCloseReasons; ++reason) {
    uint64_t sum = 0;
    for (const auto& worker : network.workers()) sum += worker->counters().closed[reason].Get();
    closed[net::CloseReasonName(static_cast<net::CloseReason>(reason))] = sum;
  }
  counters["connections_closed"] = std::move(closed);
  Json refused = Json::object();
  uint64_t accepted = 0;
  for (const auto& acceptor : network.acceptors()) accepted += acceptor->counters().accepted.Get();
  for (size_t reason = 1; reason < net::Acceptor::kRejectReasons; ++reason) {
    uint64_t sum = 0;
    for (const auto& acceptor : network.acceptors()) {
      sum += acceptor->counters().rejected[reason].Get();
    }
    if (sum > 0) refused[wire::RejectReasonName(static_cast<wire::RejectReason>(reason))] = sum;
  }
  counters["connections_accepted"] = accepted;
  counters["connections_refused"] = std::move(refused);
  return counters;
}

Json SessionsJson(const net::SessionCounts& sessions) {
  return {{"open", sessions.open},       {"kept", sessions.kept},
          {"bytes", sessions.bytes},     {"resumed", sessions.resumed},
          {"dropped", sessions.dropped}, {"superseded", sessions.superseded}};
}

Json OperationsJson(const net::Network& network) {
  Json operations = Json::object();
  for (size_t op = 1; op < net::kOpCodes; ++op) {
    Json results = Json::object();
    for (size_t code = 0; code < net::kResultCodes; ++code) {
      uint64_t sum = 0;
      for (const auto& worker : network.workers()) {
        sum += worker->counters().operations[op][code].Get();
      }
      if (sum > 0 || code == 0) {
        results[wire::ResultCodeName(static_cast<wire::ResultCode>(code))] = sum;
      }
    }
    operations[kOpNames[op]] = std::move(results);
  }
  return operations;
}

}  // namespace

std::string InfoJson(const InfoSources& sources) {
  const net::Network& network = sources.network;
  const storage::StoreStats stats = sources.store.Stats();
  Json info = Json::object();
  info["version"] = sources.version;
  info["protocol_version"] = wire::kProtocolVersion;
  info["layout_version"] = layout::kLayoutVersion;
  info["address"] = network.address().ToString();
  info["pid"] = getpid();
  Json adapters = Json::array();
  const std::vector<net::AdapterInfo> described = network.adapters();
  for (const net::AdapterInfo& adapter : described) adapters.push_back(AdapterJson(adapter));
  // The first one's names at the top, since there is one nearly always.
  if (!adapters.empty()) {
    for (const char* name : {"fabric", "device", "port", "port_state", "link_layer", "gid",
                             "gid_index", "gid_type", "mtu", "gbps"}) {
      info[name] = adapters[0][name];
    }
  }
  // As text: JSON readers with floating point numbers would round it.
  info["epoch"] = absl::StrFormat("%016x", sources.store.region().epoch());
  info["uptime_seconds"] = static_cast<double>(MonotonicNanos() - sources.started) / 1e9;
  info["items"] = stats.items;
  info["memory"] = MemoryJson(stats);
  info["index"] = {{"segments", stats.segments},
                   {"splits", stats.splits},
                   {"overflow_buckets", stats.overflow_buckets},
                   {"mean_fill", stats.mean_fill}};
  info["heap"] = HeapJson(stats);
  info["compaction"] = CompactionJson(stats.compaction);
  info["failed_allocations"] = stats.failed_allocations;
  info["eviction"] = {{"enabled", sources.store.evicts()},
                      {"policy", sources.store.evicts() ? storage::Eviction::kPolicy : "none"},
                      {"evicted", stats.evicted},
                      {"touches", stats.touches},
                      {"memory_bytes", stats.eviction_memory}};
  info["expiry"] = {{"timers", stats.timers},
                    {"overdue", stats.overdue},
                    {"late_seconds", static_cast<double>(stats.expiry_lateness) / 1e9},
                    {"expired", stats.expired},
                    {"memory_bytes", stats.expiry_memory}};
  info["ordered_index"] = {{"enabled", sources.store.ordered_index() != nullptr},
                           {"keys", stats.ordered_keys},
                           {"memory_bytes", stats.ordered_index_memory}};
  info["connections"] = network.connections();
  info["sessions"] = SessionsJson(network.sessions());
  info["workers"] = network.workers().size();
  const net::QueuePlan plan = described.empty() ? net::QueuePlan{} : described.front().plan;
  info["limits"] = {{"max_connections", network.max_connections()},
                    {"max_key_size", layout::kMaxKeySize},
                    {"max_value_size", sources.max_value_size},
                    {"max_message", net::kMaxMessage},
                    {"eager_limit", net::kEagerLimit},
                    {"window", plan.window}};
  info["queues"] = adapters.empty() ? Json::object() : adapters[0]["queues"];
  info["adapters"] = std::move(adapters);
  info["left_out"] = network.left_out();
  info["missing"] = network.missing();
  info["counters"] = CountersJson(network);
  info["operations"] = OperationsJson(network);
  return info.dump();
}

}  // namespace verbena::admin
