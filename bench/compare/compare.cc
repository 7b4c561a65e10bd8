#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/commands.h"
#include "bench/compare/compare_json.h"
#include "bench/compare/compare_table.h"
#include "bench/compare/comparison.h"
#include "bench/report/output.h"
#include "bench/report/report_json.h"
#include "bench/systems/peers.h"
#include "common/base/whole_file.h"

namespace verbena::bench {
namespace {

int Complain(const char* what, const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "verbena-bench: %s%s\n", what,
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return exit_status;
}

}  // namespace

int Compare(const Config& config) {
  if (!config.json_file.empty()) {
    if (const absl::Status status = CheckWholeFile(config.json_file); !status.ok()) {
      return Complain("--json: ", status, kExitUsage);
    }
  }
  const auto peers = Peers::Start(config);
  if (!peers.ok()) return Complain("", peers.status(), kExitConnection);
  for (const std::string& note : peers->notes()) {
    std::fprintf(stderr, "verbena-bench: %s\n", note.c_str());
  }
  const auto result = RunComparison(config, *peers);
  if (!result.ok()) return Complain("", result.status(), kExitConnection);
  int exit_status = Print(CompareTable(config, *result), ExitStatusOf(config, *result));
  if (!config.json_file.empty()) {
    const absl::Status written = WriteJson(config.json_file, CompareJson(config, *result));
    if (!written.ok()) {
      Complain("--json: ", written, kExitOutput);
      if (exit_status == kExitOk) exit_status = kExitOutput;
    }
  }
  return exit_status;
}

}  // namespace verbena::bench
