#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/commands.h"
#include "bench/compare/compare_json.h"
#include "bench/compare/compare_report.h"
#include "bench/compare/compare_table.h"
#include "bench/compare/comparison.h"
#include "bench/compare/storage_scenario.h"
#include "bench/report/html_report.h"
#include "bench/report/output.h"
#include "bench/report/report_json.h"
#include "bench/report/result_files.h"
#include "bench/systems/peers.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

// What a comparison of either kind has to show.
struct Shown {
  std::string table;
  nlohmann::json json;
  Report report;
  int exit_status = 0;
};

absl::StatusOr<Shown> MeasureAndShow(const Config& config, const Peers& peers) {
  if (config.compare.scenario == Scenario::kStorage4k) {
    VERBENA_ASSIGN_OR_RETURN(const StorageResult result, RunStorageScenario(config, peers));
    return Shown{StorageTable(config, result), StorageJson(config, result),
                 StorageReport(config, result), ExitStatusOf(config, result)};
  }
  VERBENA_ASSIGN_OR_RETURN(const ComparisonResult result, RunComparison(config, peers));
  return Shown{CompareTable(config, result), CompareJson(config, result),
               CompareReport(config, result), ExitStatusOf(config, result)};
}

// Says so on standard error if a result could not be written; returns the exit status then.
int AfterWriting(const char* flag, const absl::Status& written, int exit_status) {
  if (written.ok()) return exit_status;
  std::fprintf(stderr, "verbena-bench: %s: %s\n", flag, std::string(written.message()).c_str());
  return exit_status == kExitOk ? kExitOutput : exit_status;
}

}  // namespace

int Compare(const Config& config) {
  if (const absl::Status status = CheckResultFiles(config); !status.ok()) {
    std::fprintf(stderr, "verbena-bench: %s\n", std::string(status.message()).c_str());
    return kExitOutput;
  }
  const auto peers = Peers::Start(config);
  if (!peers.ok()) return Fail(config.json_file, peers.status(), kExitConnection);
  for (const std::string& note : peers->notes()) {
    std::fprintf(stderr, "verbena-bench: %s\n", note.c_str());
  }
  const auto shown = MeasureAndShow(config, *peers);
  if (!shown.ok()) return Fail(config.json_file, shown.status(), kExitConnection);
  const OutputFormat format = config.load.format;
  int exit_status = Print(format == OutputFormat::kJson    ? JsonText(shown->json)
                          : format == OutputFormat::kTable ? shown->table
                                                           : "",
                          shown->exit_status);
  if (!config.json_file.empty()) {
    exit_status = AfterWriting("--json", WriteJson(config.json_file, shown->json), exit_status);
  }
  if (!config.report_file.empty()) {
    exit_status =
        AfterWriting("--report", WriteReport(config.report_file, shown->report), exit_status);
  }
  return exit_status;
}

}  // namespace verbena::bench
