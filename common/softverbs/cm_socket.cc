#include "common/softverbs/cm_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace verbena::softverbs {
namespace {

constexpr size_t kMaxFds = 8;
constexpr char kPrefix[] = "verbena-soft:";

std::string SocketName(const NetAddress& address) {
  return absl::StrCat(kPrefix, address.IsWildcard() ? "*" : address.host(), ":", address.port());
}

socklen_t FillAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  // A leading NUL: the abstract namespace.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Whether another of our names has the port, such that both would answer for one address.
bool ConflictingName(const NetAddress& address, const std::string& own) {
  FILE* file = std::fopen("/proc/net/unix", "re");
  if (file == nullptr) return false;
  const std::string port = absl::StrCat(":", address.port());
  char* line = nullptr;
  size_t capacity = 0;
  bool conflict = false;
  while (!conflict && getline(&line, &capacity, file) > 0) {
    const char* at = std::strstr(line, kPrefix);
    if (at == nullptr) continue;
    std::string name(at);
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
    if (name == own || name.size() < port.size() ||
        name.compare(name.size() - port.size(), port.size(), port) != 0) {
      continue;
    }
    const bool wildcard = name.compare(sizeof(kPrefix) - 1, 2, "*:") == 0;
    conflict = wildcard || address.IsWildcard();
  }
  std::free(line);
  std::fclose(file);
  return conflict;
}

int BindName(const NetAddress& address, UniqueFd* socket_fd) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  sockaddr_un name;
  const std::string text = SocketName(address);
  const socklen_t length = FillAddress(text, &name);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) return errno;
  if (ConflictingName(address, text)) return EADDRINUSE;
  *socket_fd = std::move(fd);
  return 0;
}

}  // namespace

void CmMessage::AddFd(int fd) {
  fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!fds.back().valid()) fd_error = errno;
}

int CmListener::Bind(NetAddress* address, UniqueFd* socket_fd) {
  if (!address->IsLocal()) return EADDRNOTAVAIL;
  if (address->port() != 0) return BindName(*address, socket_fd);
  std::random_device random;
  for (int tries = 0; tries < 1000; ++tries) {
    address->set_port(static_cast<uint16_t>(32768 + random() % 28232));
    const int error = BindName(*address, socket_fd);
    if (error != EADDRINUSE) return error;
  }
  return EADDRINUSE;
}

int CmConnect(const NetAddress& target, UniqueFd* socket_fd) {
  NetAddress wildcard = target;
  if (target.family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(wildcard.addr())->sin6_addr = in6addr_any;
  } else {
    reinterpret_cast<sockaddr_in*>(wildcard.addr())->sin_addr.s_addr = INADDR_ANY;
  }
  int error = ECONNREFUSED;
  for (const NetAddress* address : {&target, static_cast<const NetAddress*>(&wildcard)}) {
    UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return errno;
    sockaddr_un name;
    const socklen_t length = FillAddress(SocketName(*address), &name);
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&name), length) == 0) {
      *socket_fd = std::move(fd);
      return 0;
    }
    error = errno;
    if (error != ECONNREFUSED) return error;
  }
  return error;
}

int CmSend(int socket_fd, const CmMessage& message) {
  iovec body = {const_cast<CmBody*>(&message.body), sizeof(message.body)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  msghdr header{};
  header.msg_iov = &body;
  header.msg_iovlen = 1;
  if (!message.fds.empty()) {
    const size_t bytes = sizeof(int) * message.fds.size();
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    auto* out = CMSG_DATA(rights);
    for (const UniqueFd& fd : message.fds) {
      const int number = fd.get();
      std::memcpy(out, &number, sizeof(number));
      out += sizeof(number);
    }
  }
  if (sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
  // A kernel that holds too many descriptors in flight says so with these; they pass.
  return errno == ETOOMANYREFS || errno == ENOBUFS ? EAGAIN : errno;
}

void CmRefuse(int socket_fd) {
  CmMessage reject(CmKind::kReject);
  reject.body.reason = kRejectNoResources;
  CmSend(socket_fd, reject);  // who is gone needs no answer
}

int CmReceive(int socket_fd, CmMessage* message) {
  iovec body = {&message->body, sizeof(message->body)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  msghdr header{};
  header.msg_iov = &body;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t n;
  // ECONNRESET is told once, when the other end has closed before it had read everything. What it
  // sent before (a rejection, say) is still there and comes with the next call.
  do {
    n = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0) return errno == EAGAIN ? 0 : -ECONNRESET;
  message->fds.clear();
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      message->fds.emplace_back(fd);
    }
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    LogError(
        "softverbs: descriptors that a peer has sent were lost, since this process may open no "
        "more (raise `ulimit -n`)");
    return -EMFILE;
  }
  if (n != static_cast<ssize_t>(sizeof(message->body)) || message->body.magic != CmBody::kMagic ||
      message->body.data_length > kAcceptData) {
    return -ECONNRESET;
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) message->pid = peer.pid;
  return 1;
}

}  // namespace verbena::softverbs
