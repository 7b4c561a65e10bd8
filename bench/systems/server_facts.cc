#include "bench/systems/server_facts.h"

#include <nlohmann/json.hpp>

#include "bench/measure/process_cpu.h"
#include "common/base/net_address.h"

namespace verbena::bench {

ServerFacts ParseServerFacts(std::string_view info) {
  ServerFacts facts;
  const auto json = nlohmann::json::parse(info, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return facts;
  const auto number = [](const nlohmann::json& object,
                         const char* name) -> std::optional<uint64_t> {
    const auto member = object.find(name);
    if (member == object.end() || !member->is_number_unsigned()) return std::nullopt;
    return member->get<uint64_t>();
  };
  facts.items = number(json, "items");
  facts.pid = number(json, "pid");
  if (const auto version = json.find("version"); version != json.end() && version->is_string()) {
    facts.version = version->get<std::string>();
  }
  if (const auto memory = json.find("memory"); memory != json.end() && memory->is_object()) {
    facts.used_bytes = number(*memory, "used_bytes");
  }
  if (const auto counters = json.find("counters");
      counters != json.end() && counters->is_object()) {
    const auto count = [&](const char* name) { return number(*counters, name).value_or(0); };
    facts.verbs = {count("sends_posted"), count("reads_posted"), count("receives_posted"),
                   count("doorbells"),    count("completions"),  count("bytes_sent")};
  }
  return facts;
}

int64_t LocalServerPid(const ServerFacts& facts, std::string_view server, int64_t wanted) {
  if (wanted != 0) return wanted;
  const auto address = NetAddress::Parse(server);
  if (!address.ok() || !address->IsLocal() || !facts.pid.has_value()) return 0;
  const auto pid = static_cast<int64_t>(*facts.pid);
  return ProcessName(pid) == "verbena-server" ? pid : 0;
}

}  // namespace verbena::bench
