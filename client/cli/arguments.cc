#include "client/cli/arguments.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/command_line.h"
#include "common/base/macros.h"
#include "common/base/net_address.h"
#include "common/base/sizes.h"
#include "common/base/text.h"
#include "common/verbs/connect_flags.h"
#include "common/wire/messages.h"

// Durations are strings here so that a malformed one is refused with the allowed range.
DEFINE_string(server, "", "the server: ADDR:PORT");
DEFINE_string(fabric, "auto", "auto, verbs (an RDMA adapter) or soft (the software device)");
DEFINE_string(timeout, "5s", "for connecting, and again for the operation (1ms to 1h)");
DEFINE_bool(json, false, "print results and errors as JSON");
DEFINE_bool(if_absent, false, "put: only if there is no such key");
DEFINE_bool(if_present, false, "put, add, append: only if there is such a key");
DEFINE_string(if_version, "", "put, del, add, append: only if the key has this version");
DEFINE_string(ttl, "", "put: how long the key stays (1ms to 100 years)");
DEFINE_string(prefix, "", "scan: only keys that begin so");
DEFINE_string(limit, "", "scan: how many keys at most (default 100; 0: all)");
DEFINE_bool(after, false, "scan: begin behind START, with the next key");
DEFINE_bool(keys_only, false, "scan: no values");
DEFINE_string(workers, "0", "doctor: workers of that server, 1 to 256; 0: as many as by default");
DEFINE_string(memory, "1GiB", "doctor: the region of a server on this machine; 0: none");

DECLARE_bool(help);
DECLARE_bool(helpfull);
DECLARE_bool(helpshort);
DECLARE_bool(version);

namespace verbena::cli {
namespace {

std::string KnownFlags() {
  return absl::StrCat(
      "--server, --fabric, --timeout, --json, --if_absent, --if_present, ",
      "--if_version, --ttl, --prefix, --limit, --after, --keys_only, --memory, --workers, ",
      ToAbsl(verbs::kConnectFlags), ", --flagfile, --help");
}

struct CommandShape {
  std::string_view name;
  Command command;
  size_t least;  // operands
  size_t most;
  const char* usage;
};

constexpr CommandShape kCommands[] = {
    {"get", Command::kGet, 1, 1, "get KEY"},
    {"put", Command::kPut, 1, 2, "put KEY [VALUE]"},
    {"del", Command::kDelete, 1, 1, "del KEY"},
    {"take", Command::kTake, 1, 1, "take KEY"},
    {"add", Command::kAdd, 2, 2, "add KEY NUMBER"},
    {"append", Command::kAppend, 1, 2, "append KEY [VALUE]"},
    {"expire", Command::kExpire, 2, 2, "expire KEY DURATION"},
    {"persist", Command::kPersist, 1, 1, "persist KEY"},
    {"ttl", Command::kTtl, 1, 1, "ttl KEY"},
    {"scan", Command::kScan, 0, 1, "scan [START]"},
    {"info", Command::kInfo, 0, 0, "info"},
    {"ping", Command::kPing, 0, 0, "ping"},
    {"doctor", Command::kDoctor, 0, 0, "doctor"},
    {"help", Command::kHelp, 0, 1, "help [COMMAND]"},
};

std::string CommandNames() {
  return absl::StrJoin(kCommands, ", ", [](std::string* out, const CommandShape& shape) {
    absl::StrAppend(out, ToAbsl(shape.name));
  });
}

// nullptr if there is no such command.
const CommandShape* FindCommand(std::string_view name) {
  const auto* const shape =
      std::find_if(std::begin(kCommands), std::end(kCommands),
                   [&](const CommandShape& candidate) { return candidate.name == name; });
  return shape == std::end(kCommands) ? nullptr : shape;
}

// What `--help` with these words, or `help` and these words, is about.
Command HelpTopic(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const CommandShape* const shape = FindCommand(word);
    if (shape != nullptr && shape->command != Command::kHelp) return shape->command;
  }
  return Command::kHelp;
}

absl::Status ReadCommand(std::vector<std::string> words, Arguments& arguments) {
  if (words.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a command is needed: ", CommandNames()));
  }
  const CommandShape* const shape = FindCommand(words.front());
  if (shape == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no command '", words.front(), "'; there are ", CommandNames()));
  }
  const size_t operands = words.size() - 1;
  if (operands < shape->least || operands > shape->most) {
    return absl::InvalidArgumentError(
        absl::StrCat(operands < shape->least ? "too few" : "too many",
                     " operands: the usage is verbena-cli ", "--server=ADDR:PORT ", shape->usage,
                     operands > shape->most ? " (a key or value with blanks goes in quotes)" : ""));
  }
  arguments.command = shape->command;
  if (operands >= 1) arguments.key = std::move(words[1]);
  if (operands >= 2) arguments.value = std::move(words[2]);
  if (arguments.command == Command::kExpire) {
    const auto ttl = ParseTtl(*arguments.value);
    if (!ttl.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", *arguments.value, "' is no time to live: ", ttl.status().message()));
    }
    arguments.ttl = *ttl;
  }
  if (arguments.command == Command::kScan && operands == 0 && FLAGS_after) {
    return absl::InvalidArgumentError("--after needs a key to start behind: scan START --after");
  }
  if (arguments.command == Command::kAdd &&
      !absl::SimpleAtoi(*arguments.value, &arguments.summand)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", *arguments.value,
                     "' cannot be added: it must be a whole number from -9223372036854775808 to "
                     "9223372036854775807 (a negative one goes behind ' -- ')"));
  }
  return absl::OkStatus();
}

