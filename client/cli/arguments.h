// verbena-cli's command line: flags (gflags) and the command with its operands.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/verbs/conn_param.h"
#include "verbena/connection.h"

namespace verbena::cli {

enum class Command {
  kHelp,
  kVersion,
  kGet,
  kPut,
  kDelete,
  kTake,
  kAdd,
  kAppend,
  kExpire,
  kPersist,
  kTtl,
  kScan,
  kInfo,
  kPing,
  kDoctor
};

// Which keys kScan shows, from Arguments::key on.
struct ScanArguments {
  static constexpr uint64_t kDefaultLimit = 100;

  std::string prefix;
  std::optional<uint64_t> limit;  // how many keys, 0: all; nullopt: kDefaultLimit
  bool after = false;             // begin behind the key, with the next one
  bool keys_only = false;
};

struct Arguments {
  Command command = Command::kHelp;
  std::string key;                               // kScan: where to start; may be empty
  std::optional<std::string> value;              // kPut, kAppend: nullopt means standard input
  int64_t summand = 0;                           // kAdd
  Condition condition;                           // kPut, kDelete, kAdd, kAppend
  std::optional<std::chrono::milliseconds> ttl;  // kPut, kExpire (always set)
  ScanArguments scan;                            // kScan
  std::string server;  // "ADDR:PORT"; empty for kDoctor: none is looked at
  std::string fabric;  // "auto", "verbs" or "soft"
  std::chrono::milliseconds timeout{0};
  bool json = false;
  verbs::ConnectOptions connect;
  uint64_t memory = 0;             // kDoctor: bytes of the region of a server here; 0: none
  uint32_t workers = 0;            // kDoctor: of that server; 0: its own default
  Command topic = Command::kHelp;  // kHelp: the command that help is wanted for; kHelp: all
};

// Reads argv[1..]. InvalidArgument names the flag or operand that is wrong and what is allowed.
// Sets gflags' globals, so it is called once (tests save and restore them).
absl::StatusOr<Arguments> ParseArguments(std::vector<std::string> args);

// "500ms", "5s", "2m", "1h", "7d", or a number of seconds. InvalidArgument, with what is allowed,
// if it is none of these or outside of 1 ms to 1 h (a timeout), 1 ms to 100 years (a time to live).
absl::StatusOr<std::chrono::milliseconds> ParseTimeout(std::string_view text);
absl::StatusOr<std::chrono::milliseconds> ParseTtl(std::string_view text);

// The text of --help, but for that of doctor (doctor/doctor.h).
std::string HelpText();

}  // namespace verbena::cli
