// A scan under way: from what was asked for to what has been found.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/src/operation.h"
#include "common/wire/messages.h"
#include "verbena/connection.h"

namespace verbena::client {

// The operations of a scan share one of these. One of them asks the server for keys; then each
// fetches the values of keys, one after the other, as long as there are any; then all but one are
// over, and that one asks for the next keys.
struct ScanRun {
  // What was asked for. `start` and `after` move on with each answer.
  std::string start;
  bool after = false;
  std::string prefix;
  bool keys_only = false;
  size_t limit = 0;
  int64_t timeout_ns = 0;  // of each step; 0: the connection's

  // The answer that is worked on: the keys are views into its bytes.
  std::string bytes;
  std::vector<wire::FoundKey> keys;
  bool more = false;
  size_t next = 0;       // the first key that nobody fetches yet
  size_t base = 0;       // where in `items` the first key's item goes
  uint32_t workers = 1;  // operations that the scan has

  absl::Status status;          // the first error
  std::vector<ScanItem> items;  // found; one without a key is not there (any more)

  SyncCall* call = nullptr;  // of a synchronous scan, which is given no callback
  ScanCallback callback;
};

}  // namespace verbena::client
