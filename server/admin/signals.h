// SIGTERM and SIGINT: the first one stops the server in order, the second one at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/statusor.h"

namespace verbena::admin {

// Blocks both signals in the calling thread and all that it starts later. To be called in main
// before there is any other thread, or one of them would be ended by the signal.
void BlockStopSignals();

// Takes the signals in a thread of its own. One per process, lives as long as it.
class StopSignals {
 public:
  // A signal before SetServing ends the process at once with status 0: there is nothing to finish.
  // ResourceExhausted if there is no thread to be had.
  static absl::StatusOr<StopSignals*> Start();
  void SetServing();
  // Until the first signal; its number.
  int Wait();

 private:
  StopSignals() = default;
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  int signal_ = 0;
  int64_t first_ = 0;  // when it came: CLOCK_MONOTONIC, ns
};

}  // namespace verbena::admin
