#include "tests/integration/local_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace verbena::testing {
namespace {

using Clock = std::chrono::steady_clock;
// Between looks at things that give no event (a child's end, a file's appearance).
constexpr std::chrono::milliseconds kLook{5};

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("pipe2: ", std::strerror(errno)));
  }
  Pipe made;
  made.read = UniqueFd(fds[0]);
  made.write = UniqueFd(fds[1]);
  return made;
}

std::vector<std::string> MergedEnvironment(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(added.begin(), added.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(absl::StrCat(name, "=", value));
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Whether every thread of a process has stopped: the signal reaches them one after the other.
bool AllThreadsStopped(pid_t pid) {
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat.compare(name_end, 3, ") T") != 0) return false;
  }
  return !error;
}

// Appends what is there; false at the end of the stream.
bool ReadSome(int fd, std::string* text) {
  std::array<char, 4096> buffer;
  const ssize_t got = read(fd, buffer.data(), buffer.size());
  if (got > 0) text->append(buffer.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalProcess>> LocalProcess::Start(ProcessOptions options) {
  if (access(options.program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot run ", options.program, ": ", std::strerror(errno)));
  }
  absl::StatusOr<Pipe> in = MakePipe();
  absl::StatusOr<Pipe> out = MakePipe();
  absl::StatusOr<Pipe> err = MakePipe();
  if (!in.ok() || !out.ok() || !err.ok()) return absl::InternalError("no pipes");
  std::vector<std::string> words = {options.program};
  words.insert(words.end(), options.args.begin(), options.args.end());
  std::vector<std::string> environment = MergedEnvironment(options.environment);
  const std::vector<char*> argv = Pointers(words);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();

  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  if (pid == 0) {
    // Only async-signal-safe calls from here on.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(in->read.get(), STDIN_FILENO);
    dup2(out->write.get(), STDOUT_FILENO);
    dup2(err->write.get(), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  std::unique_ptr<LocalProcess> process(new LocalProcess);
  process->name_ = options.program;
  process->pid_ = pid;
  process->input_ = std::move(in->write);
  process->out_pipe_ = std::move(out->read);
  process->err_pipe_ = std::move(err->read);
  process->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  process->input_text_ = std::move(options.input);
  process->keep_input_open_ = options.keep_input_open;
  process->capture_ = std::thread([self = process.get()] { self->Capture(); });
  return process;
}

LocalProcess::~LocalProcess() {
  Signal(SIGKILL);
  {
    std::unique_lock lock(mutex_);
    if (!reaped_) {
      int status = 0;
      while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
      reaped_ = true;
    }
  }
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) < 0) std::abort();  // an eventfd takes 8 bytes
  capture_.join();
}

// Moves bytes between the pipes and the strings until both outputs have ended.
void LocalProcess::Capture() {
  signal(SIGPIPE, SIG_IGN);  // a child may not read its input
  fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  size_t written = 0;
  bool out_open = true;
  bool err_open = true;
  bool writing = !input_text_.empty();
  if (!writing && !keep_input_open_) CloseInput();
  while (out_open || err_open) {
    pollfd fds[4] = {{out_open ? out_pipe_.get() : -1, POLLIN, 0},
                     {err_open ? err_pipe_.get() : -1, POLLIN, 0},
                     {writing ? input_.get() : -1, POLLOUT, 0},
                     {stop_.get(), POLLIN, 0}};
    if (poll(fds, 4, -1) < 0) continue;
    if (fds[3].revents != 0) break;
    {
      const std::lock_guard lock(mutex_);
      if (fds[0].revents != 0) out_open = ReadSome(out_pipe_.get(), &out_);
      if (fds[1].revents != 0) err_open = ReadSome(err_pipe_.get(), &err_);
      output_ended_ = !out_open && !err_open;
    }
    changed_.notify_all();
    if (fds[2].revents != 0) {
      const ssize_t sent =
          write(input_.get(), input_text_.data() + written, input_text_.size() - written);
      if (sent > 0) written += static_cast<size_t>(sent);
      const bool failed = sent < 0 && errno != EAGAIN && errno != EINTR;
      if (failed || written == input_text_.size()) {
        writing = false;
        if (!keep_input_open_) CloseInput();
      }
    }
  }
}

void LocalProcess::CloseInput() {
  const std::lock_guard lock(mutex_);
  input_.Reset();
}

std::string LocalProcess::out() const {
  const std::lock_guard lock(mutex_);
  return out_;
}

std::string LocalProcess::err() const {
  const std::lock_guard lock(mutex_);
  return err_;
}

std::string LocalProcess::Transcript() const {
  return absl::StrCat(name_, "\n--- stdout\n", out_, "--- stderr\n", err_);
}

absl::Status LocalProcess::WaitForOutput(std::string_view text,
                                         std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto found = [&] {
    return out_.find(text) != std::string::npos || err_.find(text) != std::string::npos;
  };
  const bool settled = changed_.wait_for(lock, patience, [&] { return found() || output_ended_; });
  if (found()) return absl::OkStatus();
  const std::string message =
      absl::StrCat("no '", ToAbsl(text), "' in the output of ", Transcript());
  return settled ? absl::AbortedError(message) : absl::DeadlineExceededError(message);
}

void LocalProcess::Signal(int signal) {
  const std::lock_guard lock(mutex_);
  if (!reaped_) kill(pid_, signal);
}

bool LocalProcess::ReapLocked() {
  if (reaped_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  reaped_ = true;
  exit_.exited = WIFEXITED(status);
  if (exit_.exited) {
    exit_.code = WEXITSTATUS(status);
  } else {
    exit_.signal = WTERMSIG(status);
  }
  return true;
}

absl::StatusOr<ExitStatus> LocalProcess::WaitForExit(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  std::unique_lock lock(mutex_);
  while (!ReapLocked()) {
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("still running: ", Transcript()));
    }
    changed_.wait_for(lock, kLook);
  }
  // Its last words may still be in the pipes; a grandchild may hold them open for ever.
  changed_.wait_for(lock, std::chrono::seconds(2), [&] { return output_ended_; });
  return exit_;
}

absl::StatusOr<std::chrono::nanoseconds> LocalProcess::CpuTime() const {
  clockid_t clock;
  timespec used;
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    return absl::NotFoundError("the process is gone");
  }
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

absl::Status LocalProcess::Freeze() {
  Signal(SIGSTOP);
  const auto deadline = Clock::now() + kPatience;
  while (!AllThreadsStopped(pid_)) {
    if (Clock::now() > deadline) return absl::DeadlineExceededError("it does not stop");
    std::this_thread::sleep_for(kLook);
  }
  return absl::OkStatus();
}

}  // namespace verbena::testing
