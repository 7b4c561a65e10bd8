#include "bench/load/line_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/macros.h"

namespace verbena::bench {
namespace {

absl::Status Failed(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

int64_t DeadlineOf(std::chrono::milliseconds timeout) {
  return DeadlineAfter(std::chrono::nanoseconds(timeout).count());
}

// Whether `events` came before the deadline.
bool WaitFor(int fd, short events, int64_t deadline) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const int ready = poll(&entry, 1, MillisUntil(deadline));
    if (ready > 0) return true;
    if (ready == 0 && MillisUntil(deadline) == 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

absl::StatusOr<UniqueFd> NewSocket(const NetAddress& address) {
  UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Failed("socket", errno);
  return socket;
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

absl::StatusOr<LineSocket> LineSocket::Connect(const std::string& address,
                                               std::chrono::milliseconds timeout) {
  VERBENA_ASSIGN_OR_RETURN(const NetAddress parsed, NetAddress::Parse(address));
  VERBENA_ASSIGN_OR_RETURN(UniqueFd socket, NewSocket(parsed));
  if (connect(socket.get(), parsed.addr(), parsed.length()) != 0) {
    if (errno != EINPROGRESS) return Failed(address, errno);
    if (!WaitFor(socket.get(), POLLOUT, DeadlineOf(timeout))) return Failed(address, ETIMEDOUT);
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Failed(address, error);
  }
  SendAtOnce(socket.get());
  return LineSocket(std::move(socket));
}

absl::Status LineSocket::Write(const nlohmann::json& message, std::chrono::milliseconds timeout) {
  // Texts may quote bytes of a peer that are no UTF-8.
  const std::string line =
      message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  const int64_t deadline = DeadlineOf(timeout);
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n =
        send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!WaitFor(socket_.get(), POLLOUT, deadline)) return Failed("send", ETIMEDOUT);
    } else if (errno != EINTR) {
      return Failed("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<nlohmann::json>> LineSocket::TakeLine() {
  const size_t end = received_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = received_.size();
    if (searched_ <= kMostBytes) return std::nullopt;
    return absl::InvalidArgumentError(absl::StrCat("a line is longer than ", kMostBytes, " bytes"));
  }
  auto message = nlohmann::json::parse(received_.substr(0, end), nullptr, /*exceptions=*/false);
  received_.erase(0, end + 1);
  searched_ = 0;
  if (!message.is_object()) return absl::InvalidArgumentError("a line is no JSON object");
  return std::optional<nlohmann::json>(std::move(message));
}

absl::StatusOr<std::optional<nlohmann::json>> LineSocket::Read(std::chrono::milliseconds timeout) {
  const int64_t deadline = DeadlineOf(timeout);
  for (;;) {
    VERBENA_ASSIGN_OR_RETURN(auto message, TakeLine());
    if (message.has_value()) return message;
    if (!WaitFor(socket_.get(), POLLIN, deadline)) return std::nullopt;
    char bytes[65536];
    const ssize_t n = recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n > 0) {
      received_.append(bytes, static_cast<size_t>(n));
    } else if (n == 0) {
      return absl::UnavailableError("the other side has closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      return Failed("recv", errno);
    }
  }
}

absl::StatusOr<LineListener> LineListener::Listen(const std::string& address) {
  VERBENA_ASSIGN_OR_RETURN(NetAddress parsed, NetAddress::Parse(address));
  VERBENA_ASSIGN_OR_RETURN(UniqueFd socket, NewSocket(parsed));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), parsed.addr(), parsed.length()) != 0 || listen(socket.get(), 16) != 0) {
    return Failed(address, errno);
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return Failed(address, errno);
  }
  return LineListener(std::move(socket), NetAddress(reinterpret_cast<const sockaddr*>(&bound)));
}

absl::StatusOr<std::optional<LineSocket>> LineListener::Accept(std::chrono::milliseconds timeout) {
  if (!WaitFor(socket_.get(), POLLIN, DeadlineOf(timeout))) return std::nullopt;
  UniqueFd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Who has gone again is nobody.
  if (!socket.valid()) return std::nullopt;
  SendAtOnce(socket.get());
  return std::optional<LineSocket>(LineSocket(std::move(socket)));
}

}  // namespace verbena::bench
