#include "bench/baseline/tcp_target.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/unique_fd.h"

namespace verbena::bench {
namespace {

absl::Status SocketError(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

struct Client {
  UniqueFd socket;
  std::string received;
};

bool SendAll(int socket, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = send(socket, bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Answers what has come on a connection; false if it is over.
bool Answer(Client& client, const std::string& pong) {
  char bytes[64 * 1024];
  const ssize_t n = recv(client.socket.get(), bytes, sizeof(bytes), 0);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  client.received.append(bytes, static_cast<size_t>(n));
  std::string answers;
  size_t at = 0;
  while (client.received.size() - at >= sizeof(TcpPing)) {
    TcpPing ping;
    std::memcpy(&ping, client.received.data() + at, sizeof(ping));
    if (ping.size < sizeof(ping) || ping.size > kMostTcpPing || ping.answer > kMostTcpPing) {
      return false;
    }
    if (client.received.size() - at < ping.size) break;
    at += ping.size;
    answers.append(pong, 0, ping.answer);
  }
  client.received.erase(0, at);
  return SendAll(client.socket.get(), answers.data(), answers.size());
}

}  // namespace

absl::Status ServeTcpTarget(NetAddress address) {
  const UniqueFd listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t size = address.length();
  if (!listener.valid() || bind(listener.get(), address.addr(), size) != 0 ||
      listen(listener.get(), 64) != 0 || getsockname(listener.get(), address.addr(), &size) != 0) {
    return SocketError("listening for TCP");
  }
  std::printf("PORT %d\n", address.port());
  std::fflush(stdout);
  const std::string pong(kMostTcpPing, 'p');
  std::vector<Client> clients;
  for (;;) {
    std::vector<pollfd> entries = {{listener.get(), POLLIN, 0}};
    for (const Client& client : clients) entries.push_back({client.socket.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return SocketError("poll");
    for (size_t i = clients.size(); i-- > 0;) {
      if (entries[i + 1].revents != 0 && !Answer(clients[i], pong)) {
        clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if ((entries[0].revents & POLLIN) == 0) continue;
    UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) continue;
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    clients.push_back({std::move(socket), ""});
  }
}

}  // namespace verbena::bench
