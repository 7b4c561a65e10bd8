// Programs under test, run as processes of their own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::testing {

// How long tests wait for things that normally take milliseconds; long, since sanitizers and other
// jobs on the machine slow everything down.
inline constexpr std::chrono::seconds kPatience{60};

// Path of a program of this build ("verbena-server"). The environment variable VERBENA_BIN_DIR
// overrides the folder that the build used.
std::string ProgramPath(std::string_view name);

// Where a program runs.
enum class Host {
  kHere,    // beside the test
  kServer,  // where servers run: on the host of the agent (process_agent) at VERBENA_TEST_AGENT, if
            // that is set, else here as well
};

struct ProcessOptions {
  std::string program;                                                // path
  std::vector<std::string> args = {};                                 // without the program itself
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to what is there
  std::string input = {};        // written to its standard input
  bool keep_input_open = false;  // else its standard input ends after `input`
  Host host = Host::kHere;
};

// What became of a process.
struct ExitStatus {
  bool exited = false;  // by itself, with `code`; else by the signal `signal`
  int code = -1;
  int signal = 0;
};

// One process with its output captured. The destructor kills it (SIGKILL) and reaps it; it also
// dies with the thread that started it or, on another host, with the connection to its agent.
// Thread-safe but for the destructor.
class Process {
 public:
  // NotFound if the program is not there or cannot be run.
  static absl::StatusOr<std::unique_ptr<Process>> Start(ProcessOptions options);
  // Runs to the end; DeadlineExceeded (and killed) if that takes longer than `patience`.
  static absl::StatusOr<std::unique_ptr<Process>> Run(
      ProcessOptions options, std::chrono::milliseconds patience = kPatience);
  virtual ~Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // All that it has written so far.
  virtual std::string out() const = 0;
  virtual std::string err() const = 0;

  // Waits until standard output or standard error contains `text`. DeadlineExceeded, or Aborted if
  // the process ended without writing it; both with all that it wrote.
  virtual absl::Status WaitForOutput(std::string_view text, std::chrono::milliseconds patience) = 0;
  absl::Status WaitForOutput(std::string_view text) { return WaitForOutput(text, kPatience); }
  // Sends a signal, unless it has been reaped.
  virtual void Signal(int signal) = 0;
  // SIGSTOP; returns once every thread has stopped.
  virtual absl::Status Freeze() = 0;
  // Reaps it. DeadlineExceeded with all that it wrote.
  virtual absl::StatusOr<ExitStatus> WaitForExit(std::chrono::milliseconds patience) = 0;
  absl::StatusOr<ExitStatus> WaitForExit() { return WaitForExit(kPatience); }
  // Closes its standard input (with keep_input_open, once `input` has been read).
  virtual void CloseInput() = 0;
  // Processor time that it has used so far, all threads, user and system.
  virtual absl::StatusOr<std::chrono::nanoseconds> CpuTime() const = 0;

 protected:
  Process() = default;
};

// A verbena-server with a free port on the fabric under test. Small (64 MiB, one worker) unless
// `flags` say otherwise: they come last and win.
class ServerProcess {
 public:
  // Returns when the server is ready to serve.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(std::vector<std::string> flags = {},
                                                              Host host = Host::kServer);

  // "ADDR:PORT"
  const std::string& address() const { return address_; }
  Process& process() { return *process_; }
  // SIGTERM and the exit status.
  absl::StatusOr<ExitStatus> Stop();

 private:
  ServerProcess() = default;

  std::unique_ptr<Process> process_;
  std::string address_;
};

}  // namespace verbena::testing
