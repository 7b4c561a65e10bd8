// The exit statuses of verbena-cli; scripts rely on them, so none changes its meaning.
#pragma once

#include "absl/status/status.h"

namespace verbena::cli {

enum ExitStatus : int {
  kExitOk = 0,
  kExitNotFound = 1,    // there is no such key
  kExitUsage = 2,       // unknown command or flag, or a wrong value of one
  kExitConnection = 3,  // no such host, no server, it went away, or no answer in time
  kExitRefused = 4,     // the server refused: limits of keys and values, no space, connections
  kExitInternal = 5,    // a defect of Verbena
  kExitIo = 6,          // reading standard input or writing standard output failed
  kExitCondition = 7,   // the key is there, or has another version, against the condition
};

// What an error of the client library means for the exit status.
ExitStatus ExitStatusFor(const absl::Status& status);

}  // namespace verbena::cli