// Which of the flags for conditions is given, and whether the command knows it.
absl::Status ReadCondition(Arguments& arguments) {
  const Command command = arguments.command;
  const int given =
      (FLAGS_if_absent ? 1 : 0) + (FLAGS_if_present ? 1 : 0) + (FLAGS_if_version.empty() ? 0 : 1);
  if (given == 0) return absl::OkStatus();
  if (given > 1) {
    return absl::InvalidArgumentError(
        "of --if_absent, --if_present and --if_version only one can be given");
  }
  const bool put = command == Command::kPut;
  const bool edit = command == Command::kAdd || command == Command::kAppend;
  if (FLAGS_if_absent && !put) {
    return absl::InvalidArgumentError("--if_absent is for put only");
  }
  if (FLAGS_if_present && !put && !edit) {
    return absl::InvalidArgumentError("--if_present is for put, add and append only");
  }
  if (FLAGS_if_absent) arguments.condition = Condition::IfAbsent();
  if (FLAGS_if_present) arguments.condition = Condition::IfPresent();
  if (FLAGS_if_version.empty()) return absl::OkStatus();
  if (!put && !edit && command != Command::kDelete) {
    return absl::InvalidArgumentError("--if_version is for put, del, add and append only");
  }
  uint64_t version = 0;
  if (!absl::SimpleAtoi(FLAGS_if_version, &version) || version == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--if_version=", FLAGS_if_version,
                     " is not allowed: it must be a version as --json get and put print them"));
  }
  arguments.condition = Condition::IfVersion(version);
  return absl::OkStatus();
}

bool WasGiven(const char* flag) {
  gflags::CommandLineFlagInfo info;
  return gflags::GetCommandLineFlagInfo(flag, &info) && !info.is_default;
}

absl::Status ReadTtl(Arguments& arguments) {
  if (!WasGiven("ttl")) return absl::OkStatus();
  if (arguments.command != Command::kPut) {
    return absl::InvalidArgumentError(
        "--ttl is for put only (expire KEY DURATION gives a time to a key that is there)");
  }
  const auto ttl = ParseTtl(FLAGS_ttl);
  if (!ttl.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ttl=", FLAGS_ttl, " is not allowed: ", ttl.status().message()));
  }
  arguments.ttl = *ttl;
  return absl::OkStatus();
}

absl::Status ReadScan(Arguments& arguments) {
  if (arguments.command != Command::kScan) {
    if (!WasGiven("prefix") && !WasGiven("limit") && !FLAGS_after && !FLAGS_keys_only) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "--prefix, --limit, --after and --keys_only are for scan only");
  }
  ScanArguments& scan = arguments.scan;
  scan.prefix = FLAGS_prefix;
  scan.after = FLAGS_after;
  scan.keys_only = FLAGS_keys_only;
  if (!WasGiven("limit")) return absl::OkStatus();
  uint64_t limit = 0;
  if (!absl::SimpleAtoi(FLAGS_limit, &limit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--limit=", FLAGS_limit,
                     " is not allowed: it must be a number of keys, or 0 for all of them"));
  }
  scan.limit = limit;
  return absl::OkStatus();
}

