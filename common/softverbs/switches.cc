#include "common/softverbs/switches.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/softverbs/read_copy.h"

namespace verbena::softverbs {
namespace {

std::mutex g_mutex;
bool g_loaded = false;
Switches g_switches;

template <typename T>
void ParseNumber(const char* name, T* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  const char* end = text + std::strlen(text);
  T parsed = 0;
  const auto result = std::from_chars(text, end, parsed);
  if (result.ec != std::errc() || result.ptr != end) {
    LogWarn("softverbs: ", name, "=", text, " is not a number in range; ignored");
    return;
  }
  *value = parsed;
}

// Whether the variable has the value `set`; `unset` is its other one.
bool ParseChoice(const char* name, std::string_view set, std::string_view unset) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0' || text == unset) return false;
  if (text == set) return true;
  LogWarn("softverbs: ", name, "=", text, " is unknown (use \"", std::string(set), "\" or \"",
          std::string(unset), "\"); ignored");
  return false;
}

// Caller holds g_mutex.
void LoadOnce() {
  if (g_loaded) return;
  g_loaded = true;
  g_switches = SwitchesFromEnvironment();
  ConfigureReadCopy(g_switches);
}

}  // namespace

Switches SwitchesFromEnvironment() {
  Switches switches;
  if (const char* order = std::getenv("VERBENA_SOFT_READ_ORDER"); order != nullptr) {
    if (std::string_view(order) == "random") {
      switches.read_random_order = true;
    } else if (*order != '\0') {
      LogWarn("softverbs: VERBENA_SOFT_READ_ORDER=", order,
              " is unknown (use \"random\"); ignored");
    }
  }
  switches.infiniband = ParseChoice("VERBENA_SOFT_LINK_LAYER", "infiniband", "ethernet");
  switches.iwarp = ParseChoice("VERBENA_SOFT_TRANSPORT", "iwarp", "infiniband");
  uint32_t split = 0;
  ParseNumber("VERBENA_SOFT_READ_SPLIT", &split);
  switches.read_split_words = split != 0;
  ParseNumber("VERBENA_SOFT_READ_PAUSE_NS", &switches.read_pause_ns);
  ParseNumber("VERBENA_SOFT_SEED", &switches.seed);
  return switches;
}

Switches CurrentSwitches() {
  const std::lock_guard lock(g_mutex);
  LoadOnce();
  return g_switches;
}

void SetSwitches(const Switches& switches) {
  const std::lock_guard lock(g_mutex);
  g_loaded = true;
  g_switches = switches;
  ConfigureReadCopy(switches);
}

}  // namespace verbena::softverbs
