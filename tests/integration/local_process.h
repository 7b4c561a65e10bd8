// A process on this host. See process.h.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "tests/integration/process.h"

namespace verbena::testing {

class LocalProcess : public Process {
 public:
  static absl::StatusOr<std::unique_ptr<LocalProcess>> Start(ProcessOptions options);
  ~LocalProcess() override;

  std::string out() const override;
  std::string err() const override;
  absl::Status WaitForOutput(std::string_view text, std::chrono::milliseconds patience) override;
  void Signal(int signal) override;
  absl::Status Freeze() override;
  absl::StatusOr<ExitStatus> WaitForExit(std::chrono::milliseconds patience) override;
  void CloseInput() override;
  absl::StatusOr<std::chrono::nanoseconds> CpuTime() const override;

 private:
  LocalProcess() = default;
  void Capture();
  std::string Transcript() const;
  // With `mutex_` held.
  bool ReapLocked();

  std::string name_;
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd out_pipe_;
  UniqueFd err_pipe_;
  UniqueFd stop_;  // eventfd: ends the capturing thread
  std::string input_text_;
  bool keep_input_open_ = false;
  std::thread capture_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string out_;
  std::string err_;
  bool output_ended_ = false;
  bool reaped_ = false;
  ExitStatus exit_;
};

}  // namespace verbena::testing
