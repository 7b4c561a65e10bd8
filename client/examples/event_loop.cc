// Verbena in an event loop of one's own: epoll waits for the terminal, or a pipe, and for the
// fabric.
//
//   printf 'one\ntwo\nthree\n' | verbena-example-event-loop 127.0.0.1:7400
//
// Each line that is read is put under a key of its own and got back; nothing blocks, and no time is
// spent when nothing happens.
//
// Exit status: 0 if every line came back as it was, 1 if not, 2 for wrong usage, 3 if the server
// cannot be reached.

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <string>

#include "verbena/connection.h"

namespace {

class EchoLoop {
 public:
  EchoLoop(verbena::Connection& connection, int epoll) : connection_(connection), epoll_(epoll) {}

  // Runs until the input has ended and all of it has come back.
  absl::Status Run() {
    if (absl::Status status = Watch(STDIN_FILENO); !status.ok()) return status;
    if (absl::Status status = Watch(connection_.event_fd()); !status.ok()) return status;
    while (!input_ended_ || lines_under_way_ > 0) {
      StartLines();
      // Sends what was submitted, runs the callbacks of what has completed, and sees to it that
      // event_fd() wakes us for the rest.
      connection_.PollAndArm();
      if (!connection_.status().ok()) return connection_.status();
      if (!failure_.ok()) return failure_;
      if (!waiting_.empty() && connection_.in_flight() == 0) continue;
      if (input_ended_ && lines_under_way_ == 0) break;
      epoll_event events[2];
      const int ready = epoll_wait(epoll_, events, 2, /*timeout=*/-1);
      if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
      for (int i = 0; i < ready; ++i) {
        if (events[i].data.fd == STDIN_FILENO) ReadInput();
      }
    }
    return failure_;
  }
  int lines() const { return lines_; }

 private:
  absl::Status Watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
    // A file is always readable, which epoll does not accept: it is read at once.
    if (errno != EPERM || fd != STDIN_FILENO) return absl::ErrnoToStatus(errno, "epoll_ctl");
    while (!input_ended_) ReadInput();
    return absl::OkStatus();
  }

  void ReadInput() {
    char bytes[4096];
    const ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
    if (size <= 0) {
      input_ended_ = true;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, STDIN_FILENO, nullptr);
      return;
    }
    text_.append(bytes, static_cast<size_t>(size));
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
      waiting_.push_back(text_.substr(0, end));
      ++lines_under_way_;
    }
  }

  // As many as the depth has room for; the others wait until some have completed.
  void StartLines() {
    while (!waiting_.empty() && failure_.ok()) {
      const std::string key = "example/line/" + std::to_string(lines_);
      // A callback holds 64 bytes, so the line lies elsewhere.
      auto line = std::make_shared<std::string>(waiting_.front());
      const absl::Status status = connection_.SubmitPut(
          key, *line, [this, line, number = lines_](const absl::Status& put, const auto&) {
            if (put.ok()) {
              GetBack(number, line);
            } else {
              Note(put);
            }
          });
      if (absl::IsResourceExhausted(status)) return;
      Note(status);
      waiting_.pop_front();
      ++lines_;
    }
  }

  // A callback may submit: here the GET that follows the PUT.
  void GetBack(int number, const std::shared_ptr<std::string>& line) {
    Note(connection_.SubmitGet(
        "example/line/" + std::to_string(number),
        [this, line](const absl::Status& status, const verbena::GetResult& got) {
          --lines_under_way_;
          Note(status);
          if (!status.ok()) return;
          if (got.value != *line) Note(absl::DataLossError("\"" + *line + "\" came back changed"));
          std::cout << got.value << "\n";
        }));
  }

  // The first one counts.
  void Note(const absl::Status& status) {
    if (failure_.ok()) failure_ = status;
  }

  verbena::Connection& connection_;
  const int epoll_;
  std::string text_;                 // what was read and has no end of line yet
  std::deque<std::string> waiting_;  // lines that were not submitted
  bool input_ended_ = false;
  int lines_ = 0;
  int lines_under_way_ = 0;  // not yet come back
  absl::Status failure_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: printf 'one\\ntwo\\n' | verbena-example-event-loop ADDR:PORT\n";
    return 2;
  }
  auto connection = verbena::Connection::Connect(argv[1], verbena::Options{});
  if (!connection.ok()) {
    std::cerr << "verbena-example-event-loop: " << connection.status() << "\n";
    return 3;
  }
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) {
    std::cerr << "verbena-example-event-loop: epoll_create1: " << std::strerror(errno) << "\n";
    return 1;
  }
  EchoLoop loop(**connection, epoll);
  const absl::Status status = loop.Run();
  // After a failure operations may be in flight, whose callbacks use the loop, which goes first.
  (*connection)->Close();
  close(epoll);
  if (!status.ok()) {
    std::cerr << "verbena-example-event-loop: " << status << "\n";
    return 1;
  }
  std::cout << loop.lines() << " lines went to the server and came back\n";
  return 0;
}
