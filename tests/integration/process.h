// Programs under test, run as processes of their own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace verbena::testing {

// How long tests wait for things that normally take milliseconds; long, since sanitizers and other
// jobs on the machine slow everything down.
inline constexpr std::chrono::seconds kPatience{60};

// Path of a program of this build ("verbena-server"). The environment variable VERBENA_BIN_DIR
// overrides the folder that the build used.
std::string ProgramPath(std::string_view name);

struct ProcessOptions {
  std::string program;                                                // path
  std::vector<std::string> args;                                      // without the program itself
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to this process's
  std::string input = {};        // written to its standard input
  bool keep_input_open = false;  // else its standard input ends after `input`
};

// What became of a process.
struct ExitStatus {
  bool exited = false;  // by itself, with `code`; else by the signal `signal`
  int code = -1;
  int signal = 0;
};

// One child process with its output captured. The destructor kills it (SIGKILL) and reaps it; it
// also dies with the thread that started it. Thread-safe but for the destructor.
class Process {
 public:
  // NotFound if the program is not there or cannot be run.
  static absl::StatusOr<std::unique_ptr<Process>> Start(ProcessOptions options);
  // Runs to the end; DeadlineExceeded (and killed) if that takes longer than `patience`.
  static absl::StatusOr<std::unique_ptr<Process>> Run(
      ProcessOptions options, std::chrono::milliseconds patience = kPatience);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // All that it has written so far.
  std::string out() const;
  std::string err() const;

  // Waits until standard output or standard error contains `text`. DeadlineExceeded, or Aborted if
  // the process ended without writing it; both with all that it wrote.
  absl::Status WaitForOutput(std::string_view text, std::chrono::milliseconds patience = kPatience);
  // Sends a signal, unless it has been reaped.
  void Signal(int signal);
  // Reaps it. DeadlineExceeded with all that it wrote.
  absl::StatusOr<ExitStatus> WaitForExit(std::chrono::milliseconds patience = kPatience);
  // Closes its standard input (with keep_input_open, once `input` has been read).
  void CloseInput();
  // Processor time that it has used so far, all threads, user and system.
  absl::StatusOr<std::chrono::nanoseconds> CpuTime() const;

 private:
  Process() = default;
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

// A verbena-server on 127.0.0.1 with a free port, on the software device. Small (64 MiB, one
// worker) unless `flags` say otherwise: they come last and win.
class ServerProcess {
 public:
  // Returns when the server is ready to serve.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(std::vector<std::string> flags = {});
  ~ServerProcess();

  // "127.0.0.1:PORT"
  const std::string& address() const { return address_; }
  Process& process() { return *process_; }
  pid_t pid() const { return process_->pid(); }
  // SIGTERM and the exit status.
  absl::StatusOr<ExitStatus> Stop();

 private:
  ServerProcess() = default;

  std::unique_ptr<Process> process_;
  std::string address_;
  std::string folder_;  // temporary, with the port file
};

}  // namespace verbena::testing
