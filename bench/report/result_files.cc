#include "bench/report/result_files.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/report/csv_series.h"
#include "bench/report/hgrm.h"
#include "bench/report/report_json.h"
#include "bench/report/ycsb_text.h"
#include "common/base/macros.h"
#include "common/base/whole_file.h"

namespace verbena::bench {
namespace {

absl::Status Named(const char* flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", status.message()));
}

std::string HgrmPath(const Config& config, OpKind kind, const char* ending) {
  return absl::StrCat(config.load.hgrm_prefix, "-", OpKindName(kind), ending, ".hgrm");
}

absl::Status WriteHgrms(const Config& config, const RunResult& result) {
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    const OpResult& op = result.ops[i];
    if (op.latency.count() > 0) {
      VERBENA_RETURN_IF_ERROR(WriteWholeFile(HgrmPath(config, kind, ""), HgrmText(op.latency)));
    }
    if (op.response.count() > 0) {
      VERBENA_RETURN_IF_ERROR(
          WriteWholeFile(HgrmPath(config, kind, "-response"), HgrmText(op.response)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckResultFiles(const Config& config) {
  if (!config.json_file.empty()) {
    VERBENA_RETURN_IF_ERROR(Named("json", CheckWholeFile(config.json_file)));
  }
  if (!config.report_file.empty()) {
    VERBENA_RETURN_IF_ERROR(Named("report", CheckWholeFile(config.report_file)));
  }
  if (!config.load.csv_file.empty()) {
    VERBENA_RETURN_IF_ERROR(Named("csv", CheckWholeFile(config.load.csv_file)));
  }
  if (!config.load.hgrm_prefix.empty()) {
    VERBENA_RETURN_IF_ERROR(Named("hgrm", CheckWholeFile(HgrmPath(config, OpKind::kRead, ""))));
  }
  return absl::OkStatus();
}

int WriteResultFiles(const Config& config, const RunResult& result, const nlohmann::json& json,
                     const std::function<Report()>& report, int exit_status) {
  const auto check = [&exit_status](const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "verbena-bench: %s\n", std::string(status.message()).c_str());
    if (exit_status == kExitOk) exit_status = kExitOutput;
  };
  if (!config.json_file.empty()) check(Named("json", WriteJson(config.json_file, json)));
  if (!config.load.csv_file.empty()) {
    check(
        Named("csv", WriteWholeFile(config.load.csv_file, CsvHeader() + CsvLines(result.series))));
  }
  if (!config.load.hgrm_prefix.empty()) check(Named("hgrm", WriteHgrms(config, result)));
  if (!config.report_file.empty()) {
    check(Named("report", WriteReport(config.report_file, report())));
  }
  return exit_status;
}

std::string FormattedResult(const Config& config, const RunResult& result,
                            const std::function<std::string()>& table, const nlohmann::json& json) {
  switch (config.load.format) {
    case OutputFormat::kTable:
      return table();
    case OutputFormat::kYcsb:
      return YcsbText(config, result);
    case OutputFormat::kJson:
      return JsonText(json);
    case OutputFormat::kNone:
      return "";
  }
  return "";
}

}  // namespace verbena::bench
