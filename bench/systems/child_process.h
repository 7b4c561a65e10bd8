// A program started and ended by this one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace verbena::bench {

// The folder of the running program, and the program itself.
std::string OwnFolder();
std::string OwnProgram();

// The path of `program`: as given if it has a slash, else the first match in PATH; empty if there
// is none.
std::string FindProgram(const std::string& program);

// Move-only. The destructor ends the process (SIGTERM, after 5 s SIGKILL) and reaps it; it also
// dies with the thread that started it. Not thread-safe.
class ChildProcess {
 public:
  // `args` without the program itself. Its standard output can be read with ReadLine, its standard
  // error goes to `log_file`, or to this program's if that is empty.
  static absl::StatusOr<ChildProcess> Start(const std::string& program,
                                            const std::vector<std::string>& args,
                                            const std::string& log_file);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess() { Stop(); }

  pid_t pid() const { return pid_; }
  // The next line of its standard output, without the end of line. DeadlineExceeded, or Unavailable
  // when there is no more.
  absl::StatusOr<std::string> ReadLine(std::chrono::milliseconds timeout);
  // Whether it has ended by itself.
  bool Ended();
  void Stop();

 private:
  std::string name_;
  pid_t pid_ = -1;
  UniqueFd output_;
  std::string buffered_;
};

// A folder under TMPDIR, removed with what is in it (one level). Move-only.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Create();
  TemporaryFolder() = default;
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    path_.swap(other.path_);
    return *this;
  }
  ~TemporaryFolder();

  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace verbena::bench
