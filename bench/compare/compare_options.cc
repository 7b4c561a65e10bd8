#include "bench/compare/compare_options.h"

#include <gflags/gflags.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/text.h"

DEFINE_string(systems, "", "systems to compare, with commas between; empty: all");
DEFINE_string(redis, "redis-server", "program to start, ADDR:PORT, unix:PATH or off");
DEFINE_string(redis_server, "", "program to start: an older name of --redis");
DEFINE_string(memcached, "memcached", "program to start, ADDR:PORT, unix:PATH or off");
DEFINE_string(memcached_protocol, "text", "text or meta");
DEFINE_string(scenario, "", "storage4k, or nothing");

namespace verbena::bench {
namespace {

absl::Status Refuse(const char* flag, const std::string& value, const std::string& allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, " is not allowed: it must be ", allowed));
}

absl::StatusOr<RivalPlace> ParseRival(const std::string& text) {
  if (text.empty()) return absl::InvalidArgumentError("a name is missing");
  if (text == "off") return RivalPlace{RivalPlace::Kind::kOff, ""};
  if (absl::StartsWith(text, "unix:")) {
    if (text.size() == 5) return absl::InvalidArgumentError("unix: needs a path");
    return RivalPlace{RivalPlace::Kind::kUnix, text.substr(5)};
  }
  // Programs have no colon, unless they are given with their folder.
  if (!absl::StrContains(text, ':') || text[0] == '/' || text[0] == '.') {
    return RivalPlace{RivalPlace::Kind::kProgram, text};
  }
  VERBENA_ASSIGN_OR_RETURN(const NetAddress address, NetAddress::Parse(text));
  if (address.port() == 0) return absl::InvalidArgumentError("port 0 is nobody's");
  return RivalPlace{RivalPlace::Kind::kTcp, text};
}

absl::StatusOr<std::vector<RivalPlace>> RivalsFlag(const char* flag, const std::string& value) {
  auto places = ParseRivals(value);
  if (places.ok()) return places;
  return Refuse(
      flag, value,
      absl::StrCat("a program, ADDR:PORT, unix:PATH or off (", places.status().message(), ")"));
}

}  // namespace

const std::vector<std::string>& ComparedSystems() {
  static const auto* const names =
      new std::vector<std::string>{"verbena",   "verbena-send", "memcached-tcp", "memcached-unix",
                                   "redis-tcp", "redis-unix",   "raw-read",      "raw-send"};
  return *names;
}

absl::StatusOr<std::vector<RivalPlace>> ParseRivals(std::string_view text) {
  std::vector<RivalPlace> places;
  size_t counts[4] = {};
  for (const auto part : absl::StrSplit(ToAbsl(text), ',')) {
    VERBENA_ASSIGN_OR_RETURN(RivalPlace place, ParseRival(std::string(part)));
    ++counts[static_cast<size_t>(place.kind)];
    places.push_back(std::move(place));
  }
  const size_t alone = counts[static_cast<size_t>(RivalPlace::Kind::kOff)] +
                       counts[static_cast<size_t>(RivalPlace::Kind::kProgram)];
  if (alone > 0 && places.size() > 1) {
    return absl::InvalidArgumentError("a program or off stands alone");
  }
  if (counts[static_cast<size_t>(RivalPlace::Kind::kTcp)] > 1 ||
      counts[static_cast<size_t>(RivalPlace::Kind::kUnix)] > 1) {
    return absl::InvalidArgumentError("at most one ADDR:PORT and one unix:PATH");
  }
  return places;
}

bool CompareOptions::Wants(std::string_view system) const {
  return systems.empty() || std::find(systems.begin(), systems.end(), system) != systems.end();
}

absl::StatusOr<CompareOptions> CompareOptionsFromFlags() {
  CompareOptions options;
  if (!FLAGS_systems.empty()) options.systems = absl::StrSplit(FLAGS_systems, ',');
  for (const std::string& name : options.systems) {
    const auto& known = ComparedSystems();
    if (name != kTcpPingPong && std::find(known.begin(), known.end(), name) == known.end()) {
      return Refuse("systems", FLAGS_systems,
                    absl::StrCat("some of ", absl::StrJoin(known, ","), ",", kTcpPingPong, " ('",
                                 name, "' is none)"));
    }
  }
  const bool old_name = !FLAGS_redis_server.empty();
  VERBENA_ASSIGN_OR_RETURN(options.redis, RivalsFlag(old_name ? "redis_server" : "redis",
                                                     old_name ? FLAGS_redis_server : FLAGS_redis));
  VERBENA_ASSIGN_OR_RETURN(options.memcached, RivalsFlag("memcached", FLAGS_memcached));
  if (FLAGS_memcached_protocol != "text" && FLAGS_memcached_protocol != "meta") {
    return Refuse("memcached_protocol", FLAGS_memcached_protocol, "text or meta");
  }
  options.meta_protocol = FLAGS_memcached_protocol == "meta";
  if (FLAGS_scenario != "" && FLAGS_scenario != "storage4k") {
    return Refuse("scenario", FLAGS_scenario, "storage4k");
  }
  if (FLAGS_scenario == "storage4k") options.scenario = Scenario::kStorage4k;
  return options;
}

}  // namespace verbena::bench
