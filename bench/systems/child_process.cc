#include "bench/systems/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"

namespace verbena::bench {
namespace {

constexpr int64_t kPatienceNanos = 5'000'000'000;

absl::Status StartError(const std::string& program, const char* what) {
  return absl::UnavailableError(
      absl::StrCat("cannot start ", program, ": ", what, ": ", std::strerror(errno)));
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void Execute(const char* program, char* const* words, int output, int log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  if (log >= 0) dup2(log, STDERR_FILENO);
  execv(program, words);
  _exit(127);
}

}  // namespace

std::string OwnProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string OwnFolder() { return std::filesystem::path(OwnProgram()).parent_path().string(); }

std::string FindProgram(const std::string& program) {
  const auto usable = [](const std::string& path) {
    return std::filesystem::is_regular_file(path) && access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return usable(program) ? program : std::string();
  const char* const path = std::getenv("PATH");
  for (const auto folder : absl::StrSplit(path == nullptr ? "/usr/bin" : path, ':')) {
    std::string candidate = absl::StrCat(folder, "/", program);
    if (usable(candidate)) return candidate;
  }
  return {};
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::string& program,
                                                 const std::vector<std::string>& args,
                                                 const std::string& log_file) {
  ChildProcess child;
  child.name_ = program;
  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return StartError(program, "pipe2");
  child.output_ = UniqueFd(ends[0]);
  const UniqueFd writer(ends[1]);
  UniqueFd log;
  if (!log_file.empty()) {
    log = UniqueFd(open(log_file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    if (!log.valid()) return StartError(program, log_file.c_str());
  }
  const pid_t pid = fork();
  if (pid < 0) return StartError(program, "fork");
  if (pid == 0) Execute(program.c_str(), pointers.data(), writer.get(), log.get());
  child.pid_ = pid;
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      buffered_(std::move(other.buffered_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    Stop();
    name_ = std::move(other.name_);
    pid_ = std::exchange(other.pid_, -1);
    output_ = std::move(other.output_);
    buffered_ = std::move(other.buffered_);
  }
  return *this;
}

absl::StatusOr<std::string> ChildProcess::ReadLine(std::chrono::milliseconds timeout) {
  const int64_t deadline = MonotonicNanos() + std::chrono::nanoseconds(timeout).count();
  for (;;) {
    if (const size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    const int64_t left = deadline - MonotonicNanos();
    if (left <= 0) return absl::DeadlineExceededError(absl::StrCat(name_, " says nothing"));
    pollfd entry{output_.get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(left / 1'000'000) + 1) <= 0) continue;
    char bytes[4096];
    const ssize_t n = read(output_.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::UnavailableError(absl::StrCat(name_, " has ended"));
    buffered_.append(bytes, static_cast<size_t>(n));
  }
}

bool ChildProcess::Ended() {
  if (pid_ < 0) return true;
  if (waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

void ChildProcess::Stop() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  const int64_t deadline = MonotonicNanos() + kPatienceNanos;
  while (!Ended()) {
    if (MonotonicNanos() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  std::error_code error;
  std::string path = std::filesystem::temp_directory_path(error) / "verbena-bench-XXXXXX";
  if (error || mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot make a folder like ", path));
  }
  TemporaryFolder folder;
  folder.path_ = std::move(path);
  return folder;
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    std::filesystem::remove(entry.path(), error);
  }
  std::filesystem::remove(path_, error);
}

}  // namespace verbena::bench
