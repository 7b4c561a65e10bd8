#include "bench/systems/socket_backend.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace verbena::bench {
namespace {

constexpr size_t kReceiveSize = 64 * 1024;

absl::Status SocketError(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path too long: ", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return SocketError("socket");
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SocketError(path.c_str());
  }
  return socket;
}

absl::StatusOr<UniqueFd> ConnectTcp(const NetAddress& address, std::chrono::milliseconds timeout) {
  const auto failed = [&address](int error) {
    return absl::UnavailableError(absl::StrCat(address.ToString(), ": ", std::strerror(error)));
  };
  UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return SocketError("socket");
  const int on = 1;
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
    return SocketError("TCP_NODELAY");
  }
  if (connect(socket.get(), address.addr(), address.length()) == 0) return socket;
  if (errno != EINPROGRESS) return failed(errno);
  pollfd entry{socket.get(), POLLOUT, 0};
  const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(timeout.count(), 1 << 30)));
  if (ready < 0) return failed(errno);
  if (ready == 0) return failed(ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return failed(errno);
  if (error != 0) return failed(error);
  return socket;
}

absl::Status SocketBackend::SubmitRead(uint32_t slot, std::string_view key) {
  if (!status_.ok()) return status_;
  AppendRead(key, out_);
  pending_.push_back({slot, Kind::kRead});
  return absl::OkStatus();
}

absl::Status SocketBackend::SubmitWrite(uint32_t slot, std::string_view key,
                                        std::string_view value) {
  if (!status_.ok()) return status_;
  AppendWrite(key, value, out_);
  pending_.push_back({slot, Kind::kWrite});
  return absl::OkStatus();
}

absl::Status SocketBackend::SubmitDelete(uint32_t slot, std::string_view key) {
  if (!status_.ok()) return status_;
  AppendDelete(key, out_);
  pending_.push_back({slot, Kind::kDelete});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SocketBackend::Answer>> SocketBackend::Parse(Kind kind,
                                                                          std::string_view bytes) {
  switch (kind) {
    case Kind::kRead:
      return ParseRead(bytes);
    case Kind::kWrite:
      return ParseWrite(bytes);
    case Kind::kDelete:
      break;
  }
  return ParseDelete(bytes);
}

int SocketBackend::Wait(std::chrono::nanoseconds timeout) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return Progress(static_cast<int>(std::min<int64_t>(milliseconds, 1'000'000)));
}

// As redis-benchmark and others do: write what there is, sleep until answers come, take them all.
int SocketBackend::Progress(int timeout_ms) {
  if (pending_.empty() || !status_.ok()) return 0;
  if (!Flush()) return 0;
  if (timeout_ms > 0) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (sent_ < out_.size()) entry.events |= POLLOUT;
    ++counters_.system_calls;
    poll(&entry, 1, timeout_ms);
  }
  if (!Receive()) return 0;
  return Deliver();
}

bool SocketBackend::Flush() {
  while (sent_ < out_.size()) {
    ++counters_.system_calls;
    const ssize_t n = send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return true;
      Fail(SocketError("send"));
      return false;
    }
    sent_ += static_cast<size_t>(n);
    counters_.bytes_out += static_cast<uint64_t>(n);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

bool SocketBackend::Receive() {
  if (parsed_ == filled_) parsed_ = filled_ = 0;
  if (in_.size() - filled_ < kReceiveSize) {
    in_.erase(0, parsed_);
    filled_ -= parsed_;
    parsed_ = 0;
    if (in_.size() - filled_ < kReceiveSize) in_.resize(filled_ + 2 * kReceiveSize);
  }
  ++counters_.system_calls;
  const ssize_t n = recv(socket_.get(), in_.data() + filled_, in_.size() - filled_, 0);
  if (n > 0) {
    filled_ += static_cast<size_t>(n);
    counters_.bytes_in += static_cast<uint64_t>(n);
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  Fail(n == 0 ? absl::UnavailableError("the server closed the connection") : SocketError("recv"));
  return false;
}

int SocketBackend::Deliver() {
  int finished = 0;
  while (parsed_ < filled_) {
    if (pending_.empty()) {
      Fail(absl::UnavailableError("an answer without a request"));
      break;
    }
    const Pending pending = pending_.front();
    const std::string_view bytes(in_.data() + parsed_, filled_ - parsed_);
    auto answer = Parse(pending.kind, bytes);
    if (!answer.ok()) {
      Fail(answer.status());
      break;
    }
    if (!answer->has_value()) break;
    pending_.pop_front();
    parsed_ += (*answer)->size;
    ++finished;
    if (sink_ == nullptr) continue;
    if (pending.kind == Kind::kRead) {
      ++counters_.gets;
      sink_->OnRead(pending.slot, (*answer)->status, (*answer)->value);
    } else {
      sink_->OnWrite(pending.slot, (*answer)->status);
    }
  }
  return finished;
}

void SocketBackend::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  socket_.Reset();
}

}  // namespace verbena::bench
