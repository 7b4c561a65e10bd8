#include "bench/report/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/commands.h"
#include "common/base/error_json.h"
#include "common/base/whole_file.h"

namespace verbena::bench {

int Print(const std::string& text, int exit_status) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return exit_status;
  std::fprintf(stderr, "verbena-bench: cannot write to standard output: %s\n",
               std::strerror(errno));
  return exit_status == kExitOk ? kExitOutput : exit_status;
}

int Fail(const std::string& json_file, const absl::Status& error, int exit_status) {
  // Usage needs no code: the text says it.
  const std::string text = exit_status == kExitUsage
                               ? std::string(error.message())
                               : error.ToString(absl::StatusToStringMode::kWithNoExtraData);
  std::fprintf(stderr, "verbena-bench: %s\n", text.c_str());
  if (exit_status == kExitUsage) std::fputs("Try verbena-bench --help.\n", stderr);
  if (json_file.empty()) return exit_status;
  const absl::Status written =
      WriteWholeFile(json_file, ErrorJson(error.code(), std::string(error.message()), exit_status));
  if (!written.ok()) {
    std::fprintf(stderr, "verbena-bench: --json: %s\n", std::string(written.message()).c_str());
  }
  return exit_status;
}

}  // namespace verbena::bench
