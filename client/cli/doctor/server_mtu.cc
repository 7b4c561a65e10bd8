#include "client/cli/doctor/server_mtu.h"

#include <nlohmann/json.hpp>

namespace verbena::cli::doctor {
namespace {

using InfoJson = nlohmann::json;

// The member `name`, or an empty array.
InfoJson Array(const InfoJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : InfoJson::array();
}

std::string Text(const InfoJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void AddMtu(const InfoJson& object, std::vector<uint64_t>* mtus) {
  const auto found = object.find("mtu");
  if (found != object.end() && found->is_number_unsigned()) mtus->push_back(found->get<uint64_t>());
}

}  // namespace

std::vector<uint64_t> ServerMtus(const std::string& info, const std::string& fabric,
                                 const NetAddress& server) {
  const InfoJson json = InfoJson::parse(info, nullptr, /*allow_exceptions=*/false);
  std::vector<uint64_t> all;
  std::vector<uint64_t> listening;
  if (!json.is_object()) return all;
  for (const InfoJson& adapter : Array(json, "adapters")) {
    if (!adapter.is_object() || Text(adapter, "fabric") != fabric) continue;
    AddMtu(adapter, &all);
    for (const InfoJson& listener : Array(adapter, "listeners")) {
      if (listener.is_object() && Text(listener, "address") == server.ToString()) {
        AddMtu(listener, &listening);
      }
    }
  }
  return listening.empty() ? all : listening;
}

}  // namespace verbena::cli::doctor
