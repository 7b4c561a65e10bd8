// Making threads where there may be none to be had.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace verbena {

// A thread that runs `function`. ResourceExhausted if the system gives none, with `purpose` in its
// text ("the acceptor"). It inherits the caller's signal mask (see BlockedSignals). Thread-safe.
template <typename Function>
absl::StatusOr<std::thread> MakeThread(absl::string_view purpose, Function&& function) {
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread can be had for ", purpose, ": ", error.what(),
                     " (see `ulimit -u` and the group's pids.max)"));
  }
}

}  // namespace verbena
