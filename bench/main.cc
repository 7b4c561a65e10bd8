// verbena-bench: see HelpText.

#include <signal.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bench/baseline/raw_endpoint.h"
#include "bench/baseline/tcp_target.h"
#include "bench/commands.h"
#include "bench/config.h"
#include "bench/load/agent.h"
#include "bench/load/interrupt.h"
#include "bench/report/output.h"
#include "common/base/command_line.h"
#include "common/base/log.h"
#include "common/base/standard_descriptors.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

// raw-target FABRIC ADDRESS REGION REQUEST RESPONSE POLL_NS CONNECTIONS: the other process of
// --baseline; started by verbena-bench itself.
int RawTarget(int argc, char** argv) {
  RawTargetOptions options;
  if (argc != 9) return kExitUsage;
  options.fabric = argv[2];
  const auto address = NetAddress::Parse(argv[3]);
  if (!address.ok() || !absl::SimpleAtoi(argv[4], &options.region_size) ||
      !absl::SimpleAtoi(argv[5], &options.request_size) ||
      !absl::SimpleAtoi(argv[6], &options.response_size) ||
      !absl::SimpleAtoi(argv[7], &options.poll_ns) ||
      !absl::SimpleAtoi(argv[8], &options.connections) || options.connections == 0) {
    return kExitUsage;
  }
  options.listen = *address;
  const absl::Status status = ServeRawTarget(options);
  if (!status.ok()) {
    std::fprintf(stderr, "verbena-bench raw-target: %s\n",
                 status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
    return kExitConnection;
  }
  return kExitOk;
}

// --json=FILE of flags that could not be parsed; empty: none.
std::string JsonFileAmong(const std::vector<std::string>& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    for (const char* name : {"--json", "-json"}) {
      absl::string_view flag = args[i];
      if (flag == name && i + 1 < args.size()) return args[i + 1];
      if (absl::ConsumePrefix(&flag, name) && absl::ConsumePrefix(&flag, "=")) {
        return std::string(flag);
      }
    }
  }
  return "";
}

// tcp-target ADDRESS: the other end of a ping-pong over TCP; started by verbena-bench itself.
int TcpTarget(int argc, char** argv) {
  if (argc != 3) return kExitUsage;
  const auto address = NetAddress::Parse(argv[2]);
  if (!address.ok()) return kExitUsage;
  const absl::Status status = ServeTcpTarget(*address);
  std::fprintf(stderr, "verbena-bench tcp-target: %s\n", status.ToString().c_str());
  return kExitConnection;
}

int UsageError(const std::string& json_file, std::string_view message) {
  return Fail(json_file, absl::InvalidArgumentError(ToAbsl(message)), kExitUsage);
}

int Run(int argc, char** argv) {
  HoldStandardDescriptors();
  // A limit to the size of files is an error of the write, and not the end.
  signal(SIGXFSZ, SIG_IGN);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  SetUpLog("verbena-bench", "warn", /*time_stamps=*/false);
  if (argc > 1 && std::strcmp(argv[1], "raw-target") == 0) return RawTarget(argc, argv);
  if (argc > 1 && std::strcmp(argv[1], "tcp-target") == 0) return TcpTarget(argc, argv);

  std::vector<std::string> args(argv + 1, argv + argc);
  const auto properties = TakeProperties(&args);
  if (!properties.ok()) {
    return UsageError(JsonFileAmong(args), ToStd(properties.status().message()));
  }
  const auto operands = ParseCommandLine(args, "");
  if (!operands.ok()) return UsageError(JsonFileAmong(args), ToStd(operands.status().message()));
  const std::string json_file = JsonFileWanted();
  const std::string name = operands->empty() ? "" : operands->front();
  if (HelpWanted() || name == "help") {
    return Print(HelpText(), kExitOk);
  }
  if (VersionWanted()) {
    return Print("verbena-bench " VERBENA_VERSION "\n", kExitOk);
  }
  if (operands->size() > 1) {
    return UsageError(json_file,
                      absl::StrCat("what is '", (*operands)[1], "'? Flags start with --"));
  }
  if (name == "agent") {
    if (const absl::Status status = CheckAgentCommandLine(*properties); !status.ok()) {
      return UsageError(json_file, ToStd(status.message()));
    }
    CatchInterrupts();
    return RunAgent(AgentListenAddress());
  }
  std::optional<Command> command;
  if (name == "load") command = Command::kLoad;
  if (name == "run" || name == "warm-gets" || name == "client-ratios" || name == "fabric-ratios") {
    command = Command::kRun;
  }
  if (name == "compare" || name == "storage-ratios") command = Command::kCompare;
  if (!command.has_value()) {
    return UsageError(json_file, name.empty()
                                     ? "a command is needed: load, run, compare or agent"
                                     : absl::StrCat("no command '", name,
                                                    "': there are load, run, compare and agent"));
  }
  const auto config = ConfigFromFlags(*command, *properties);
  if (!config.ok()) return UsageError(json_file, ToStd(config.status().message()));
  CatchInterrupts();
  if (name == "warm-gets") return WarmGets(*config);
  if (name == "client-ratios") return MeasureClientRatios(*config);
  if (name == "fabric-ratios") return MeasureFabricRatios(*config);
  if (name == "storage-ratios") return MeasureStorageRatios(*config);
  return *command == Command::kCompare ? Compare(*config) : LoadOrRun(*config);
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::Run(argc, argv); }