absl::Status ReadFlags(Arguments& arguments) {
  VERBENA_RETURN_IF_ERROR(ReadCondition(arguments));
  VERBENA_RETURN_IF_ERROR(ReadTtl(arguments));
  VERBENA_RETURN_IF_ERROR(ReadScan(arguments));
  arguments.json = FLAGS_json;
  arguments.server = FLAGS_server;
  const bool doctor = arguments.command == Command::kDoctor;
  if (arguments.server.empty() && !doctor) {
    return absl::InvalidArgumentError("--server is missing: it must be the server's ADDR:PORT");
  }
  arguments.fabric = FLAGS_fabric;
  if (arguments.fabric != "auto" && arguments.fabric != "verbs" && arguments.fabric != "soft") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--fabric=", arguments.fabric, " is not allowed: it must be auto, verbs or soft"));
  }
  const auto timeout = ParseTimeout(FLAGS_timeout);
  if (!timeout.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout=", FLAGS_timeout, " is not allowed: ", timeout.status().message()));
  }
  arguments.timeout = *timeout;
  VERBENA_ASSIGN_OR_RETURN(arguments.connect, verbs::ConnectOptionsFromFlags());
  const auto memory = ParseSize(FLAGS_memory);
  if (!memory.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--memory: ", memory.status().message()));
  }
  arguments.memory = *memory;
  if (!absl::SimpleAtoi(FLAGS_workers, &arguments.workers) || arguments.workers > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers=", FLAGS_workers,
                     " is not allowed: it must be a number from 1 to 256, or 0 for the default"));
  }
  // The doctor looks into addresses itself, and tells what is wrong with them.
  if (doctor) return absl::OkStatus();
  // Whether there is such a host is found out when it is connected to.
  const auto address = SplitHostAndPort(arguments.server);
  if (!address.ok() || address->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server=", arguments.server, " is not allowed: it must be ADDR:PORT",
                     address.ok() ? absl::StrCat(" with a port from 1 to 65535")
                                  : absl::StrCat(" (", address.status().message(), ")")));
  }
  return absl::OkStatus();
}

// Milliseconds; nullopt if it is no duration or not within 1 ms to `most`.
std::optional<std::chrono::milliseconds> ParseDuration(std::string_view text, uint64_t most) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}, {"", 1000}};
  const auto* const unit =
      std::find_if(std::begin(kUnits), std::end(kUnits),
                   [&](const auto& candidate) { return text.ends_with(candidate.first); });
  const std::string_view number = text.substr(0, text.size() - unit->first.size());
  double value = 0;
  const bool plain = !number.empty() && number.find_first_not_of("0123456789.") == number.npos;
  if (plain && absl::SimpleAtod(ToAbsl(number), &value)) {
    const double ms = value * unit->second;
    if (ms >= 1 && ms <= static_cast<double>(most)) {
      return std::chrono::milliseconds(std::llround(ms));
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::chrono::milliseconds> ParseTimeout(std::string_view text) {
  if (const auto time = ParseDuration(text, 3'600'000)) return *time;
  return absl::InvalidArgumentError("it must be a time from 1ms to 1h, such as 500ms, 5s or 2m");
}

absl::StatusOr<std::chrono::milliseconds> ParseTtl(std::string_view text) {
  if (const auto time = ParseDuration(text, wire::kMaxTtlMillis)) return *time;
  return absl::InvalidArgumentError(
      "it must be a time from 1ms to 100 years (36500d), such as 500ms, 30s, 2h or 7d");
}

absl::StatusOr<Arguments> ParseArguments(std::vector<std::string> args) {
  Arguments arguments;
  VERBENA_ASSIGN_OR_RETURN(std::vector<std::string> operands,
                           ParseCommandLine(std::move(args), KnownFlags()));
  arguments.topic = HelpTopic(operands);
  if (FLAGS_help || FLAGS_helpfull || FLAGS_helpshort) return arguments;
  if (FLAGS_version) {
    arguments.command = Command::kVersion;
    return arguments;
  }
  VERBENA_RETURN_IF_ERROR(ReadCommand(std::move(operands), arguments));
  if (arguments.command == Command::kHelp) return arguments;
  VERBENA_RETURN_IF_ERROR(ReadFlags(arguments));
  return arguments;
}

}  // namespace verbena::cli
